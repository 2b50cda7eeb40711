//! The files that processes execute, and the state of their unwind tables: being built, loaded, evicted, or none.
//!
//! Owner: the sampling thread. Input: the mappings of processes, what walks have missed, and what the
//! [table builder](super::table_builder) delivers. Output: tables in the BPF maps, and the segments by which ranges name them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use sidewinder_address::{FileOffset, LoadSegment};
use sidewinder_bpf::{Arena, MappedRange, Outcome, PackedSegment, Packing, SegmentId, UnwindTables};
use sidewinder_process::{BuildId, ExecutableMapping, FileId, FileTable, OpenedFile, Pid};
use sidewinder_unwind::{FileOutline, Rule};

use super::build::{BuildError, BuiltTable, SegmentRequest, TextRange};
use super::debug_files::{Companions, DebugFile, DebugRoots};
use super::segments::{TableSegment, push_segment_ranges, segment_at};
use super::table_builder::{BuildRequest, BuildScope, Delivery, TableBuilder};
use crate::sampling::options::PackingRules;
use crate::time_budget::TimeBudget;

/// The share of one CPU's time that may go into rebuilding evicted tables, as one part of this many: the most that a budget
/// far too small costs. Time that is not needed is saved up to a limit.
const REBUILD_SHARE: u32 = 400;
const REBUILD_BURST: Duration = Duration::from_secs(3);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Binaries {
    builder: TableBuilder,
    packing_rules: PackingRules,
    debug_roots: Arc<DebugRoots>,
    binaries: HashMap<FileId, TrackedBinary>,
    /// The files that each process maps.
    files_by_user: HashMap<Pid, BTreeSet<FileId>>,
    /// The table of files without unwind information.
    empty_table: SegmentId,
    reloads: u64,
    rebuild_time: TimeBudget,
    incomplete: IncompleteFiles,
}

/// Files whose tables are incomplete or missing for want of memory to read them. A file that is forgotten and met again is
/// the same if its path and its size are.
#[derive(Default, Debug)]
struct IncompleteFiles {
    /// By file, the room that there was, in bytes.
    known: HashMap<FileKey, u64>,
    /// All such files, also those that are no longer in `known`.
    count: u64,
}

type FileKey = (Vec<u8>, u64);

impl IncompleteFiles {
    const KNOWN_MAX: usize = 4096;

    /// Adds a file. Returns whether it is new.
    fn add(&mut self, file: FileKey, room_bytes: u64) -> bool {
        if self.known.len() >= Self::KNOWN_MAX {
            self.known.clear();
        }
        let is_new = self.known.insert(file, room_bytes).is_none();
        self.count += u64::from(is_new);
        is_new
    }

    /// Whether a file would not fit again: there is less than twice the room that there was.
    fn would_not_fit(&self, file: &FileKey, room_bytes: impl Fn() -> u64) -> bool {
        self.known.get(file).is_some_and(|had_bytes| room_bytes() / 2 < *had_bytes)
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
    /// When a process last began or ceased to map it.
    used_at: Instant,
    /// Whether the builder works on it.
    is_build_requested: bool,
    /// Segments that walks have missed.
    missed_segments: BTreeSet<SegmentId>,
    /// Of a divided file, the functions that walks have met.
    sampled_functions: Option<SampledFunctions>,
}

/// The functions of a divided file that walks have met, by segment. Its tables cover no others.
#[derive(Default, Debug)]
struct SampledFunctions {
    /// A place in each function.
    functions: BTreeMap<SegmentId, BTreeSet<FileOffset>>,
    /// Segments whose tables lack some of these functions.
    outdated_segments: BTreeSet<SegmentId>,
}

impl SampledFunctions {
    /// The most functions of one part. Those that are met first stay.
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
    /// With the segments so far, in order, and the channel for what walks miss.
    Building { segments: Vec<TableSegment>, wanted: Sender<FileOffset> },
    /// With all segments, in order.
    Built(Vec<TableSegment>),
    /// Without a table: walks use frame pointers.
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

/// A file with new segments: its processes are to be published again.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    pub(crate) file: FileId,
    pub(crate) users: Vec<Pid>,
    pub(crate) loads: Vec<LoadSegment>,
    /// Why it has no table, or an incomplete one.
    pub(crate) failure: Option<BuildError>,
    /// Whether this failure of this file is known.
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
        let blank = tables.reserve()?;
        tables.load(arena, blank, &PackedSegment::empty()).ok()?;
        Some(Self {
            builder,
            packing_rules: rules,
            debug_roots,
            binaries: HashMap::new(),
            files_by_user: HashMap::new(),
            empty_table: blank,
            reloads: 0,
            rebuild_time: TimeBudget::new(REBUILD_SHARE, REBUILD_BURST),
            incomplete: IncompleteFiles::default(),
        })
    }

    /// Has the table of a file built, unless that is done. `user` is a process that maps it or did: its file system may have a
    /// debug file. Returns false if the file can't be read.
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

