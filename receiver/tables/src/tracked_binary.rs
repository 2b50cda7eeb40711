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
use sidewinder_debug_files::DebugFile;
use sidewinder_process::{FileId, OpenedFile, Pid};
use sidewinder_unwind::FileOutline;

use crate::built_table::{BuiltTable, SegmentRequest, TextRange};
use crate::incomplete_files::{FileKey, IncompleteTable};
use crate::saved_tables::SavedTableName;
use crate::segments::{TableSegment, segment_at};
use crate::table_builder::{BuildRequest, BuildScope};

#[derive(Debug)]
pub(crate) struct TrackedBinary {
    pub(crate) path: Vec<u8>,
    pub(crate) content: OpenedFile,
    pub(crate) packing: Packing,
    pub(crate) debug_file: DebugFile,
    /// The name under which its table is saved, if it is.
    pub(crate) saved_as: Option<SavedTableName>,
    /// From the first build.
    pub(crate) outline: Option<Arc<FileOutline>>,
    pub(crate) state: TableState,
    /// Processes that map it.
    pub(crate) users: BTreeSet<Pid>,
    /// When a process last started or stopped mapping it.
    pub(crate) used_at: Instant,
    /// Whether a build of it is in progress.
    pub(crate) is_build_requested: bool,
    /// Segments that walks have missed.
    pub(crate) missed_segments: BTreeSet<SegmentId>,
    /// The functions that walks have encountered, if the file is built function by function (see [`BuiltTable::unbuilt`]).
    pub(crate) sampled_functions: Option<SampledFunctions>,
    /// What could not be read of it, if its table is incomplete or missing for that reason.
    pub(crate) unread: Option<Unread>,
}

/// A piece of a file that could not be read for lack of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    pub(crate) piece_bytes: u64,
    /// The memory that was available for the build.
    pub(crate) budget_bytes: u64,
}

/// The functions that walks have encountered in a file that is built function by function, by segment. Its tables cover no
/// others.
#[derive(Default, Debug)]
pub(crate) struct SampledFunctions {
    /// A file offset within each function.
    functions: BTreeMap<SegmentId, BTreeSet<FileOffset>>,
    /// Segments whose tables are missing some of these functions.
    outdated_segments: BTreeSet<SegmentId>,
    /// Segments that have no table of all their functions: when they were last built, there was no room for it.
    left_out: BTreeSet<SegmentId>,
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
pub(crate) enum TableState {
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
    pub(crate) fn segments(&self) -> &[TableSegment] {
        match self {
            Self::Building { segments, .. } | Self::Built(segments) => segments,
            Self::Postponed { .. } | Self::NoTable => &[],
        }
    }

    /// Whether no further segments will be added.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Built(_) | Self::NoTable)
    }
}

impl TrackedBinary {
    pub(crate) fn key(&self) -> FileKey {
        (self.path.clone(), self.content.size_bytes())
    }

    pub(crate) fn build_request(&self, file: FileId, scope: BuildScope) -> BuildRequest {
        let (content, debug_file) = (self.content.clone(), self.debug_file.clone());
        let saved_as = self.saved_as.clone();
        BuildRequest { file, content, packing: self.packing, debug_file, saved_as, scope }
    }

    pub(crate) fn record_miss(&mut self, at: FileOffset) {
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
    pub(crate) fn begin_build(&mut self) -> BuildScope {
        let (sender, wanted) = mpsc::channel();
        self.state = TableState::Building { segments: Vec::new(), wanted: sender };
        self.is_build_requested = true;
        BuildScope::WholeFile { wanted }
    }

    /// Begins to build the whole file if that was postponed until now.
    pub(crate) fn postponed_scope(&mut self) -> Option<BuildScope> {
        let TableState::Postponed { missed: Some(at) } = self.state else { return None };
        let scope = self.begin_build();
        self.record_miss(at);
        Some(scope)
    }

    pub(crate) fn users(&self) -> Vec<Pid> {
        self.users.iter().copied().collect()
    }

    /// What to build again because walks have missed it, unless a build of the file is in progress. `room_bytes` are left for
    /// tables: where they don't suffice for the whole segments, only the functions that walks have encountered are built.
    pub(crate) fn rebuild_scope(&mut self, tables: &UnwindTables, room_bytes: u64) -> Option<BuildScope> {
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
                sampled.left_out.remove(&id);
                return None;
            }
            sampled.left_out.insert(id);
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
    pub(crate) fn install(&mut self, built: &BuiltTable, arena: &mut Arena, tables: &mut UnwindTables) {
        self.debug_file = built.debug_file.clone();
        self.outline = built.outline.clone();
        let TableState::Building { segments, .. } = &mut self.state else { return };
        segments.extend(built.segments.iter().map_while(|packed| {
            let id = tables.reserve()?;
            // A failed load is retried when a walk misses the table: the kernel may have memory then.
            let _ = tables.load_if_room(arena, id, packed);
            let range = TextRange::from(packed);
            Some(TableSegment { range, is_self_contained: built.is_self_contained(range), id })
        }));
        let unbuilt = built.unbuilt.iter().map_while(|range| {
            Some(TableSegment { range: *range, is_self_contained: true, id: tables.reserve()? })
        });
        let unbuilt: Vec<_> = unbuilt.collect();
        if !unbuilt.is_empty() {
            let sampled = self.sampled_functions.get_or_insert_default();
            sampled.left_out.extend(unbuilt.iter().map(|segment| segment.id));
        }
        segments.extend(unbuilt);
        segments.sort_unstable_by_key(|segment| segment.range.file_offset);
    }

    /// The code that has no table of all its functions, because there was no room for it.
    pub(crate) fn left_out_code_bytes(&self) -> u64 {
        let Some(sampled) = &self.sampled_functions else { return 0 };
        let segments = self.state.segments().iter().filter(|segment| sampled.left_out.contains(&segment.id));
        segments.map(|segment| segment.range.text_bytes).sum()
    }

    /// `None`: the table is whole, or will be.
    pub(crate) fn incomplete_table(&self) -> Option<IncompleteTable<&[u8]>> {
        let left_out_code_bytes = self.left_out_code_bytes();
        let is_whole = left_out_code_bytes == 0 && self.unread.is_none();
        (!is_whole).then(|| IncompleteTable {
            path: &*self.path,
            code_bytes: self.state.segments().iter().map(|segment| segment.range.text_bytes).sum(),
            left_out_code_bytes,
            unread_bytes: self.unread.map(|unread| unread.piece_bytes),
        })
    }

    /// Loads tables that walks have missed, and evicts others to make room. Tables that don't fit remain missed.
    pub(crate) fn reinstall(&mut self, built: &BuiltTable, arena: &mut Arena, tables: &mut UnwindTables) {
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
