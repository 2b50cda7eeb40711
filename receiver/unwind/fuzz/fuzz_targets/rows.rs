//! Arbitrary bytes as an ELF file.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_unwind_fuzz::check_file;

fuzz_target!(|data: &[u8]| check_file(data));
