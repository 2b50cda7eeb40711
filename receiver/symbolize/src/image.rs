//! Access to a file's bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The bytes of an ELF file: on disk, or in memory (the vDSO has no file).
#[derive(Clone, Debug)]
pub enum Image {
    /// Read by position; may shrink or change at any time.
    File(Arc<File>),
    /// In memory already.
    Bytes(Arc<[u8]>),
}

impl From<File> for Image {
    fn from(file: File) -> Self {
        Self::File(Arc::new(file))
    }
}

impl From<Arc<File>> for Image {
    fn from(file: Arc<File>) -> Self {
        Self::File(file)
    }
}

impl From<Vec<u8>> for Image {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl Image {
    /// Length in bytes at this moment.
    pub(crate) fn len(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => {
                let mut filled = 0;
                while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                    let Some(at) = offset.checked_add(filled as u64) else { break };
                    match file.read_at(rest, at) {
                        Ok(0) => break,
                        Ok(count) => filled += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(filled)
            }
            Self::Bytes(bytes) => {
                let tail = usize::try_from(offset).ok().and_then(|start| bytes.get(start..)).unwrap_or(&[]);
                let count = tail.len().min(buffer.len());
                buffer.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
                Ok(count)
            }
        }
    }

    /// Reads exactly `buffer.len()` bytes at `offset`.
    pub(crate) fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.read_at(offset, buffer)? == buffer.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Reads the string at `offset` up to its NUL, or the first `limit` bytes of it: `(bytes, whether cut)`. Fails if
    /// the file ends before either.
    pub(crate) fn read_c_string(&self, offset: u64, limit: usize) -> io::Result<(Vec<u8>, bool)> {
        const USUAL_BYTES: usize = 128;
        let mut bytes = Vec::new();
        for attempt in [limit.min(USUAL_BYTES), limit] {
            bytes.resize(attempt, 0);
            let count = self.read_at(offset, &mut bytes)?;
            bytes.truncate(count);
            if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
                bytes.truncate(end);
                return Ok((bytes, false));
            }
            if count < attempt {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok((bytes, true))
    }
}
