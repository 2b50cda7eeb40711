//! Any bytes as an ELF file: the table keeps its invariants.
//!
//! `cargo +nightly fuzz run rows`, seeded with small ELF files in `corpus/rows`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_unwind::{Entry, prove::mode_ranges, unwind_table};

fuzz_target!(|data: &[u8]| {
    let Ok(file) = object::File::parse(data) else { return };
    let Ok(table) = unwind_table(&file) else { return };
    let mut last = None;
    for row in table.rows() {
        assert!(last.is_none_or(|(start, entry)| start < row.start && entry != row.entry));
        assert_eq!(table.lookup(row.start), row.entry);
        last = Some((row.start, row.entry));
    }
    assert!(last.is_none_or(|(_, entry)| matches!(entry, Entry::End(_))));
    assert!(mode_ranges(&table).all(|range| range.start < range.end));
});