    /// Records the files that a process maps, none once it has exited. New tables have their processes published again.
    pub(crate) fn set_mapped_files(&mut self, user: Pid, files: BTreeSet<FileId>) {
        for file in &files {
            if let Some(binary) = self.binaries.get_mut(file) {
                binary.users.insert(user);
            }
        }
        let before = if files.is_empty() {
            self.files_by_user.remove(&user)
        } else {
            self.files_by_user.insert(user, files.clone())
        };
        for file in before.unwrap_or_default().difference(&files) {
            if let Some(binary) = self.binaries.get_mut(file) {
                binary.users.remove(&user);
                binary.used_at = Instant::now();
            }
        }
    }

    /// Forgets the files that no process has mapped for this long, with their tables and descriptors, and returns them.
    pub(crate) fn forget_unused(
        &mut self,
        time: Duration,
        arena: &mut Arena,
        tables: &mut UnwindTables,
    ) -> Vec<FileId> {
        let unused = self.binaries.extract_if(|_, binary| {
            binary.users.is_empty() && !binary.is_build_requested && binary.used_at.elapsed() >= time
        });
        let forget = |(file, binary): (FileId, TrackedBinary)| {
            binary.state.segments().iter().for_each(|segment| tables.release(arena, segment.id));
            file
        };
        unused.map(forget).collect()
    }

    /// Adds the ranges of one mapping: a part for each segment of its file.
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

    /// Records that a walk has missed the table at a place, to be built or loaded again.
    pub(crate) fn record_miss(&mut self, file: FileId, at: FileOffset) {
        if let Some(binary) = self.binaries.get_mut(&file) {
            binary.record_miss(at);
        }
    }

    /// The rule at a place of a file, as walks find it. `None`: its table is not loaded, and is recorded as missed.
    pub(crate) fn rule_at(
        &mut self,
        file: FileId,
        at: FileOffset,
        arena: &Arena,
        tables: &UnwindTables,
    ) -> Option<Result<Rule, Outcome>> {
        let binary = self.binaries.get_mut(&file)?;
        let found = match (&binary.state, segment_at(binary.state.segments(), at)) {
            (TableState::NoTable, _) => Some(Err(Outcome::NoRule)),
            (TableState::Built(_), None) => Some(Err(Outcome::NoTable)),
            (_, Some(segment)) => loaded_rule(segment.id, at, arena, tables),
            (TableState::Building { .. }, None) => None,
        };
        if found.is_none() {
            binary.record_miss(at);
        }
        found
    }

    /// Whether [`rule_at`](Self::rule_at) has an answer.
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

    /// Orders what walks have missed, and loads what has been built.
    pub(crate) fn load_ready(&mut self, arena: &mut Arena, tables: &mut UnwindTables) -> Vec<ReadyFile> {
        let can_rebuild = !self.rebuild_time.remaining(Instant::now()).is_zero();
        for (file, binary) in self.binaries.iter_mut().filter(|_| can_rebuild) {
            if let Some(what) = binary.rebuild_scope(tables) {
                self.reloads += 1;
                self.builder.request(binary.build_request(*file, what));
            }
        }
        let mut ready = Vec::new();
        while let Some(Delivery { file, built, cpu_time: took, budget_bytes: room_bytes }) =
            self.builder.try_next()
        {
            let Some(binary) = self.binaries.get_mut(&file) else { continue };
            let is_again = matches!(binary.state, TableState::Built(_));
            if let Some(took) = took {
                binary.is_build_requested = false;
                if is_again {
                    self.rebuild_time.spend(took, Instant::now());
                }
            }
            match (built, is_again) {
                (Ok(built), true) => binary.reinstall(&built, arena, tables),
                (Ok(built), false) => {
                    let failure = built.over_budget_bytes.map(BuildError::OverBudget);
                    let is_known_failure =
                        failure.is_some() && !self.incomplete.add(binary.key(), room_bytes);
                    binary.install(&built, arena, tables);
                    if took.is_some() {
                        binary.state = TableState::Built(binary.state.segments().to_vec());
                    }
                    let (users, loads) = (binary.users(), built.loads);
                    ready.push(ReadyFile { file, users, loads, failure, is_known_failure });
                }
                // The file could be read before, so it has changed: its evicted tables are lost.
                (Err(_), true) => binary.missed_segments.clear(),
                (Err(failure), false) => {
                    let is_known_failure = matches!(failure, BuildError::OverBudget(_))
                        && !self.incomplete.add(binary.key(), room_bytes);
                    binary.debug_file = DebugFile::Searched(Companions::default());
                    binary.state = TableState::NoTable;
                    let (users, loads, failure) = (binary.users(), Vec::new(), Some(failure));
                    ready.push(ReadyFile { file, users, loads, failure, is_known_failure });
                }
            }
        }
        // Of several parts of a file, the last covers all.
        let mut seen = BTreeSet::new();
        ready.reverse();
        ready.retain(|ready| seen.insert(ready.file));
        ready
    }

