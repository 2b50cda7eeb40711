//! Arbitrary bytes as call frame information, in both kinds of sections.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_unwind_fuzz::check_sections;

fuzz_target!(|data: &[u8]| {
    check_sections(&[(".eh_frame", data)]);
    check_sections(&[(".debug_frame", data)]);
});
