//! Why a file is read that nobody has mapped.

use std::os::fd::BorrowedFd;

use super::error::OpenError;
use crate::credentials::{Access, Credentials};
use crate::file_status::{FileMetadata, has_acl};

/// Why a file that has a certain path is read. A mapped file needs none of these: the kernel says which one it is
/// ([`ProcessRoot::open_mapped`]).
///
/// `reader` is the process that chose the name, and the file is read only where that process could read it itself: by the
/// modes of the file and of each directory on the way. So nobody learns anything through us that the process may not know.
#[derive(Clone, Copy, Debug)]
pub enum PathTrust<'a> {
    /// The directory was named by whoever runs us, or is where our own distribution installs debug files: it is read with
    /// our own rights, and links are followed.
    Operator,
    /// The content proves that it belongs to a binary (build ID, checksum), which says nothing of who wrote it. Owned by
    /// the process's user, root, or the owner of the binary, who could have put the same into that. Links are followed as
    /// the process would: distributions have debug files by build ID as links.
    Proven {
        /// Who names it.
        reader: &'a Credentials,
        /// The owner of the binary, where it is known.
        binary_owner: Option<u32>,
    },
    /// Nothing but its name says that it belongs to a process (perf map): anybody may have put it there, as anything. Owned
    /// by the process's user or root, as are the directories on the way; no symbolic link but root's among those, and no
    /// link of either kind in the name itself. Directories that everybody may write to are allowed: `/tmp` is one.
    Named {
        /// Whose it is to be.
        reader: &'a Credentials,
    },
}

impl PathTrust<'_> {
    /// Whether the name is all that there is to go by.
    pub(super) const fn requires_named_path(&self) -> bool {
        matches!(self, Self::Named { .. })
    }

    /// Whether what was found may be read for this reason.
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
