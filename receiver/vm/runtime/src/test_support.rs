//! Memory for unit tests and fuzz targets.

use std::io;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;

/// The memory at the lowest addresses; higher ones are the same again, so that many pointers lead somewhere.
#[derive(Debug)]
pub struct Bytes(pub Vec<u8>);

const PAGE_BYTES: usize = 4 << 10;

impl ForeignMemory for Bytes {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let from = usize::from(at.0 as u16);
        if from + to.len() > self.0.len().next_multiple_of(PAGE_BYTES) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Its last page ends with zeros.
        let rest = self.0.get(from..).unwrap_or_default();
        let bytes = rest.iter().copied().chain(std::iter::repeat(0));
        to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        Ok(())
    }
}
