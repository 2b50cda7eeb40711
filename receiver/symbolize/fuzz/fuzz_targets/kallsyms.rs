//! Arbitrary bytes as the kernel's list of symbols.
//!
//! `make fuzz`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_symbolize::KernelTable;

fuzz_target!(|data: &[u8]| {
    let Ok(Some(table)) = KernelTable::parse(data) else { return };
    for address in [0, 1, 0xffff_ffff_8100_0000, u64::MAX] {
        let _ = table.lookup(Avma(address));
    }
});
