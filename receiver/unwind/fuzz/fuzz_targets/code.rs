//! Any bytes as machine code: what is made of it keeps the table's invariants, and so does what it corrects.
//!
//! `cargo +nightly fuzz run code`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_unwind::Entry;
use sidewinder_unwind::validate::{Trust, unwind_table_trusting};

/// An executable of one segment: a header, a program header, and the code.
fn elf(code: &[u8]) -> Vec<u8> {
    const HEADERS: u64 = 64 + 56;
    let half = |value: u16| value.to_le_bytes().to_vec();
    let long = |value: u32| value.to_le_bytes().to_vec();
    let word = |value: u64| value.to_le_bytes().to_vec();
    let length = code.len() as u64;
    [
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(),
        half(2),
        half(62),
        long(1),
        word(0),
        word(64),
        word(0),
        long(0),
        half(64),
        half(56),
        half(1),
        half(64),
        half(0),
        half(0),
        long(1),
        long(5),
        word(HEADERS),
        word(0x1000),
        word(0x1000),
        word(length),
        word(length),
        word(0x1000),
        code.to_vec(),
    ]
    .concat()
}

fuzz_target!(|code: &[u8]| {
    let file = elf(code);
    let Ok(file) = object::File::parse(&*file) else { return };
    let Ok(table) = unwind_table_trusting(&file, Trust::Code) else { return };
    let mut last = None;
    for row in table.rows() {
        assert!(last.is_none_or(|(start, entry)| start < row.start && entry != row.entry));
        last = Some((row.start, row.entry));
    }
    assert!(last.is_none_or(|(_, entry)| matches!(entry, Entry::End(_))));
});
