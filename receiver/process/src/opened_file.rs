//! The content of a mapped file, opened and confirmed.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::file_status::{FileMetadata, FileStatus};
use crate::read_at::ReadAt;

/// How certain it is that an opened file is the mapped one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Confirmation {
    /// Device and inode match the mapping's, or the kernel's own link of the mapping was followed.
    Exact,
    /// The build ID is the one that the kernel read from the mapped file.
    BuildId,
    /// Only the inode can be compared: the file system (overlay before Linux 6.8, btrfs) reports different devices for
    /// mappings and for files.
    InodeOnly,
}

/// The content of a mapped file; it outlives the process and the file's name.
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
    /// A file that was opened for reading; `looked` is its metadata from before it was opened.
    pub(crate) fn new(file: File, looked: &FileMetadata, confirmation: Confirmation) -> Self {
        let content =
            OpenedContent::File { file: Arc::new(file), status: looked.status, owner: looked.ownership.user };
        Self { content, confirmation }
    }

    /// Content in memory: the vDSO.
    #[must_use]
    pub fn from_memory(image: Arc<[u8]>) -> Self {
        Self { content: OpenedContent::Memory(image), confirmation: Confirmation::Exact }
    }

    /// How certain it is that this is the mapped file.
    #[must_use]
    pub const fn confirmation(&self) -> Confirmation {
        self.confirmation
    }

    /// Its size in bytes when it was opened. It may shrink at any time: reads are then short.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match &self.content {
            OpenedContent::File { status, .. } => status.size_bytes,
            OpenedContent::Memory(image) => image.len() as u64,
        }
    }

    /// Its descriptor; `None` for the vDSO.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<File>> {
        match &self.content {
            OpenedContent::File { file, .. } => Some(file),
            OpenedContent::Memory(_) => None,
        }
    }

    /// Its owner when it was opened, as a user ID in our own user namespace; `None` for the vDSO.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        match &self.content {
            OpenedContent::File { owner, .. } => Some(*owner),
            OpenedContent::Memory(_) => None,
        }
    }

    /// The version of its content when it was opened; `None` for the vDSO.
    pub(crate) fn status(&self) -> Option<FileStatus> {
        match &self.content {
            OpenedContent::File { status, .. } => Some(*status),
            OpenedContent::Memory(_) => None,
        }
    }

    /// Whether the file is unmodified since.
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
