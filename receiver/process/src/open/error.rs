//! Why a file is not opened, or not read.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::procfs::ProcfsError;

/// Why the file behind a mapping could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The process has ended.
    #[error("the process is gone")]
    Gone,
    /// No file has the reported path any more, and the kernel provides no other way to open it.
    #[error("no file has the path any more")]
    NotFound,
    /// Another file has the path now.
    #[error("another file has the path now")]
    Mismatch,
    /// A directory, FIFO, socket or device has the path.
    #[error("not a regular file")]
    NotRegular,
    /// The file system is served by a process or a host that may never respond.
    #[error("the file system may never respond")]
    Remote,
    /// The path is not in the kernel's cache, and a full lookup may block indefinitely.
    #[error("a file system on the path may never respond")]
    NotCached,
    /// The path contains a symbolic link.
    #[error("a symbolic link has the name")]
    Link,
    /// Neither the process's user nor root owns it.
    #[error("it belongs to user {0}, neither the process's user nor root")]
    Owner(u32),
    /// The process may not read it.
    #[error("the process itself may not read it")]
    Unreadable,
    /// It has another hard link, so it may be any file.
    #[error("it is a hard link to a file with another name")]
    HardLink,
    /// We may not follow the process's root or look up the path.
    #[error("permission denied")]
    Permission,
    /// The file was found, but we may not read it.
    #[error("we may not read it")]
    Denied,
    /// Any other I/O error.
    #[error("cannot open")]
    Io(#[source] io::Error),
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::SRCH => Self::Gone,
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG => Self::NotFound,
            Errno::ACCESS | Errno::PERM => Self::Permission,
            other => Self::Io(other.into()),
        }
    }
}

impl From<ProcfsError> for OpenError {
    fn from(error: ProcfsError) -> Self {
        match error {
            ProcfsError::Gone { .. } => Self::Gone,
            ProcfsError::Permission { .. } => Self::Permission,
            ProcfsError::Read { source, .. } | ProcfsError::List { source, .. } => Self::Io(source),
            malformed @ ProcfsError::Malformed { .. } => Self::Io(io::Error::other(malformed)),
        }
    }
}

impl OpenError {
    /// Why an existing file is not read; `None` if it does not exist, or the reason is not a refusal.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        Some(match self {
            Self::Mismatch => Refusal::Mismatch,
            Self::NotRegular => Refusal::NotRegular,
            Self::Remote => Refusal::Remote,
            Self::Link => Refusal::Symlink,
            Self::Owner(_) => Refusal::Owner,
            Self::Unreadable => Refusal::Unreadable,
            Self::HardLink => Refusal::HardLink,
            Self::Denied => Refusal::Denied,
            Self::Gone | Self::NotFound | Self::NotCached | Self::Permission | Self::Io(_) => return None,
        })
    }
}

/// Why an existing file is not read: the categories in which such files are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The path is a symbolic link.
    Symlink,
    /// The file has several hard links.
    HardLink,
    /// It is not a regular file.
    NotRegular,
    /// It belongs to another user.
    Owner,
    /// The process could not read it.
    Unreadable,
    /// It is not the mapped file.
    Mismatch,
    /// Its file system may never respond.
    Remote,
    /// We may not read it.
    Denied,
}

impl Refusal {
    /// All variants, in order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Symlink,
        Self::HardLink,
        Self::NotRegular,
        Self::Owner,
        Self::Unreadable,
        Self::Mismatch,
        Self::Remote,
        Self::Denied,
    ];

    /// The name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Symlink => "symlink",
            Self::HardLink => "hard_link",
            Self::NotRegular => "not_regular",
            Self::Owner => "owner",
            Self::Unreadable => "unreadable",
            Self::Mismatch => "mismatch",
            Self::Remote => "remote",
            Self::Denied => "denied",
        }
    }
}
