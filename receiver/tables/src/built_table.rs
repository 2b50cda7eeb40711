//! What builds of tables work on and deliver: ranges of a file, segments to build, and built ones.

use std::ops::Range;
use std::sync::Arc;

use sidewinder_address::{FileOffset, LoadSegment, Svma};
use sidewinder_bpf::PackedSegment;
use sidewinder_debug_files::{Companions, DebugFile};
use sidewinder_unwind::FileOutline;

/// A page-aligned range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TextRange {
    pub(crate) file_offset: FileOffset,
    pub(crate) text_bytes: u64,
}

impl From<&PackedSegment> for TextRange {
    fn from(segment: &PackedSegment) -> Self {
        Self { file_offset: segment.file_offset, text_bytes: segment.text_bytes }
    }
}

impl TextRange {
    pub(crate) fn end(self) -> FileOffset {
        FileOffset(self.file_offset.0.saturating_add(self.text_bytes))
    }

    pub(crate) fn contains(self, at: FileOffset) -> bool {
        self.file_offset <= at && at < self.end()
    }

    pub(crate) fn overlaps(self, other: &Range<FileOffset>) -> bool {
        self.file_offset < other.end && other.start < self.end()
    }

    /// The part of the range that is in a load segment, as addresses stated in the file.
    fn within(self, load: &LoadSegment) -> Option<Range<Svma>> {
        let load_end = FileOffset(load.file_offset.0.saturating_add(load.size));
        let (first, end) = (self.file_offset.max(load.file_offset), self.end().min(load_end));
        let start = load.svma_of(first)?;
        Some(start..start.checked_add(end.checked_offset_from(first)?)?)
    }
}

/// A segment to build.
#[derive(Clone, Debug)]
pub(crate) struct SegmentRequest {
    pub(crate) range: TextRange,
    /// File offsets within the functions that it is to cover; `None`: all functions.
    pub(crate) functions: Option<Vec<FileOffset>>,
}

/// The packed table of a file, or some of its segments.
#[derive(Debug)]
pub(crate) struct BuiltTable {
    pub(crate) loads: Vec<LoadSegment>,
    pub(crate) segments: Vec<PackedSegment>,
    /// Parts of a large file that are not built, because there was no room for more tables. Only the functions that walks
    /// encounter are built.
    pub(crate) unbuilt: Vec<TextRange>,
    /// Speeds up building segments again.
    pub(crate) outline: Option<Arc<FileOutline>>,
    /// The ranges of these segments whose rows come from machine code alone. Where its functions begin takes a pass over all of it.
    pub(crate) from_machine_code: Vec<Range<FileOffset>>,
    pub(crate) debug_file: DebugFile,
    /// The first amount of memory that was more than the build had left, if any. Rows are missing from the table then.
    pub(crate) over_budget_bytes: Option<u64>,
}

impl BuiltTable {
    pub(crate) fn with_loads(loads: Vec<LoadSegment>) -> Self {
        Self {
            loads,
            segments: Vec::new(),
            unbuilt: Vec::new(),
            outline: None,
            from_machine_code: Vec::new(),
            debug_file: DebugFile::Searched(Companions::default()),
            over_budget_bytes: None,
        }
    }

    /// Whether a segment can be built without the rest of the file.
    pub(crate) fn is_self_contained(&self, range: TextRange) -> bool {
        !self.from_machine_code.iter().any(|code| range.overlaps(code))
    }
}

pub(crate) fn executable_segments(loads: &[LoadSegment]) -> impl Iterator<Item = &LoadSegment> {
    loads.iter().filter(|load| load.executable)
}

pub(crate) fn split(pages: Range<FileOffset>, part_bytes: u64) -> impl Iterator<Item = TextRange> {
    let starts = (pages.start.0..pages.end.0).step_by(part_bytes as usize);
    starts
        .map(move |start| covering_range(&(FileOffset(start)..pages.end.min(FileOffset(start + part_bytes)))))
}

fn covering_range(pages: &Range<FileOffset>) -> TextRange {
    TextRange { file_offset: pages.start, text_bytes: pages.end.0.saturating_sub(pages.start.0) }
}

/// A part, the load segment that contains it, and its addresses as stated in the file.
pub(crate) fn locate_in_loads(
    part: TextRange,
    loads: &[LoadSegment],
) -> Option<(TextRange, &LoadSegment, Range<Svma>)> {
    executable_segments(loads).find_map(|load| Some((part, load, part.within(load)?)))
}

pub(crate) fn to_file_range(loads: &[LoadSegment], code: &Range<Svma>) -> Option<Range<FileOffset>> {
    let start = loads.iter().find_map(|load| load.file_offset_of(code.start))?;
    Some(start..start.checked_add(code.end.checked_offset_from(code.start)?)?)
}
