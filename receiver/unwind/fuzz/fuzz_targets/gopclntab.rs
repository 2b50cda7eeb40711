//! Any bytes as the table of a Go program.
//!
//! `cargo +nightly fuzz run gopclntab corpus/gopclntab seeds/gopclntab`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_unwind_fuzz::check_sections;

fuzz_target!(|data: &[u8]| check_sections(&[(".gopclntab", data)]));
