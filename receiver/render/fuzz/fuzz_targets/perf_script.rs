//! Any text after a line of `perf script`: refused, or a profile whose every index is valid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_render::{NoNames, read_bytes};

fuzz_target!(|text: &[u8]| {
    let bytes = [b"a 1 1.5: 2 e:\n", text].concat();
    let Ok(profile) = read_bytes("", &bytes, None, &mut NoNames) else { return };
    for sample in &profile.samples {
        assert!((sample.thread.0 as usize) < profile.threads.len());
        for frame in &profile.stacks[sample.stack.0 as usize] {
            assert!((frame.0 as usize) < profile.frames.len());
        }
    }
});
