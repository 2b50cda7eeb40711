//! The segments of a file's table, and the ranges of processes that name them.

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{MappedRange, SegmentId};

use super::build::TextRange;

/// A piece of a file that has a table of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableSegment {
    pub(super) range: TextRange,
    /// Whether its table can be built without the rest of the file.
    pub(super) is_self_contained: bool,
    pub(super) id: SegmentId,
}

/// The segment at a place.
pub(super) fn segment_at(segments: &[TableSegment], at: FileOffset) -> Option<&TableSegment> {
    segments.iter().find(|segment| segment.range.contains(at))
}

/// Splits a range at the borders of segments. Parts that no segment covers have no table.
pub(super) fn push_segment_ranges(
    ranges: &mut Vec<MappedRange>,
    whole: MappedRange,
    segments: &[TableSegment],
) {
    let mut rest = whole;
    for segment in segments {
        let end = rest.file_offset.0 + rest.bytes;
        let part = segment.range;
        let (from, to) = (rest.file_offset.0.max(part.file_offset.0), end.min(part.end().0));
        if rest.bytes == 0 || from >= to {
            continue;
        }
        let before = from - rest.file_offset.0;
        if before > 0 {
            ranges.push(MappedRange { bytes: before, ..rest });
            rest = advance(rest, before);
        }
        ranges.push(MappedRange { bytes: to - from, segment: Some(segment.id), ..rest });
        rest = advance(rest, to - from);
    }
    if rest.bytes > 0 {
        ranges.push(rest);
    }
}

fn advance(range: MappedRange, bytes: u64) -> MappedRange {
    MappedRange {
        start: Avma(range.start.0 + bytes),
        bytes: range.bytes - bytes,
        file_offset: FileOffset(range.file_offset.0 + bytes),
        ..range
    }
}
