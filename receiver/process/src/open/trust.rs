//! Conditions for reading files that are not mapped.

use std::os::fd::BorrowedFd;

use super::error::OpenError;
use crate::credentials::{Access, Credentials};
use crate::file_status::{FileMetadata, has_acl};

/// Why a file with a certain path is read. A mapped file does not need this: the kernel confirms its identity
/// ([`ProcessRoot::open_mapped`]).
///
/// `reader` is the process that chose the name, and the file is read only if that process could read it itself, by the modes
/// of the file and of each directory on the path. So Sidewinder discloses nothing that the process may not read.
#[derive(Clone, Copy, Debug)]
pub enum PathTrust<'a> {
    /// The directory was configured by our operator, or is where our own distribution installs debug files: it is read with
    /// our own privileges, and links are followed.
    Operator,
    /// The content proves that it belongs to a binary (build ID, checksum), which does not show who wrote it. It must be
    /// owned by the process's user, root, or the owner of the binary, who could have changed the binary in the same way.
    /// Links are followed with the process's permissions: distributions have debug files by build ID as links.
    Proven {
        /// The process that names it.
        reader: &'a Credentials,
        /// The owner of the binary, if known.
        binary_owner: Option<u32>,
    },
    /// Only its name says that it belongs to a process (perf map): anybody may have created it, as any kind of file. The
    /// file and the directories on its path must be owned by the process's user or root; the only symbolic links allowed
    /// among the directories are root's, and the file itself may be neither a symbolic link nor have several hard links.
    /// World-writable directories are allowed: `/tmp` is one.
    Named {
        /// The process whose file it must be.
        reader: &'a Credentials,
    },
}

impl PathTrust<'_> {
    /// Whether the name is the only evidence.
    pub(super) const fn requires_named_path(&self) -> bool {
        matches!(self, Self::Named { .. })
    }

    /// Whether the file may be read for this reason.
    pub(super) fn permits(&self, looked: &FileMetadata, found: BorrowedFd<'_>) -> Result<(), OpenError> {
        let (reader, binary_owner) = match *self {
            Self::Operator => return Ok(()),
            Self::Proven { reader, binary_owner } => (reader, binary_owner),
            Self::Named { reader } => (reader, None),
        };
        let owner = looked.ownership.user;
        if !reader.trusts(owner) && binary_owner != Some(owner) {
            return Err(OpenError::Owner(owner));
        }
        if !reader.allows(Access::Read, looked.ownership, || has_acl(found)) {
            return Err(OpenError::Unreadable);
        }
        if self.requires_named_path() && looked.links != 1 {
            return Err(OpenError::HardLink);
        }
        Ok(())
    }
}
