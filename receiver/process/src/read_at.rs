//! Reads at arbitrary offsets.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A file, or bytes in its place.
pub trait ReadAt {
    /// Reads bytes at `offset` into `bytes`, and returns how many were read.
    ///
    /// # Errors
    /// Whatever the file system returns.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads at `offset` until `bytes` is full or the file ends, and returns the number of bytes read.
    ///
    /// # Errors
    /// Any I/O error, except interruptions.
    fn read_up_to(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.read_at(&mut bytes[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Fills `bytes` with the data at `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends earlier, or any I/O error.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_up_to(bytes, offset)? {
            read if read == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl ReadAt for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, offset)
    }
}

impl ReadAt for &dyn ReadAt {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(bytes, offset)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let read = rest.len().min(bytes.len());
        bytes[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte at a time, and is interrupted before each.
    struct Halting(std::cell::Cell<bool>);

    impl ReadAt for Halting {
        fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
            match self.0.replace(!self.0.get()) {
                true => Err(io::ErrorKind::Interrupted.into()),
                false => (&[1, 2, 3][..]).read_at(&mut bytes[..1], offset),
            }
        }
    }

    #[test]
    fn what_comes_in_pieces_is_put_together() {
        let file = Halting(true.into());
        let mut bytes = [0; 4];
        assert_eq!(file.read_up_to(&mut bytes, 1).unwrap(), 2);
        assert_eq!(bytes, [2, 3, 0, 0]);
        assert_eq!(file.read_exact_at(&mut bytes, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        file.read_exact_at(&mut bytes[..3], 0).unwrap();
        assert_eq!(bytes, [1, 2, 3, 0]);
    }

    #[test]
    fn nothing_is_beyond_the_end() {
        for offset in [3, u64::MAX] {
            assert_eq!((&[1, 2, 3][..]).read_up_to(&mut [0; 8], offset).unwrap(), 0);
        }
    }
}
