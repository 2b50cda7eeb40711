//! The segments of a file's table, and the ranges of processes that name them.

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{Range, SegmentId};

use super::build::Part;

/// A piece of a file that has a table of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) part: Part,
    /// Whether its table can be built without the rest of the file.
    pub(super) stands_alone: bool,
    pub(super) id: SegmentId,
}

/// The segment at a place.
pub(super) fn segment_at(segments: &[Segment], at: FileOffset) -> Option<&Segment> {
    segments.iter().find(|segment| segment.part.contains(at))
}

/// Splits a range at the borders of segments. Parts that no segment covers have no table.
pub(super) fn push_parts(ranges: &mut Vec<Range>, whole: Range, segments: &[Segment]) {
    let mut rest = whole;
    for segment in segments {
        let end = rest.file_offset.0 + rest.bytes;
        let part = segment.part;
        let (from, to) = (rest.file_offset.0.max(part.file_offset.0), end.min(part.end().0));
        if rest.bytes == 0 || from >= to {
            continue;
        }
        let before = from - rest.file_offset.0;
        if before > 0 {
            ranges.push(Range { bytes: before, ..rest });
            rest = advanced(rest, before);
        }
        ranges.push(Range { bytes: to - from, segment: Some(segment.id), ..rest });
        rest = advanced(rest, to - from);
    }
    if rest.bytes > 0 {
        ranges.push(rest);
    }
}

fn advanced(range: Range, bytes: u64) -> Range {
    Range {
        start: Avma(range.start.0 + bytes),
        bytes: range.bytes - bytes,
        file_offset: FileOffset(range.file_offset.0 + bytes),
        ..range
    }
}
