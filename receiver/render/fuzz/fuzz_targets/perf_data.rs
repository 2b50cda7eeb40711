//! Any bytes as `perf.data`: refused, or a profile whose every index is valid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_render::{NoNames, read_bytes};

fuzz_target!(|content: &[u8]| {
    let bytes = [b"PERFILE2", content].concat();
    let Ok(profile) = read_bytes("", &bytes, None, &mut NoNames) else { return };
    for sample in &profile.samples {
        assert!((sample.thread.0 as usize) < profile.threads.len());
        for frame in &profile.stacks[sample.stack.0 as usize] {
            let frame = &profile.frames[frame.0 as usize];
            assert!(frame.binary.is_none_or(|binary| (binary.0 as usize) < profile.binaries.len()));
        }
    }
});
