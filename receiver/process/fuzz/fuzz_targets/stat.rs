//! Any bytes as `/proc/PID/stat`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_process::ProcessState;

fuzz_target!(|stat: &[u8]| {
    let _ = ProcessState::parse(stat);
});
