//! Any bytes as `/proc/PID/maps`: read to their end, into a set that keeps its invariants.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_process::{MappingMemory, MappingSet, read_executable_mappings};

/// A mapping takes at least its size, and a set no more than it leaves.
const MEMORY_BYTES: usize = 2 * MOST_MAPPINGS * size_of::<sidewinder_process::ExecutableMapping>();
const MOST_MAPPINGS: usize = 64;

fuzz_target!(|maps: &[u8]| {
    let mut set = MappingSet::new(MappingMemory::new(MEMORY_BYTES));
    let summary = read_executable_mappings(maps, |mapping| set.insert(mapping)).expect("memory can be read");
    assert!(summary.malformed + summary.overlong <= summary.lines);
    assert!(set.len() <= MOST_MAPPINGS);
    let mut end = None;
    for mapping in set.iter() {
        assert!(!mapping.range.is_empty());
        assert!(end <= Some(mapping.range.start));
        assert_eq!(set.find(mapping.range.start), Some(mapping));
        end = Some(mapping.range.end);
    }
});
