//! The files that processes execute, and the state of their unwind tables: being built, loaded, evicted, or none.
//!
//! Owner: the sampling thread. Input: the mappings of processes, table misses of walks, and deliveries from the
//! [table builder](super::table_builder). Output: tables in the BPF maps, and the segments by which mapped ranges refer to
//! them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use sidewinder_address::{FileOffset, LoadSegment};
use sidewinder_bpf::{Arena, MappedRange, Outcome, PackedSegment, Packing, SegmentId, UnwindTables};
use sidewinder_process::{BuildId, ExecutableMapping, FileId, FileTable, OpenedFile, Pid};
use sidewinder_unwind::{FileOutline, Rule};
use sidewinder_vm::Interpreter;

use super::build::{BuildError, BuiltTable, SegmentRequest, TextRange};
use super::debug_files::{Companions, DebugFile, DebugRoots};
use super::segments::{TableSegment, push_segment_ranges, segment_at};
use super::table_builder::{BuildRequest, BuildScope, Delivery, TableBuilder};
use crate::sampling::options::PackingRules;
use crate::time_budget::TimeBudget;

/// The share of one CPU's time that may be spent on rebuilding evicted tables, as a divisor. It bounds the cost of a budget
/// that is far too small. Unused time is saved, up to [`REBUILD_BURST`].
const REBUILD_SHARE: u32 = 400;
const REBUILD_BURST: Duration = Duration::from_secs(3);

/// The executed files, with the state of their tables.
#[derive(Debug)]
pub(crate) struct Binaries {
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
}

/// Files whose tables are incomplete or missing because the memory budget doesn't allow reading them. A file that is
/// forgotten and seen again is identified by its path and its size.
#[derive(Default, Debug)]
struct IncompleteFiles {
    /// The budget that was available for each file, in bytes.
    known: HashMap<FileKey, u64>,
    /// The number of incomplete files, including those that are no longer in `known`.
    count: u64,
}

type FileKey = (Vec<u8>, u64);

impl IncompleteFiles {
    const KNOWN_MAX: usize = 4096;

    /// Adds a file. Returns whether it is new.
    fn add(&mut self, file: FileKey, budget_bytes: u64) -> bool {
        if self.known.len() >= Self::KNOWN_MAX {
            self.known.clear();
        }
        let is_new = self.known.insert(file, budget_bytes).is_none();
        self.count += u64::from(is_new);
        is_new
    }

    /// Whether a build of a file would probably run out of budget again: less than twice the previous budget is available.
    fn would_not_fit(&self, file: &FileKey, budget_bytes: impl Fn() -> u64) -> bool {
        self.known.get(file).is_some_and(|previous_bytes| budget_bytes() / 2 < *previous_bytes)
    }
}

#[derive(Debug)]
struct TrackedBinary {
    path: Vec<u8>,
    content: OpenedFile,
    packing: Packing,
    debug_file: DebugFile,
    /// From the first build.
    outline: Option<Arc<FileOutline>>,
    state: TableState,
    /// Processes that map it.
    users: BTreeSet<Pid>,
    /// When a process last started or stopped mapping it.
    used_at: Instant,
    /// Whether a build of it is in progress.
    is_build_requested: bool,
    /// Segments that walks have missed.
    missed_segments: BTreeSet<SegmentId>,
    /// The functions that walks have encountered, if the file is built function by function (see [`BuiltTable::unbuilt`]).
    sampled_functions: Option<SampledFunctions>,
}

/// The functions that walks have encountered in a file that is built function by function, by segment. Its tables cover no
/// others.
#[derive(Default, Debug)]
struct SampledFunctions {
    /// A file offset within each function.
    functions: BTreeMap<SegmentId, BTreeSet<FileOffset>>,
    /// Segments whose tables are missing some of these functions.
    outdated_segments: BTreeSet<SegmentId>,
}

impl SampledFunctions {
    /// The maximum number of functions in one segment. Those encountered first are kept.
    const FUNCTIONS_MAX: usize = 2048;

    fn add(&mut self, id: SegmentId, at: FileOffset) {
        let functions = self.functions.entry(id).or_default();
        if functions.len() < Self::FUNCTIONS_MAX && functions.insert(at) {
            self.outdated_segments.insert(id);
        }
    }
}

#[derive(Debug)]
enum TableState {
    /// The segments so far, in order, and the channel for the file offsets that walks miss.
    Building { segments: Vec<TableSegment>, wanted: Sender<FileOffset> },
    /// All segments, in order.
    Built(Vec<TableSegment>),
    /// There is no table: walks use frame pointers.
    NoTable,
}

