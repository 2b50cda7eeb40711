//! Arbitrary bytes as a perf map.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_symbolize::JitMapFormat;
use sidewinder_symbolize_fuzz::read_map;

fuzz_target!(|data: &[u8]| read_map(data, JitMapFormat::PerfMap));
