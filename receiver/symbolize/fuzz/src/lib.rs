//! Code shared by the fuzz targets.

use sidewinder_symbolize::{JitMap, JitMapFormat};

/// The memory limit for names.
pub const ROOM_BYTES: usize = 4096;
/// Looked up in whatever was read.
pub const ADDRESSES: [u64; 4] = [0, 0x1000, 0x7fff_ffff_f000, u64::MAX];

/// Parses arbitrary bytes as a runtime's record of its code.
///
/// # Panics
/// If more is kept than the limit allows.
pub fn read_map(data: &[u8], form: JitMapFormat) {
    let mut map = JitMap::new(data.to_vec(), form, ROOM_BYTES);
    map.refresh().expect("memory can be read");
    assert!(map.heap_bytes() <= ROOM_BYTES);
    for address in ADDRESSES {
        let _ = map.lookup(address);
    }
}
