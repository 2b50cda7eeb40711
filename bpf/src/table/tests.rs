use sidewinder_unwind_table::Rule;

use super::*;

#[test]
fn only_a_gap_too_small_for_an_aligned_function_is_padding() {
    let rows = |gap: u64, next: u64| {
        let row = |start, entry| UnwindRow { start: Svma(start), entry };
        let (leaf, end) = (Entry::Rule(Rule::LEAF), Entry::NO_INFORMATION);
        without_padding([row(0x1000, leaf), row(gap, end), row(next, leaf)].into_iter()).count()
    };
    assert_eq!(rows(0x1021, 0x1030), 2, "padding");
    assert_eq!(rows(0x1020, 0x1030), 3, "an aligned function fits");
    assert_eq!(rows(0x1021, 0x1028), 3, "the next function isn't aligned");
    assert_eq!(rows(0x101f, 0x1030), 3, "an aligned function lies between");
    assert_eq!(rows(0x1ff1, 0x2000), 3, "the next function is on another page");
}

#[test]
fn a_segment_is_made_of_the_bytes_of_one_and_of_no_others() {
    let segment = PackedSegment::empty();
    let again = PackedSegment::from_bytes(segment.bytes.clone()).unwrap();
    assert_eq!((again.file_offset, again.text_bytes), (segment.file_offset, segment.text_bytes));
    assert_eq!((again.rows, again.rules, again.runs), (segment.rows, segment.rules, segment.runs));
    for bytes in 0..segment.bytes.len() - 2 * segment.rows {
        assert!(PackedSegment::from_bytes(segment.bytes[..bytes].to_vec()).is_none(), "{bytes}");
    }
}

#[test]
fn look_ups_in_a_changed_segment_end() {
    let whole = PackedSegment::empty().bytes;
    for at in 0..whole.len() {
        for change in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            let Some(segment) = PackedSegment::from_bytes(bytes) else { continue };
            for offset in (0..PAGE_BYTES).step_by(64) {
                // Whatever it finds.
                _ = segment.look_up(FileOffset(segment.file_offset.0.saturating_add(offset)));
            }
        }
    }
}
