//! BPF array maps, mapped into our memory, which programs access concurrently.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};

/// The values of a `BPF_F_MMAPABLE` array map.
///
/// Words that both sides access are available only as atomics; whole blocks are written before they are published. An
/// index or offset outside the array is a bug in this crate and panics.
#[derive(Debug)]
pub(crate) struct MappedArray {
    memory: MmapRaw,
    stride_bytes: usize,
    entries: usize,
}

impl MappedArray {
    /// Maps `entries` values of `value_bytes` each. The kernel places values at multiples of 8 bytes.
    pub(crate) fn new(map: BorrowedFd<'_>, value_bytes: usize, entries: usize) -> io::Result<Self> {
        let stride_bytes = value_bytes.next_multiple_of(8);
        let bytes = (stride_bytes * entries).next_multiple_of(rustix::param::page_size());
        let memory = MmapOptions::new().len(bytes).map_raw(map.as_raw_fd())?;
        Ok(Self { memory, stride_bytes, entries })
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The 8-byte word at `offset` in the value at `index`.
    pub(crate) fn atomic_u64(&self, index: usize, offset: usize) -> &AtomicU64 {
        let at = self.byte_offset(index, offset, 8);
        // SAFETY: `place` checked that 8 bytes are there, on a multiple of 8, and the mapping lives as long as self.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().wrapping_add(at).cast()) }
    }

    /// The 4-byte word at `offset` in the value at `index`.
    pub(crate) fn atomic_u32(&self, index: usize, offset: usize) -> &AtomicU32 {
        let at = self.byte_offset(index, offset, 4);
        // SAFETY: `place` checked that 4 bytes are there, on a multiple of 4, and the mapping lives as long as self.
        unsafe { AtomicU32::from_ptr(self.memory.as_mut_ptr().wrapping_add(at).cast()) }
    }

    /// Copies `bytes` to `offset` in the value at `index`, which must not be published to programs yet.
    pub(crate) fn write(&self, index: usize, offset: usize, bytes: &[u8]) {
        let at = self.byte_offset(index, offset, bytes.len().max(1));
        // SAFETY: `place` checked that the bytes fit into the mapping; the source is ours and can't overlap it. The
        // block is unpublished, so no program reads it now.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.memory.as_mut_ptr().wrapping_add(at),
                bytes.len(),
            );
        }
    }

    /// Bytes that nobody writes while they are borrowed: [`write`](Self::write) is only called for unpublished blocks,
    /// and the programs only read published ones.
    pub(crate) fn bytes(&self, index: usize, offset: usize, bytes: usize) -> &[u8] {
        let at = self.byte_offset(index, offset, bytes);
        // SAFETY: `place` checked that the bytes are in the mapping, which lives as long as self; nobody writes to them.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().wrapping_add(at), bytes) }
    }

    fn byte_offset(&self, index: usize, offset: usize, bytes: usize) -> usize {
        assert!(index < self.entries && offset + bytes <= self.stride_bytes, "outside of a mapped array");
        assert!(bytes > 8 || !bytes.is_power_of_two() || offset.is_multiple_of(bytes), "unaligned word");
        index * self.stride_bytes + offset
    }
}
