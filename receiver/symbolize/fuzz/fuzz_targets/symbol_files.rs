//! Arbitrary bytes as an object file that a process has for debuggers.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_symbolize::JitSymbols;
use sidewinder_symbolize_fuzz::{ADDRESSES, ROOM_BYTES};

fuzz_target!(|data: &[u8]| {
    let mut symbols = JitSymbols::new(ROOM_BYTES);
    // Twice: the second time replaces everything by the same.
    symbols.add(data);
    symbols.add(data);
    assert!(symbols.heap_bytes() <= ROOM_BYTES);
    for address in ADDRESSES {
        let _ = symbols.lookup(address);
    }
});
