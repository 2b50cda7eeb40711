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
    /// No file has the reported path any more, and the kernel gives no other way to it.
    #[error("no file has the path any more")]
    NotFound,
    /// Another file has the path now.
    #[error("another file has the path now")]
    Mismatch,
    /// A directory, FIFO, socket or device has the path.
    #[error("not a regular file")]
    NotRegular,
    /// The file system is served by a process or a host that may never answer.
    #[error("the file system may never answer")]
    Remote,
    /// The kernel does not know yet what has the path, and finding out may take for ever.
    #[error("a file system on the way may never answer")]
    NotCached,
    /// A symbolic link is in the way.
    #[error("a symbolic link has the name")]
    Link,
    /// Neither the process's user nor root owns it.
    #[error("it belongs to user {0}, who is neither the process's user nor root")]
    Owner(u32),
    /// The process may not read it.
    #[error("the process itself may not read it")]
    Unreadable,
    /// It has another name too, under which it may be anything.
    #[error("it is a hard link to a file with another name")]
    HardLink,
    /// We may not follow the process's root or look up the path.
    #[error("permission denied")]
    Permission,
    /// We found it, but may not read it.
    #[error("we may not read it")]
    Denied,
    /// Anything else.
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
    /// Why a file that is there is not read; `None` where there is none, or nothing speaks against reading it.
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

/// Why a file that is there is not read, by which such files are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// A symbolic link has the name.
    Symlink,
    /// A hard link has the name.
    HardLink,
    /// It is no regular file.
    NotRegular,
    /// It is somebody else's.
    Owner,
    /// The process could not read it.
    Unreadable,
    /// It is not the file that is mapped.
    Mismatch,
    /// Its file system may never answer.
    Remote,
    /// We may not read it.
    Denied,
}

impl Refusal {
    /// All of them, in the order in which they are declared.
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

    /// For metrics.
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