impl TableState {
    fn segments(&self) -> &[TableSegment] {
        match self {
            Self::Building { segments, .. } | Self::Built(segments) => segments,
            Self::NoTable => &[],
        }
    }
}

/// A file with new segments, whose processes are to be published again.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    pub(crate) file: FileId,
    pub(crate) users: Vec<Pid>,
    pub(crate) loads: Vec<LoadSegment>,
    /// The interpreter that it contains.
    pub(crate) interpreter: Option<Arc<Interpreter>>,
    /// Why it has no table, or an incomplete one.
    pub(crate) failure: Option<BuildError>,
    /// Whether this file has failed in this way before.
    pub(crate) is_known_failure: bool,
}

impl Binaries {
    pub(crate) fn new(
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
        })
    }

    /// Requests the table of a file, unless it was requested before. `user` is a process that maps the file or did so: its
    /// root may contain a debug file. Returns false if the file can't be read.
    pub(crate) fn request_table(&mut self, file: FileId, files: &FileTable, user: Pid) -> bool {
        if let Some(binary) = self.binaries.get_mut(&file) {
            binary.used_at = Instant::now();
            return true;
        }
        let Some(entry) = files.get(file) else { return false };
        let Some(content) = entry.opened() else { return false };
        let build_id = entry.build_ids().gnu.as_ref().map(BuildId::as_bytes);
        let (sender, wanted) = mpsc::channel();
        let mut binary = TrackedBinary {
            path: entry.path().to_vec(),
            content: content.clone(),
            packing: self.packing_rules.packing(entry.path(), build_id),
            debug_file: DebugFile::from_process(user, entry.path(), content.owner(), &self.debug_roots),
            outline: None,
            state: TableState::Building { segments: Vec::new(), wanted: sender },
            users: BTreeSet::new(),
            used_at: Instant::now(),
            is_build_requested: true,
            missed_segments: BTreeSet::new(),
            sampled_functions: None,
        };
        if self.incomplete.would_not_fit(&binary.key(), || self.builder.room_bytes()) {
            (binary.state, binary.is_build_requested) = (TableState::NoTable, false);
        } else {
            self.builder.request(binary.build_request(file, BuildScope::WholeFile { wanted }));
        }
        self.binaries.insert(file, binary);
        true
    }

    /// Records the files that a process maps; none once it has exited. Each file's processes are published again when it has
    /// new tables.
    pub(crate) fn set_mapped_files(&mut self, user: Pid, files: BTreeSet<FileId>) {
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
    pub(crate) fn forget_unused(
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
    pub(crate) fn push_ranges(
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
            Some(TableState::Building { segments, .. } | TableState::Built(segments)) => {
                push_segment_ranges(ranges, whole, segments);
            }
            // The file can't be read, or there is none.
            Some(TableState::NoTable) | None => {
                ranges.push(MappedRange { segment: Some(self.empty_table), ..whole });
            }
        }
    }

    /// Records that a walk has missed the table at a file offset, so that it is built or loaded again.
    pub(crate) fn record_miss(&mut self, file: FileId, at: FileOffset) {
        if let Some(binary) = self.binaries.get_mut(&file) {
            binary.record_miss(at);
        }
    }

    /// The rule at an offset of a file, or the outcome of a walk there. `None`: its table is not loaded, and a miss is
    /// recorded.
    pub(crate) fn rule_at(
        &mut self,
        file: FileId,
        at: FileOffset,
        arena: &Arena,
        tables: &UnwindTables,
    ) -> Option<Result<Rule, Outcome>> {
        let binary = self.binaries.get_mut(&file)?;
        let rule = match (&binary.state, segment_at(binary.state.segments(), at)) {
            (TableState::NoTable, _) => Some(Err(Outcome::NoRule)),
            (TableState::Built(_), None) => Some(Err(Outcome::NoTable)),
            (_, Some(segment)) => loaded_rule(segment.id, at, arena, tables),
            (TableState::Building { .. }, None) => None,
        };
        if rule.is_none() {
            binary.record_miss(at);
        }
        rule
    }

    /// Whether [`rule_at`](Self::rule_at) would return a result.
    pub(crate) fn has_rule(
        &self,
        file: FileId,
        at: FileOffset,
        arena: &Arena,
        tables: &UnwindTables,
    ) -> bool {
        let Some(binary) = self.binaries.get(&file) else { return false };
        match segment_at(binary.state.segments(), at) {
            Some(segment) => loaded_rule(segment.id, at, arena, tables).is_some(),
            None => !matches!(binary.state, TableState::Building { .. }),
        }
    }

    /// Requests the tables that walks have missed, and loads those that have been built.
    pub(crate) fn load_ready(&mut self, arena: &mut Arena, tables: &mut UnwindTables) -> Vec<ReadyFile> {
        let can_rebuild = !self.rebuild_time.remaining(Instant::now()).is_zero();
        for (file, binary) in self.binaries.iter_mut().filter(|_| can_rebuild) {
            if let Some(scope) = binary.rebuild_scope(tables) {
                self.reloads += 1;
                self.builder.request(binary.build_request(*file, scope));
            }
        }
        let mut ready = Vec::new();
        while let Some(delivery) = self.builder.try_next() {
            let Delivery { file, built, interpreter, cpu_time, budget_bytes } = delivery;
            let Some(binary) = self.binaries.get_mut(&file) else { continue };
            let is_rebuild = matches!(binary.state, TableState::Built(_));
            if let Some(cpu_time) = cpu_time {
                binary.is_build_requested = false;
                if is_rebuild {
                    self.rebuild_time.spend(cpu_time, Instant::now());
                }
            }
            match (built, is_rebuild) {
                (Ok(built), true) => binary.reinstall(&built, arena, tables),
                (Ok(built), false) => {
                    let failure = built.over_budget_bytes.map(BuildError::OverBudget);
                    let is_known_failure =
                        failure.is_some() && !self.incomplete.add(binary.key(), budget_bytes);
                    binary.install(&built, arena, tables);
                    if cpu_time.is_some() {
                        binary.state = TableState::Built(binary.state.segments().to_vec());
                    }
                    let (users, loads) = (binary.users(), built.loads);
                    ready.push(ReadyFile { file, users, loads, interpreter, failure, is_known_failure });
                }
                // The file was readable before, so it has changed, and its evicted tables are lost.
                (Err(_), true) => binary.missed_segments.clear(),
                (Err(failure), false) => {
                    let is_known_failure = matches!(failure, BuildError::OverBudget(_))
                        && !self.incomplete.add(binary.key(), budget_bytes);
                    binary.debug_file = DebugFile::Searched(Companions::default());
                    binary.state = TableState::NoTable;
                    let (users, loads, failure) = (binary.users(), Vec::new(), Some(failure));
                    ready.push(ReadyFile { file, users, loads, interpreter, failure, is_known_failure });
                }
            }
        }
        // Of several deliveries for a file, the last one includes the earlier ones.
        let mut seen = BTreeSet::new();
        ready.reverse();
        ready.retain(|ready| seen.insert(ready.file));
        ready
    }

    /// The companions of a file; empty until its table has been built.
    pub(crate) fn companions(&self, file: FileId) -> Companions {
        match self.binaries.get(&file).map(|binary| &binary.debug_file) {
            Some(DebugFile::Searched(companions)) => companions.clone(),
            Some(DebugFile::Unsearched(..)) | None => Companions::default(),
        }
    }

    /// The number of builds in progress.
    pub(crate) fn in_progress(&self) -> usize {
        self.builder.in_progress()
    }

    /// Whether walks miss tables that can be built.
    pub(crate) fn has_misses(&self) -> bool {
        self.binaries.values().any(|binary| !binary.missed_segments.is_empty())
    }

    /// The number of files whose tables are incomplete or missing because the memory budget doesn't allow reading them.
    pub(crate) fn incomplete_files(&self) -> u64 {
        self.incomplete.count
    }

    /// The number of builds that were repeated because a walk missed an evicted table.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads
    }
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

