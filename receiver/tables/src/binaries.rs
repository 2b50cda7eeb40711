//! The files that processes execute, and the state of their unwind tables: being built, loaded, evicted, or none.
//!
//! Owner: the sampling thread. Input: the mappings of processes, table misses of walks, and deliveries from the
//! [table builder](crate::table_builder). Output: tables in the BPF maps, and the segments by which mapped ranges refer to
//! them.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_address::{FileOffset, LoadSegment};
use sidewinder_base::memory::{limit_mib_for_building, limit_mib_for_tables};
use sidewinder_base::refusals::Refusals;
use sidewinder_base::time_budget::TimeBudget;
use sidewinder_bpf::{Arena, MappedRange, Outcome, PackedSegment, SegmentId, UnwindTables};
use sidewinder_debug_files::{Companions, DebugFile, DebugRoots};
use sidewinder_process::{BuildId, ExecutableMapping, FileId, FileTable, OpenedFile, Pid};
use sidewinder_unwind::Rule;
use sidewinder_vm::{LanguageRuntime, PthreadLayout};

use crate::build::BuildError;
use crate::incomplete_files::{IncompleteFiles, IncompleteTables};
use crate::packing_rules::PackingRules;
use crate::saved_tables::SavedTableCounts;
use crate::segments::{push_segment_ranges, segment_at};
use crate::table_builder::{Delivery, TableBuilder};
use crate::tracked_binary::{TableState, TrackedBinary, Unread};

/// The share of one CPU's time that may be spent on rebuilding evicted tables, as a divisor. It bounds the cost of a budget
/// that is far too small. Unused time is saved, up to [`REBUILD_BURST`].
const REBUILD_SHARE: u32 = 200;
const REBUILD_BURST: Duration = Duration::from_secs(3);

/// The executed files, with the state of their tables.
#[derive(Debug)]
pub struct Binaries {
    builder: TableBuilder,
    packing_rules: PackingRules,
    debug_roots: Arc<DebugRoots>,
    binaries: HashMap<FileId, TrackedBinary>,
    /// The files that each process maps.
    files_by_user: HashMap<Pid, BTreeSet<FileId>>,
    /// The segment for files without unwind information: an empty table.
    empty_table: SegmentId,
    reloads: u64,
    rebuild_time: TimeBudget,
    incomplete: IncompleteFiles,
    /// This program, whose table waits until a walk misses it. A launched command begins as a process of it, and is mostly gone
    /// from it before the first sample.
    own_program: Option<Inode>,
}

/// A device and an inode number.
type Inode = (u64, u64);

fn inode_of(status: &Metadata) -> Inode {
    (status.dev(), status.ino())
}

/// A file with new segments, whose processes are to be published again.
#[derive(Debug)]
pub struct ReadyFile {
    /// The file.
    pub file: FileId,
    /// The processes that map it.
    pub users: Vec<Pid>,
    /// Its loadable segments.
    pub loads: Vec<LoadSegment>,
    /// The runtime that it contains.
    pub runtime: Option<Arc<dyn LanguageRuntime>>,
    /// How the C library that it is lays out threads, if that was looked for.
    pub pthread: Option<PthreadLayout>,
    /// Why it has no table, or an incomplete one.
    pub failure: Option<BuildError>,
    /// Whether this file has failed in this way before.
    pub is_known_failure: bool,
    /// Whether there was no room for some of its tables: their functions have rows once walks have encountered them.
    pub is_left_out: bool,
}

/// Tables of large files take 2.8 to 3.6% of their code (`sidewinder inspect` says how much).
const CODE_BYTES_PER_TABLE_BYTE: u64 = 30;

impl Binaries {
    /// No files yet; `None` if the BPF maps have no room for a table without rows, which files without one refer to.
    pub fn new(
        builder: TableBuilder,
        rules: PackingRules,
        debug_roots: Arc<DebugRoots>,
        arena: &mut Arena,
        tables: &mut UnwindTables,
    ) -> Option<Self> {
        let empty_table = tables.reserve()?;
        tables.load(arena, empty_table, &PackedSegment::empty()).ok()?;
        Some(Self {
            builder,
            packing_rules: rules,
            debug_roots,
            binaries: HashMap::new(),
            files_by_user: HashMap::new(),
            empty_table,
            reloads: 0,
            rebuild_time: TimeBudget::new(REBUILD_SHARE, REBUILD_BURST),
            incomplete: IncompleteFiles::default(),
            own_program: fs::metadata("/proc/self/exe").ok().as_ref().map(inode_of),
        })
    }

