//! Memory that is read in larger pieces than it is asked for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;

/// A chunk is aligned, so it lies in one page.
const CHUNK_BYTES: usize = 2048;
/// Chunks that are kept. What needs more is not what it should be.
const CHUNKS_MAX: usize = 2048;

/// Memory that is read in aligned chunks, each once: a read costs about as much for a chunk as for a word of it, and what a
/// virtual machine allocates together lies together.
pub(super) struct Chunks<'m, M: ForeignMemory> {
    memory: &'m M,
    chunks: RefCell<HashMap<u64, Box<[u8; CHUNK_BYTES]>>>,
}

impl<'m, M: ForeignMemory> Chunks<'m, M> {
    pub(super) fn new(memory: &'m M) -> Self {
        Self { memory, chunks: RefCell::default() }
    }
}

impl<M: ForeignMemory> ForeignMemory for Chunks<'_, M> {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let mut chunks = self.chunks.borrow_mut();
        let (mut at, mut to) = (at.0, to);
        while !to.is_empty() {
            let offset = (at % CHUNK_BYTES as u64) as usize;
            let start = at - offset as u64;
            if !chunks.contains_key(&start) {
                if chunks.len() >= CHUNKS_MAX {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "objects of HotSpot are too large",
                    ));
                }
                let mut chunk = Box::new([0; CHUNK_BYTES]);
                self.memory.read_exact(Avma(start), &mut chunk[..])?;
                chunks.insert(start, chunk);
            }
            let chunk = chunks.get(&start).ok_or(io::ErrorKind::NotFound)?;
            let (part, rest) = to.split_at_mut(to.len().min(CHUNK_BYTES - offset));
            part.copy_from_slice(&chunk[offset..][..part.len()]);
            at = at.checked_add(part.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
            to = rest;
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
}
