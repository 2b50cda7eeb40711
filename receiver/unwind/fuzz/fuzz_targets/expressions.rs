//! Arbitrary bytes as an expression, for the CFA and for each register that matters.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_unwind_fuzz::check_expression;

fuzz_target!(|data: &[u8]| check_expression(data));