    /// Requests the table of a file, unless it was requested before. `user` is a process that maps the file or did so: its
    /// root may contain a debug file. Returns false if the file can't be read.
    pub fn request_table(&mut self, file: FileId, files: &FileTable, user: Pid) -> bool {
        if let Some(binary) = self.binaries.get_mut(&file) {
            binary.used_at = Instant::now();
            return true;
        }
        let Some(entry) = files.get(file) else { return false };
        let Some(content) = entry.opened() else { return false };
        let build_id = entry.build_ids().gnu.as_ref().map(BuildId::as_bytes);
        let packing = self.packing_rules.packing(entry.path(), build_id);
        let mut binary = TrackedBinary {
            path: entry.path().to_vec(),
            content: content.clone(),
            packing,
            saved_as: self.builder.saved_name(entry, packing),
            debug_file: DebugFile::from_process(user, entry.path(), content.owner(), &self.debug_roots),
            outline: None,
            state: TableState::Postponed { missed: None },
            users: BTreeSet::new(),
            used_at: Instant::now(),
            is_build_requested: false,
            missed_segments: BTreeSet::new(),
            sampled_functions: None,
            unread: None,
        };
        if self.incomplete.would_not_fit(&binary.key(), || self.builder.room_bytes()) {
            binary.state = TableState::NoTable;
        } else if !self.is_own_program(content) {
            let scope = binary.begin_build();
            self.builder.request(binary.build_request(file, scope));
        }
        self.binaries.insert(file, binary);
        true
    }

    /// The record of files that are not read.
    pub fn refusals(&self) -> &Refusals {
        self.debug_roots.refusals()
    }

    fn is_own_program(&self, content: &OpenedFile) -> bool {
        // The vDSO has no file.
        let status = content.file().and_then(|file| file.metadata().ok());
        status.is_some_and(|status| self.own_program == Some(inode_of(&status)))
    }

    /// Records the files that a process maps; none once it has exited. Each file's processes are published again when it has
    /// new tables.
    pub fn set_mapped_files(&mut self, user: Pid, files: BTreeSet<FileId>) {
        for file in &files {
            if let Some(binary) = self.binaries.get_mut(file) {
                binary.users.insert(user);
            }
        }
        let previous = if files.is_empty() {
            self.files_by_user.remove(&user)
        } else {
            self.files_by_user.insert(user, files.clone())
        };
        for file in previous.unwrap_or_default().difference(&files) {
            if let Some(binary) = self.binaries.get_mut(file) {
                binary.users.remove(&user);
                binary.used_at = Instant::now();
            }
        }
    }

    /// Forgets the files that no process has mapped for this long, with their tables and descriptors, and returns them.
    pub fn forget_unused(
        &mut self,
        age: Duration,
        arena: &mut Arena,
        tables: &mut UnwindTables,
    ) -> Vec<FileId> {
        let unused = self.binaries.extract_if(|_, binary| {
            binary.users.is_empty() && !binary.is_build_requested && binary.used_at.elapsed() >= age
        });
        let forget = |(file, binary): (FileId, TrackedBinary)| {
            binary.state.segments().iter().for_each(|segment| tables.release(arena, segment.id));
            file
        };
        unused.map(forget).collect()
    }

    /// Appends the ranges of one mapping, one for each segment of its file.
    pub fn push_ranges(
        &self,
        ranges: &mut Vec<MappedRange>,
        file: Option<FileId>,
        mapping: &ExecutableMapping,
    ) {
        let whole = MappedRange {
            start: mapping.range.start,
            bytes: mapping.len_bytes(),
            file: file.map_or(0, |file| file.0),
            file_offset: mapping.file_offset,
            segment: None,
        };
        match file.and_then(|file| self.binaries.get(&file)).map(|binary| &binary.state) {
            // The file can't be read, or there is none.
            Some(TableState::NoTable) | None => {
                ranges.push(MappedRange { segment: Some(self.empty_table), ..whole });
            }
            Some(state) => push_segment_ranges(ranges, whole, state.segments()),
        }
    }

