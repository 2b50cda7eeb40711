//! Arbitrary bytes as the table of a Go program, and names, lines and inlined calls of that.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Svma;
use sidewinder_symbolize::{BinaryId, Symbolizer, SymbolizerOptions};
use sidewinder_unwind_fuzz::file_of;

fuzz_target!(|data: &[u8]| {
    let file = file_of(&[(".gopclntab", data)]);
    let options =
        SymbolizerOptions { budget_bytes: 1 << 20, lines: true, inlines: true, has_no_time_limit: true };
    let mut symbolizer = Symbolizer::new(options);
    for svma in (0..64).map(|step| 0x40_1000 + step * 7).chain([0, u64::MAX]) {
        let _ = symbolizer.name(BinaryId(1), || Ok(file.clone()), Svma(svma));
    }
    assert!(symbolizer.held_bytes() <= 1 << 20);
});
