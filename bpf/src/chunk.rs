//! BPF array maps that the programs and the receiver share: the arena's chunks.
//!
//! The opener's thread creates them for the arena.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{MapHandle, MapType};

use crate::intf;

/// The size of a chunk.
pub(crate) const CHUNK_BYTES: u32 = intf::SW_CHUNK_BYTES;

/// Creates the map of one chunk. Requires `CAP_BPF`.
pub(crate) fn create_chunk() -> io::Result<OwnedFd> {
    create_array("sw_chunk", CHUNK_BYTES)
}

/// Whether this thread may create maps of the size of a chunk.
#[must_use]
pub fn can_create_maps() -> bool {
    create_array("sw_probe", CHUNK_BYTES).is_ok()
}

/// Creates an array of one value that can be mapped into memory.
pub(crate) fn create_array(name: &str, value_bytes: u32) -> io::Result<OwnedFd> {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some(name), 4, value_bytes, 1, &options);
    map.map_err(io::Error::other)?.as_fd().try_clone_to_owned()
}
