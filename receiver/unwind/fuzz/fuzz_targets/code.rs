//! Arbitrary bytes as machine code.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_unwind_fuzz::check_code;

fuzz_target!(|code: &[u8]| check_code(code));
