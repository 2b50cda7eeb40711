//! Any bytes as a perf map.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_symbolize::{JitForm, JitMap};

const ROOM_BYTES: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let mut map = JitMap::new(data.to_vec(), JitForm::PerfMap, ROOM_BYTES);
    map.refresh().expect("memory can be read");
    assert!(map.heap_bytes() <= ROOM_BYTES);
    for address in [0, 0x1000, 0x7fff_ffff_f000, u64::MAX] {
        let _ = map.lookup(address);
    }
});
