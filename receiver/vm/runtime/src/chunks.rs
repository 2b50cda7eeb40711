//! Memory that is read in larger pieces than it is asked for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;

/// A chunk is aligned, so it lies in one page.
const CHUNK_BYTES: usize = 2048;
/// Longer reads are made as they are.
const LARGEST_IN_CHUNKS_BYTES: usize = 2 * CHUNK_BYTES;
/// Chunks that are kept. What needs more is not what it should be.
const CHUNKS_MAX: usize = 2048;

/// Memory that is read in aligned chunks, each once: a read costs about as much for a chunk as for a word of it, and what a
/// runtime allocates together lies together.
pub struct Chunks<'m, M: ForeignMemory> {
    memory: &'m M,
    chunks: RefCell<HashMap<u64, Box<[u8; CHUNK_BYTES]>>>,
}

impl<'m, M: ForeignMemory> Chunks<'m, M> {
    /// This memory, of which nothing has been read.
    pub fn new(memory: &'m M) -> Self {
        Self { memory, chunks: RefCell::default() }
    }

    /// The same memory, of which nothing has been read: as it is from now on.
    pub fn again(&self) -> Self {
        Self::new(self.memory)
    }

    /// The text up to its NUL, cut after `bytes_max`.
    ///
    /// # Errors
    /// If it can't be read so far.
    pub fn text(&self, at: Avma, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut next = at.0;
        while text.len() < bytes_max {
            let is_complete = self.read_some(next, |bytes| {
                let bytes = &bytes[..bytes.len().min(bytes_max - text.len())];
                let end = bytes.iter().position(|byte| *byte == 0);
                text.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
                end.is_some()
            })?;
            if is_complete {
                break;
            }
            next = at.0.checked_add(text.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
        }
        Ok(text)
    }

    /// Passes on the bytes from an address to the end of its chunk: at least one.
    fn read_some<T>(&self, at: u64, take: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        let mut chunks = self.chunks.borrow_mut();
        let offset = (at % CHUNK_BYTES as u64) as usize;
        let start = at - offset as u64;
        let is_full = chunks.len() >= CHUNKS_MAX;
        let chunk = match chunks.entry(start) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "objects are too large"));
            }
            Entry::Vacant(vacant) => {
                let mut chunk = Box::new([0; CHUNK_BYTES]);
                self.memory.read_exact(Avma(start), &mut chunk[..])?;
                vacant.insert(chunk)
            }
        };
        Ok(take(&chunk[offset..]))
    }
}

impl<M: ForeignMemory> ForeignMemory for Chunks<'_, M> {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        // A large table is read at once, and needed once.
        if to.len() > LARGEST_IN_CHUNKS_BYTES {
            return self.memory.read_exact(at, to);
        }
        let (mut at, mut to) = (at.0, to);
        while !to.is_empty() {
            let taken = self.read_some(at, |bytes| {
                let taken = to.len().min(bytes.len());
                to[..taken].copy_from_slice(&bytes[..taken]);
                taken
            })?;
            at = at.checked_add(taken as u64).ok_or(io::ErrorKind::InvalidData)?;
            to = &mut to[taken..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Each byte is the lower part of its address; counts reads.
    struct Counted(Cell<usize>);

    impl ForeignMemory for Counted {
        fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
            self.0.set(self.0.get() + 1);
            to.iter_mut().zip(0_u64..).for_each(|(byte, number)| *byte = at.0.wrapping_add(number) as u8);
            Ok(())
        }
    }

    #[test]
    fn what_lies_together_is_read_once() {
        let memory = Counted(Cell::new(0));
        let chunks = Chunks::new(&memory);
        for _ in 0..3 {
            let mut bytes = [0; 10];
            chunks.read_exact(Avma(4091), &mut bytes).unwrap();
            assert_eq!(bytes, [251, 252, 253, 254, 255, 0, 1, 2, 3, 4]);
        }
        assert_eq!(memory.0.get(), 2);
        assert!(chunks.read_exact(Avma(u64::MAX - 1), &mut [0; 10]).is_err());
    }

    #[test]
    fn a_text_ends_at_its_nul_or_where_it_is_cut() {
        let memory = Counted(Cell::new(0));
        let chunks = Chunks::new(&memory);
        let text = |at, bytes_max| chunks.text(Avma(at), bytes_max).unwrap();
        assert_eq!(text(2043, 96), [251, 252, 253, 254, 255], "up to the end of a chunk");
        assert_eq!(text(2040, 3), [248, 249, 250]);
        assert!(text(2048, 96).is_empty());
        assert_eq!(text(4090, 4), [250, 251, 252, 253]);
        assert_eq!(text(4097, 300).len(), 255);
        assert_eq!(text(1793, 512).len(), 255, "of two chunks");
        assert_eq!(memory.0.get(), 3);
        assert!(chunks.text(Avma(u64::MAX), 2).is_err());
    }
}