    /// The companions of a file whose table has been built.
    pub(crate) fn companions(&self, file: FileId) -> Companions {
        match self.binaries.get(&file).map(|binary| &binary.debug_file) {
            Some(DebugFile::Searched(companions)) => companions.clone(),
            Some(DebugFile::Unsearched(..)) | None => Companions::default(),
        }
    }

    /// Tables that are being built.
    pub(crate) fn in_progress(&self) -> usize {
        self.builder.in_progress()
    }

    /// Whether walks miss tables that can be built.
    pub(crate) fn has_misses(&self) -> bool {
        self.binaries.values().any(|binary| !binary.missed_segments.is_empty())
    }

    /// Files whose tables are incomplete or missing for want of memory to read them.
    pub(crate) fn incomplete_files(&self) -> u64 {
        self.incomplete.count
    }

    /// Files read again because a walk missed an evicted table.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads
    }
}

/// The rule at a place, or the outcome of a walk there. `None`: the segment's table is not loaded, or lacks the function.
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

    fn build_request(&self, file: FileId, what: BuildScope) -> BuildRequest {
        let (content, debug_file) = (self.content.clone(), self.debug_file.clone());
        BuildRequest { file, content, packing: self.packing, debug_file, scope: what }
    }

    fn record_miss(&mut self, at: FileOffset) {
        match (&self.state, segment_at(self.state.segments(), at)) {
            (_, Some(segment)) => {
                self.missed_segments.insert(segment.id);
                if let Some(met) = &mut self.sampled_functions {
                    met.add(segment.id, at);
                }
            }
            // If the builder is past that place, it has delivered it.
            (TableState::Building { wanted, .. }, None) => drop(wanted.send(at)),
            (TableState::Built(_) | TableState::NoTable, None) => {}
        }
    }

    fn users(&self) -> Vec<Pid> {
        self.users.iter().copied().collect()
    }

    /// The order for what walks have missed, if there is any and the builder is not at work on the file.
    fn rebuild_scope(&mut self, tables: &UnwindTables) -> Option<BuildScope> {
        let TableState::Built(segments) = &self.state else { return None };
        if self.missed_segments.is_empty() || self.is_build_requested {
            return None;
        }
        let met = &mut self.sampled_functions;
        let has_grown = |id: &SegmentId| met.as_ref().is_some_and(|met| met.outdated_segments.contains(id));
        self.missed_segments.retain(|id| !tables.is_loaded(*id) || has_grown(id));
        let missed: Vec<_> =
            segments.iter().filter(|segment| self.missed_segments.contains(&segment.id)).collect();
        let stand_alone = missed.iter().all(|segment| segment.is_self_contained);
        let mut functions = |id| {
            let met = met.as_mut()?;
            met.outdated_segments.remove(&id);
            Some(met.functions.get(&id).into_iter().flatten().copied().collect())
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

    /// Reserves an ID for each segment, and loads its table if there is room. Walks have the others loaded when they miss them.
    fn install(&mut self, built: &BuiltTable, arena: &mut Arena, tables: &mut UnwindTables) {
        self.debug_file = built.debug_file.clone();
        self.outline = built.outline.clone();
        let TableState::Building { segments, .. } = &mut self.state else { return };
        segments.extend(built.segments.iter().map_while(|packed| {
            let id = tables.reserve()?;
            // The kernel may have memory when a walk misses the table.
            let _ = tables.load_if_room(arena, id, packed);
            let part = TextRange::from(packed);
            let stands_alone = !built.from_machine_code.iter().any(|code| part.overlaps(code));
            Some(TableSegment { range: part, is_self_contained: stands_alone, id })
        }));
        if !built.unbuilt.is_empty() {
            self.sampled_functions = Some(SampledFunctions::default());
        }
        let unbuilt = built.unbuilt.iter();
        segments.extend(unbuilt.map_while(|part| {
            Some(TableSegment { range: *part, is_self_contained: true, id: tables.reserve()? })
        }));
        segments.sort_unstable_by_key(|segment| segment.range.file_offset);
    }

    /// Loads tables that walks have missed, and evicts others for them. What finds no room stays missed.
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
    fn a_file_that_did_not_fit_is_new_once_though_it_is_forgotten_and_met_again() {
        let mut cut = IncompleteFiles::default();
        let file = |size_bytes| (b"/usr/bin/node".to_vec(), size_bytes);
        assert!(cut.add(file(1), 100));
        assert!(!cut.add(file(1), 100));
        assert!(cut.add(file(2), 100), "another version of it");
        assert_eq!(cut.count, 2);
        assert!(cut.would_not_fit(&file(1), || 199) && !cut.would_not_fit(&file(1), || 200));
        assert!(!cut.would_not_fit(&file(3), || 0), "it was not tried");
        (0..2 * IncompleteFiles::KNOWN_MAX as u64).for_each(|size_bytes| _ = cut.add(file(size_bytes), 100));
        assert!(cut.known.len() <= IncompleteFiles::KNOWN_MAX);
    }
}
