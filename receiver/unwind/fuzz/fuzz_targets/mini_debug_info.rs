//! Any bytes as `.gnu_debugdata`.
//!
//! `cargo +nightly fuzz run mini_debug_info corpus/mini_debug_info seeds/mini_debug_info`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_unwind_fuzz::check_sections;

fuzz_target!(|data: &[u8]| check_sections(&[(".gnu_debugdata", data)]));
