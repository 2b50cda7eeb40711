//! Arbitrary bytes as `.gnu_debugdata`.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_unwind_fuzz::check_sections;

fuzz_target!(|data: &[u8]| check_sections(&[(".gnu_debugdata", data)]));
