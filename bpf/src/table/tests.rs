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
