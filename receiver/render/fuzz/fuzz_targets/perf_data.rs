//! Any bytes as `perf.data`: refused, or a profile whose every index is valid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_render::{NoNames, read_bytes};

fuzz_target!(|content: &[u8]| {
    let bytes = [b"PERFILE2", content].concat();
    let Ok(profile) = read_bytes("", &bytes, None, &mut NoNames) else { return };
    for sample in &profile.samples {
        assert!((sample.thread.0 as usize) < profile.threads.len());
        assert!((sample.stack.0 as usize) < profile.dictionary.stack_count());
    }
    for location in profile.dictionary.stacks().flatten() {
        assert!((location.0 as usize) < profile.dictionary.location_count());
        let location = profile.dictionary.location(*location);
        assert!((location.mapping.0 as usize) < profile.dictionary.mappings().len());
        let functions = profile.dictionary.functions().len();
        assert!(location.lines.iter().all(|line| (line.function.0 as usize) < functions));
    }
});
