//! How files are read.

use object::{ReadCache, ReadCacheOps, ReadRef};

/// A file that can be looked at without keeping what was seen.
///
/// [`ReadRef`] hands out bytes that live as long as the file does, which is right for unwind information and wasteful
/// for names: the largest libraries have tens of MiB of them, of which a few count.
pub trait ReadFile<'data>: ReadRef<'data> {
    /// Fills a buffer with the bytes from an offset on; `None` where the file has fewer or can't be read.
    fn read_into(self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        let bytes = self.read_bytes_at(offset, buffer.len() as u64).ok()?;
        buffer.copy_from_slice(bytes);
        Some(())
    }
}

/// Nothing is kept that isn't there already.
impl<'data> ReadFile<'data> for &'data [u8] {}

/// Everything is kept: `object`'s cache knows no other way.
impl<'data, R: ReadCacheOps> ReadFile<'data> for &'data ReadCache<R> {}