impl TrackedBinary {
    fn key(&self) -> FileKey {
        (self.path.clone(), self.content.size_bytes())
    }

    fn build_request(&self, file: FileId, scope: BuildScope) -> BuildRequest {
        let (content, debug_file) = (self.content.clone(), self.debug_file.clone());
        BuildRequest { file, content, packing: self.packing, debug_file, scope }
    }

    fn record_miss(&mut self, at: FileOffset) {
        match (&self.state, segment_at(self.state.segments(), at)) {
            (_, Some(segment)) => {
                self.missed_segments.insert(segment.id);
                if let Some(sampled) = &mut self.sampled_functions {
                    sampled.add(segment.id, at);
                }
            }
            // If the builder has passed this offset, its segment is already delivered.
            (TableState::Building { wanted, .. }, None) => drop(wanted.send(at)),
            (TableState::Built(_) | TableState::NoTable, None) => {}
        }
    }

    fn users(&self) -> Vec<Pid> {
        self.users.iter().copied().collect()
    }

    /// What to build again because walks have missed it, unless a build of the file is in progress.
    fn rebuild_scope(&mut self, tables: &UnwindTables) -> Option<BuildScope> {
        let TableState::Built(segments) = &self.state else { return None };
        if self.missed_segments.is_empty() || self.is_build_requested {
            return None;
        }
        let sampled = &mut self.sampled_functions;
        let has_grown =
            |id: &SegmentId| sampled.as_ref().is_some_and(|sampled| sampled.outdated_segments.contains(id));
        self.missed_segments.retain(|id| !tables.is_loaded(*id) || has_grown(id));
        let missed: Vec<_> =
            segments.iter().filter(|segment| self.missed_segments.contains(&segment.id)).collect();
        let stand_alone = missed.iter().all(|segment| segment.is_self_contained);
        let mut functions = |id| {
            let sampled = sampled.as_mut()?;
            sampled.outdated_segments.remove(&id);
            Some(sampled.functions.get(&id).into_iter().flatten().copied().collect())
        };
        let wanted: Vec<_> = missed
            .iter()
            .map(|segment| SegmentRequest { range: segment.range, functions: functions(segment.id) })
            .collect();
        self.is_build_requested = !wanted.is_empty();
        self.is_build_requested.then(|| BuildScope::Segments {
            wanted,
            stand_alone,
            outline: self.outline.clone(),
        })
    }

