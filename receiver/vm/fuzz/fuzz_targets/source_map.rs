//! Any bytes as a source map, and as a script that names one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_vm::source_map::{MapLocation, ScriptFile, SourceMap};

const BYTES_MAX: usize = 1 << 12;

fuzz_target!(|input: &[u8]| {
    if let Ok(map) = SourceMap::read(input, "/app/dist", BYTES_MAX) {
        for line in 0..4 {
            for column in [0, 1, 100, u32::MAX] {
                if let Some(found) = map.find(line, column) {
                    assert!(found.line > 0);
                }
            }
        }
    }
    let script =
        ScriptFile::read(input, "/app/dist/main.js", 1 << 20).expect("bytes are read without errors");
    if let Some(MapLocation::Inline { offset, bytes }) = script.map {
        assert!(offset + bytes <= input.len() as u64);
    }
});
