//! Access to files that are only partly kept in memory.

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
