//! The segments of a file's table, and the mapped ranges that refer to them.

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{MappedRange, SegmentId};

use crate::built_table::TextRange;

/// A part of a file with a table of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSegment {
    pub(crate) range: TextRange,
    /// Whether its table can be built without the rest of the file.
    pub(crate) is_self_contained: bool,
    pub(crate) id: SegmentId,
}

/// The segment that contains a file offset.
pub(crate) fn segment_at(segments: &[TableSegment], at: FileOffset) -> Option<&TableSegment> {
    segments.iter().find(|segment| segment.range.contains(at))
}

/// Splits a range at segment boundaries and appends the parts. Parts that no segment covers have no table.
pub(crate) fn push_segment_ranges(
    ranges: &mut Vec<MappedRange>,
    whole: MappedRange,
    segments: &[TableSegment],
) {
    let mut remaining = whole;
    for segment in segments {
        let end = remaining.file_offset.0 + remaining.bytes;
        let part = segment.range;
        let (from, to) = (remaining.file_offset.0.max(part.file_offset.0), end.min(part.end().0));
        if remaining.bytes == 0 || from >= to {
            continue;
        }
        let before = from - remaining.file_offset.0;
        if before > 0 {
            ranges.push(MappedRange { bytes: before, ..remaining });
            remaining = advance(remaining, before);
        }
        ranges.push(MappedRange { bytes: to - from, segment: Some(segment.id), ..remaining });
        remaining = advance(remaining, to - from);
    }
    if remaining.bytes > 0 {
        ranges.push(remaining);
    }
}

/// The range without its first `bytes` bytes.
fn advance(range: MappedRange, bytes: u64) -> MappedRange {
    MappedRange {
        start: Avma(range.start.0 + bytes),
        bytes: range.bytes - bytes,
        file_offset: FileOffset(range.file_offset.0 + bytes),
        ..range
    }
}
