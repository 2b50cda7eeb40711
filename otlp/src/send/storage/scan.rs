//! Finds records in bytes that may be damaged anywhere.

use super::record::{RecordHeader, RecordState};

/// What is at an offset of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SegmentItem {
    /// A record, whose report may be damaged or truncated.
    Record { head: RecordHeader, mark: RecordState, is_intact: bool },
    /// Bytes without a record.
    Gap { length: usize },
}

/// Everything in a segment, with offsets.
pub(super) fn scan(segment: &[u8]) -> Vec<(u64, SegmentItem)> {
    let mut found = Vec::new();
    let mut offset = 0;
    while let Some(rest) = segment.get(offset..).filter(|rest| !rest.is_empty()) {
        let (length, what) = match RecordHeader::decode(rest) {
            Some((mark, head)) => record(rest, mark, head),
            None => {
                let length = (1..rest.len())
                    .find(|at| rest.get(*at..).and_then(RecordHeader::decode).is_some())
                    .unwrap_or(rest.len());
                (length, SegmentItem::Gap { length })
            }
        };
        found.push((offset as u64, what));
        offset += length;
    }
    found
}

fn record(rest: &[u8], mark: RecordState, head: RecordHeader) -> (usize, SegmentItem) {
    let length = usize::try_from(head.record_bytes()).unwrap_or(usize::MAX).min(rest.len());
    let report = rest.get(RecordHeader::BYTES..length).unwrap_or_default();
    (length, SegmentItem::Record { head, mark, is_intact: head.matches(report) })
}