    /// Reserves an ID for each segment, and loads its table if there is room. The others are loaded when walks miss them.
    fn install(&mut self, built: &BuiltTable, arena: &mut Arena, tables: &mut UnwindTables) {
        self.debug_file = built.debug_file.clone();
        self.outline = built.outline.clone();
        let TableState::Building { segments, .. } = &mut self.state else { return };
        segments.extend(built.segments.iter().map_while(|packed| {
            let id = tables.reserve()?;
            // A failed load is retried when a walk misses the table: the kernel may have memory then.
            let _ = tables.load_if_room(arena, id, packed);
            let range = TextRange::from(packed);
            let is_self_contained = !built.from_machine_code.iter().any(|code| range.overlaps(code));
            Some(TableSegment { range, is_self_contained, id })
        }));
        if !built.unbuilt.is_empty() {
            self.sampled_functions = Some(SampledFunctions::default());
        }
        let unbuilt = built.unbuilt.iter();
        segments.extend(unbuilt.map_while(|range| {
            Some(TableSegment { range: *range, is_self_contained: true, id: tables.reserve()? })
        }));
        segments.sort_unstable_by_key(|segment| segment.range.file_offset);
    }

    /// Loads tables that walks have missed, and evicts others to make room. Tables that don't fit remain missed.
    fn reinstall(&mut self, built: &BuiltTable, arena: &mut Arena, tables: &mut UnwindTables) {
        let TableState::Built(segments) = &self.state else { return };
        if let Some(outline) = &built.outline {
            self.outline.get_or_insert_with(|| Arc::clone(outline));
        }
        for packed in &built.segments {
            let segment = segments.iter().find(|segment| segment.range == TextRange::from(packed));
            if let Some(segment) = segment
                && self.missed_segments.contains(&segment.id)
                && tables.replace(arena, segment.id, packed).is_ok()
            {
                self.missed_segments.remove(&segment.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_file_is_counted_once_even_if_it_is_forgotten_and_seen_again() {
        let mut incomplete = IncompleteFiles::default();
        let file = |size_bytes| (b"/usr/bin/node".to_vec(), size_bytes);
        assert!(incomplete.add(file(1), 100));
        assert!(!incomplete.add(file(1), 100));
        assert!(incomplete.add(file(2), 100), "another version of it");
        assert_eq!(incomplete.count, 2);
        assert!(incomplete.would_not_fit(&file(1), || 199) && !incomplete.would_not_fit(&file(1), || 200));
        assert!(!incomplete.would_not_fit(&file(3), || 0), "no build of it was tried");
        (0..2 * IncompleteFiles::KNOWN_MAX as u64)
            .for_each(|size_bytes| _ = incomplete.add(file(size_bytes), 100));
        assert!(incomplete.known.len() <= IncompleteFiles::KNOWN_MAX);
    }
}
