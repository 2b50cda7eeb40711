//! Access to files that are only partly kept in memory.

use std::ops::Range;

use object::{ReadCache, ReadCacheOps, ReadRef};

use crate::memory::Memory;

/// A file that can be read without keeping what was read.
///
/// [`ReadRef`] returns bytes that live as long as the file, which is right for unwind information and wasteful for
/// names: the largest libraries have tens of MiB of names, of which a few matter.
pub trait ReadFile<'data>: ReadRef<'data> {
    /// Fills a buffer with the bytes from an offset; `None` where the file has fewer or can't be read.
    fn read_into(self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        let bytes = self.read_bytes_at(offset, buffer.len() as u64).ok()?;
        buffer.copy_from_slice(bytes);
        Some(())
    }

    /// The memory for what is made of the file's content.
    fn memory(self) -> Memory<'data> {
        Memory::UNSHARED
    }
}

/// The bytes are in memory already, so nothing more is kept.
impl<'data> ReadFile<'data> for &'data [u8] {}

/// Everything that is read is kept: `object`'s cache has no other way.
impl<'data, R: ReadCacheOps> ReadFile<'data> for &'data ReadCache<R> {}

/// A file in memory, such as one inside another, with a limit for what is made of its content.
#[derive(Clone, Copy, Debug)]
pub struct LimitedFile<'data> {
    bytes: &'data [u8],
    memory: Memory<'data>,
}

impl<'data> LimitedFile<'data> {
    /// A file with this content.
    #[must_use]
    pub fn new(bytes: &'data [u8], memory: Memory<'data>) -> Self {
        Self { bytes, memory }
    }
}

impl<'data> ReadRef<'data> for LimitedFile<'data> {
    fn len(self) -> Result<u64, ()> {
        ReadRef::len(self.bytes)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.bytes.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.bytes.read_bytes_at_until(range, delimiter)
    }
}

impl<'data> ReadFile<'data> for LimitedFile<'data> {
    fn memory(self) -> Memory<'data> {
        self.memory
    }
}