    /// Records that a walk has missed the table at a file offset, so that it is built or loaded again.
    pub fn record_miss(&mut self, file: FileId, at: FileOffset) {
        if let Some(binary) = self.binaries.get_mut(&file) {
            binary.record_miss(at);
        }
    }

    /// Records that frames refer to a file.
    pub fn touch(&mut self, file: FileId) {
        if let Some(binary) = self.binaries.get_mut(&file) {
            binary.used_at = Instant::now();
        }
    }

    /// Whether the table of a file has been requested.
    pub fn is_tracked(&self, file: FileId) -> bool {
        self.binaries.contains_key(&file)
    }

    /// The rule at an offset of a file, or the outcome of a walk there. `None`: its table is not loaded.
    pub fn rule_at(
        &self,
        file: FileId,
        at: FileOffset,
        arena: &Arena,
        tables: &UnwindTables,
    ) -> Option<Result<Rule, Outcome>> {
        let binary = self.binaries.get(&file)?;
        match (&binary.state, segment_at(binary.state.segments(), at)) {
            (TableState::NoTable, _) => Some(Err(Outcome::NoRule)),
            (_, Some(segment)) => loaded_rule(segment.id, at, arena, tables),
            (state, None) => state.is_final().then_some(Err(Outcome::NoTable)),
        }
    }

    /// Requests the tables that walks have missed, and loads those that have been built.
    pub fn load_ready(&mut self, arena: &mut Arena, tables: &mut UnwindTables) -> Vec<ReadyFile> {
        self.builder.set_room(room_for_tables(arena));
        // Tables that walks don't use make room for those that they miss.
        let room_bytes = room_for_tables(arena) + tables.unused_bytes(UNUSED_ADVANCES);
        let can_rebuild = !self.rebuild_time.remaining(Instant::now()).is_zero();
        for (file, binary) in &mut self.binaries {
            if let Some(scope) = binary.postponed_scope() {
                self.builder.request(binary.build_request(*file, scope));
            } else if can_rebuild && let Some(scope) = binary.rebuild_scope(tables, room_bytes) {
                self.reloads += 1;
                self.builder.request(binary.build_request(*file, scope));
            }
        }
        let mut ready = Vec::new();
        while let Some(delivery) = self.builder.try_next() {
            let Delivery { file, built, runtime, pthread, cpu_time, budget_bytes } = delivery;
            let Some(binary) = self.binaries.get_mut(&file) else { continue };
            let is_rebuild = matches!(binary.state, TableState::Built(_));
            if let Some(cpu_time) = cpu_time {
                binary.is_build_requested = false;
                if is_rebuild {
                    self.rebuild_time.spend(cpu_time, Instant::now());
                }
            }
            let (loads, failure, is_known_failure) = match (built, is_rebuild) {
                (Ok(built), true) => {
                    if let Some(piece_bytes) = built.over_budget_bytes {
                        binary.unread = Some(Unread { piece_bytes, budget_bytes });
                    }
                    binary.reinstall(&built, arena, tables);
                    continue;
                }
                // The file was readable before, so it has changed, and its evicted tables are lost.
                (Err(_), true) => {
                    binary.missed_segments.clear();
                    continue;
                }
                (Ok(built), false) => {
                    let failure = built.over_budget_bytes.map(BuildError::OverBudget);
                    let unread = built.over_budget_bytes;
                    binary.unread = unread.map(|piece_bytes| Unread { piece_bytes, budget_bytes });
                    // What was read in parts has most of its rows, and is worth building again.
                    let tried_bytes = if built.outline.is_some() { 0 } else { budget_bytes };
                    let is_known_failure =
                        failure.is_some() && !self.incomplete.add(binary.key(), tried_bytes);
                    binary.install(&built, arena, tables);
                    if cpu_time.is_some() {
                        binary.state = TableState::Built(binary.state.segments().to_vec());
                    }
                    (built.loads, failure, is_known_failure)
                }
                (Err(failure), false) => {
                    let mut is_known_failure = false;
                    if let BuildError::OverBudget(piece_bytes) = failure {
                        is_known_failure = !self.incomplete.add(binary.key(), budget_bytes);
                        binary.unread = Some(Unread { piece_bytes, budget_bytes });
                    }
                    binary.debug_file = DebugFile::Searched(Companions::default());
                    binary.state = TableState::NoTable;
                    (Vec::new(), Some(failure), is_known_failure)
                }
            };
            let users = binary.users();
            let is_left_out = binary.left_out_code_bytes() > 0;
            ready.push(ReadyFile {
                file,
                users,
                loads,
                runtime,
                pthread,
                failure,
                is_known_failure,
                is_left_out,
            });
        }
        self.builder.set_room(room_for_tables(arena));
        // Of several deliveries for a file, the last one includes the earlier ones.
        let mut seen = BTreeSet::new();
        ready.reverse();
        ready.retain(|ready| seen.insert(ready.file));
        ready
    }

