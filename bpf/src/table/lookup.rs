//! Looks up rules in a segment, like `c/table.bpf.h` does in the kernel.

use sidewinder_address::FileOffset;
use sidewinder_unwind_table::Rule;
use zerocopy::FromBytes;

use super::segment::PackedSegment;
use crate::intf::{self, sw_rule, sw_run, sw_segment_header};
use crate::outcome::Outcome;

const HEADER_BYTES: usize = size_of::<sw_segment_header>();
const RULE_BYTES: usize = size_of::<sw_rule>();
const _: () = assert!(size_of::<sw_run>() == RULE_BYTES);

impl PackedSegment {
    /// The rule for a file offset, or the outcome of a walk that reaches it. `None`: the offset is outside the segment.
    #[must_use]
    pub fn look_up(&self, at: FileOffset) -> Option<Result<Rule, Outcome>> {
        look_up(&self.bytes, at)
    }
}

/// The same, for the bytes of a segment.
pub(crate) fn look_up(segment: &[u8], at: FileOffset) -> Option<Result<Rule, Outcome>> {
    Some(rule_at(segment, at)?.decode())
}

/// The rule for a file offset, as the programs read it.
fn rule_at(segment: &[u8], at: FileOffset) -> Option<sw_rule> {
    let half = |offset: usize| Some(u16::read_from_prefix(segment.get(offset..)?).ok()?.0);
    let (header, _) = sw_segment_header::read_from_prefix(segment).ok()?;
    let [rules, rows, first_run] = [header.rules, header.rows, header.first_run].map(|word| word as usize);
    let start = FileOffset(header.file_offset);
    let text = u32::try_from(at.checked_offset_from(start)?).ok().filter(|text| *text < header.text_bytes)?;

    let row_at = |offset: usize| {
        let row = half(offset)?;
        let number = usize::from(row) & (intf::SW_RULES_MAX as usize - 1);
        Some((u32::from(row) >> intf::SW_RULE_BITS, number))
    };
    let last_row = |rows: std::ops::Range<usize>, place: u32| {
        rows.step_by(2).map_while(row_at).take_while(|(at, _)| *at <= place).last()
    };
    let bucket = HEADER_BYTES + (text >> intf::SW_BUCKET_SHIFT) as usize * 2;
    let [first, end] = [half(bucket)?, half(bucket + 2)?].map(|row| rows + usize::from(row) * 2);
    let place = text % intf::SW_BUCKET_BYTES;
    let (mut number, place) = match last_row(first..end, place) {
        Some((at, number)) => (number, place - at),
        None => (row_at(first.checked_sub(2)?)?.1, intf::SW_BUCKET_BYTES - 1),
    };
    if number >= first_run {
        let run = rules + number * RULE_BYTES;
        number = last_row(run..run + RULE_BYTES, place)?.1;
    }
    let rule = rules + number * RULE_BYTES;
    Some(sw_rule::read_from_prefix(segment.get(rule..)?).ok()?.0)
}
