//! The content of a mapped file, opened and confirmed.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::file_status::{FileMetadata, FileStatus};
use crate::read_at::ReadAt;

/// How sure it is that an opened file is the mapped one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Confirmation {
    /// Device and inode are those of the mapping, or the kernel's own link from the mapping was followed.
    Exact,
    /// The build ID is the one that the kernel read from the mapped file.
    BuildId,
    /// Only the inode can be compared: the file system (overlay before Linux 6.8, btrfs) reports different
    /// devices for mappings and for files.
    InodeOnly,
}

/// The content of a mapped file, which outlives the process and the file's name.
#[derive(Clone, Debug)]
pub struct OpenedFile {
    content: OpenedContent,
    confirmation: Confirmation,
}

#[derive(Clone, Debug)]
enum OpenedContent {
    File { file: Arc<File>, status: FileStatus, owner: u32 },
    Memory(Arc<[u8]>),
}

impl OpenedFile {
    /// A file that was opened for reading; `looked` is what the kernel said of it before.
    pub(crate) fn new(file: File, looked: &FileMetadata, confirmation: Confirmation) -> Self {
        let content =
            OpenedContent::File { file: Arc::new(file), status: looked.status, owner: looked.ownership.user };
        Self { content, confirmation }
    }

    /// Content that is in memory already: the vDSO.
    pub(crate) fn from_memory(image: Arc<[u8]>) -> Self {
        Self { content: OpenedContent::Memory(image), confirmation: Confirmation::Exact }
    }

    /// How sure it is that this is the mapped file.
    #[must_use]
    pub const fn confirmation(&self) -> Confirmation {
        self.confirmation
    }

    /// Bytes that it had when it was opened. It may shrink at any time: reads are short then.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match &self.content {
            OpenedContent::File { status, .. } => status.size_bytes,
            OpenedContent::Memory(image) => image.len() as u64,
        }
    }

    /// The descriptor behind it; `None` for the vDSO.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<File>> {
        match &self.content {
            OpenedContent::File { file, .. } => Some(file),
            OpenedContent::Memory(_) => None,
        }
    }

    /// The user that owned it when it was opened, as our own user namespace has it; `None` for the vDSO.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        match &self.content {
            OpenedContent::File { owner, .. } => Some(*owner),
            OpenedContent::Memory(_) => None,
        }
    }

    /// What told it from other files when it was opened; `None` for the vDSO.
    pub(crate) fn status(&self) -> Option<FileStatus> {
        match &self.content {
            OpenedContent::File { status, .. } => Some(*status),
            OpenedContent::Memory(_) => None,
        }
    }

    /// Whether nobody has written into the file since.
    pub(crate) fn is_unchanged(&self) -> bool {
        match &self.content {
            OpenedContent::File { file, status, .. } => {
                FileMetadata::from_fd(file.as_fd()).is_ok_and(|now| now.status == *status)
            }
            OpenedContent::Memory(_) => true,
        }
    }
}

impl ReadAt for OpenedFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.content {
            OpenedContent::File { file, .. } => ReadAt::read_at(&**file, bytes, offset),
            OpenedContent::Memory(image) => (&**image).read_at(bytes, offset),
        }
    }
}