    /// The companions of a file; empty until its table has been built.
    pub fn companions(&self, file: FileId) -> Companions {
        match self.binaries.get(&file).map(|binary| &binary.debug_file) {
            Some(DebugFile::Searched(companions)) => companions.clone(),
            Some(DebugFile::Unsearched(..)) | None => Companions::default(),
        }
    }

    /// The number of builds in progress.
    pub fn in_progress(&self) -> usize {
        self.builder.in_progress()
    }

    /// Whether walks miss tables that can be built.
    pub fn has_misses(&self) -> bool {
        self.binaries.values().any(|binary| !binary.missed_segments.is_empty())
    }

    /// The number of files whose tables are incomplete or missing because the memory budget doesn't allow reading them.
    pub fn incomplete_files(&self) -> u64 {
        self.incomplete.count
    }

    /// The files that have no whole table now, for lack of memory.
    pub fn incomplete_tables(&self, arena: &Arena) -> IncompleteTables {
        let unread = self.binaries.values().filter_map(|binary| binary.unread);
        let building_bytes = unread.map(|unread| unread.budget_bytes + unread.piece_bytes).max();
        let files: Vec<_> = self.binaries.values().filter_map(TrackedBinary::incomplete_table).collect();
        let left_out_code_bytes: u64 = files.iter().map(|file| file.left_out_code_bytes).sum();
        let tables_bytes = arena.used_bytes() + left_out_code_bytes / CODE_BYTES_PER_TABLE_BYTE;
        let for_tables = (left_out_code_bytes > 0)
            .then(|| limit_mib_for_tables(tables_bytes / (MAPPINGS_SHARE - 1) * MAPPINGS_SHARE));
        let enough_mib = for_tables.max(building_bytes.map(limit_mib_for_building));
        IncompleteTables::new(files, enough_mib.unwrap_or_default())
    }

    /// How often saved tables were used.
    pub fn saved_table_counts(&self) -> SavedTableCounts {
        self.builder.saved_counts()
    }

    /// The number of builds that were repeated because a walk missed an evicted table.
    pub fn reloads(&self) -> u64 {
        self.reloads
    }
}

/// After so many advances of the clock that measures the age of tables, one that no walk has used meanwhile may be evicted for
/// another, whole one.
const UNUSED_ADVANCES: u32 = 40;

/// The share of the arena that tables leave free for the mappings of processes, as a divisor.
const MAPPINGS_SHARE: u64 = 8;

/// The memory that is left in the arena for tables that no walk has missed.
fn room_for_tables(arena: &Arena) -> u64 {
    let left_bytes = arena.budget_bytes().saturating_sub(arena.used_bytes());
    left_bytes.saturating_sub(arena.budget_bytes() / MAPPINGS_SHARE)
}

/// The rule at a file offset, or the outcome of a walk there. `None`: the segment's table is not loaded, or doesn't cover
/// the function yet.
fn loaded_rule(
    id: SegmentId,
    at: FileOffset,
    arena: &Arena,
    tables: &UnwindTables,
) -> Option<Result<Rule, Outcome>> {
    tables.rule_at(arena, id, at).filter(|rule| *rule != Err(Outcome::NoTable))
}
