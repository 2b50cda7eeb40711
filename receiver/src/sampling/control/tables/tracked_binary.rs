//! A file that processes execute, and the state of its unwind table.
//!
//! Owner: the sampling thread. Input: misses of walks, and tables that were built. Output: requests for builds, and tables in
//! the BPF maps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Instant;

use sidewinder_address::FileOffset;
use sidewinder_bpf::{Arena, Packing, SegmentId, UnwindTables};
use sidewinder_process::{FileId, OpenedFile, Pid};
use sidewinder_unwind::FileOutline;

use super::build::{BuiltTable, SegmentRequest, TextRange};
use super::debug_files::DebugFile;
use super::incomplete_files::FileKey;
use super::segments::{TableSegment, segment_at};
use super::table_builder::{BuildRequest, BuildScope};

#[derive(Debug)]
pub(super) struct TrackedBinary {
    pub(super) path: Vec<u8>,
    pub(super) content: OpenedFile,
    pub(super) packing: Packing,
    pub(super) debug_file: DebugFile,
    /// From the first build.
    pub(super) outline: Option<Arc<FileOutline>>,
    pub(super) state: TableState,
    /// Processes that map it.
    pub(super) users: BTreeSet<Pid>,
    /// When a process last started or stopped mapping it.
    pub(super) used_at: Instant,
    /// Whether a build of it is in progress.
    pub(super) is_build_requested: bool,
    /// Segments that walks have missed.
    pub(super) missed_segments: BTreeSet<SegmentId>,
    /// The functions that walks have encountered, if the file is built function by function (see [`BuiltTable::unbuilt`]).
    pub(super) sampled_functions: Option<SampledFunctions>,
}

/// The functions that walks have encountered in a file that is built function by function, by segment. Its tables cover no
/// others.
#[derive(Default, Debug)]
pub(super) struct SampledFunctions {
    /// A file offset within each function.
    functions: BTreeMap<SegmentId, BTreeSet<FileOffset>>,
    /// Segments whose tables are missing some of these functions.
    outdated_segments: BTreeSet<SegmentId>,
}

/// No table of whole functions takes more than its text, divided by this. Most take a quarter of that.
const TEXT_BYTES_PER_TABLE_BYTE: u64 = 8;

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
pub(super) enum TableState {
    /// Nothing is built before a walk misses it.
    Postponed { missed: Option<FileOffset> },
    /// The segments so far, in order, and the channel for the file offsets that walks miss.
    Building { segments: Vec<TableSegment>, wanted: Sender<FileOffset> },
    /// All segments, in order.
    Built(Vec<TableSegment>),
    /// There is no table: walks use frame pointers.
    NoTable,
}

impl TableState {
    pub(super) fn segments(&self) -> &[TableSegment] {
        match self {
            Self::Building { segments, .. } | Self::Built(segments) => segments,
            Self::Postponed { .. } | Self::NoTable => &[],
        }
    }

    /// Whether no further segments will be added.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Built(_) | Self::NoTable)
    }
}

impl TrackedBinary {
    pub(super) fn key(&self) -> FileKey {
        (self.path.clone(), self.content.size_bytes())
    }

    pub(super) fn build_request(&self, file: FileId, scope: BuildScope) -> BuildRequest {
        let (content, debug_file) = (self.content.clone(), self.debug_file.clone());
        BuildRequest { file, content, packing: self.packing, debug_file, scope }
    }

    pub(super) fn record_miss(&mut self, at: FileOffset) {
        if let Some(segment) = segment_at(self.state.segments(), at) {
            self.missed_segments.insert(segment.id);
            if let Some(sampled) = &mut self.sampled_functions {
                sampled.add(segment.id, at);
            }
            return;
        }
        match &mut self.state {
            TableState::Postponed { missed } => *missed = Some(at),
            // If the builder has passed this offset, its segment is already delivered.
            TableState::Building { wanted, .. } => drop(wanted.send(at)),
            TableState::Built(_) | TableState::NoTable => {}
        }
    }

    /// Begins to build the whole file.
    pub(super) fn begin_build(&mut self) -> BuildScope {
        let (sender, wanted) = mpsc::channel();
        self.state = TableState::Building { segments: Vec::new(), wanted: sender };
        self.is_build_requested = true;
        BuildScope::WholeFile { wanted }
    }

    /// Begins to build the whole file if that was postponed until now.
    pub(super) fn postponed_scope(&mut self) -> Option<BuildScope> {
        let TableState::Postponed { missed: Some(at) } = self.state else { return None };
        let scope = self.begin_build();
        self.record_miss(at);
        Some(scope)
    }

    pub(super) fn users(&self) -> Vec<Pid> {
        self.users.iter().copied().collect()
    }

    /// What to build again because walks have missed it, unless a build of the file is in progress. `room_bytes` are left for
    /// tables: where they don't suffice for the whole segments, only the functions that walks have encountered are built.
    pub(super) fn rebuild_scope(&mut self, tables: &UnwindTables, room_bytes: u64) -> Option<BuildScope> {
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
        let text_bytes: u64 = missed.iter().map(|segment| segment.range.text_bytes).sum();
        let is_room = text_bytes / TEXT_BYTES_PER_TABLE_BYTE < room_bytes;
        let mut functions = |id| {
            let sampled = sampled.as_mut()?;
            sampled.outdated_segments.remove(&id);
            if is_room {
                return None;
            }
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
    pub(super) fn install(&mut self, built: &BuiltTable, arena: &mut Arena, tables: &mut UnwindTables) {
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
            self.sampled_functions.get_or_insert_default();
        }
        let unbuilt = built.unbuilt.iter();
        segments.extend(unbuilt.map_while(|range| {
            Some(TableSegment { range: *range, is_self_contained: true, id: tables.reserve()? })
        }));
        segments.sort_unstable_by_key(|segment| segment.range.file_offset);
    }

    /// Loads tables that walks have missed, and evicts others to make room. Tables that don't fit remain missed.
    pub(super) fn reinstall(&mut self, built: &BuiltTable, arena: &mut Arena, tables: &mut UnwindTables) {
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
