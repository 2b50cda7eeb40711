//! Resolves a path component by component, with the permissions of a process.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, OFlags, ResolveFlags, readlinkat};

use super::{OpenError, PathResolver};
use crate::credentials::{Access, Credentials};
use crate::file_status::{FileMetadata, has_acl};
use crate::filesystem::FilesystemKind;

/// `PATH_MAX`: the longest path that is followed, and the most components.
const PATH_BYTES_MAX: usize = 4096;
/// The kernel's limit of links in one path.
const LINKS_MAX: usize = 40;
/// Directories that are held open at once, from the root to the current one.
const DEPTH_MAX: usize = 256;

/// A directory on the path so far.
struct PathDirectory {
    directory: OwnedFd,
    /// Whether the reader may look up names in it.
    is_searchable: bool,
}

impl PathResolver<'_> {
    /// Resolves a path inside a root, without opening the file, if `reader` may search each directory on the path. With
    /// `by_name`, each of these must belong to the reader's user or root, each link among them to root, and the last
    /// component must not be a link.
    ///
    /// If the reader can't find the file, or it is more than [`DEPTH_MAX`] directories deep, the error is
    /// [`OpenError::NotFound`].
    pub(super) fn walk(
        &self,
        root: BorrowedFd<'_>,
        path: &[u8],
        reader: &Credentials,
        by_name: bool,
    ) -> Result<OwnedFd, OpenError> {
        let held = root.try_clone_to_owned().map_err(OpenError::Io)?;
        let mut steps = vec![self.step(held, reader, by_name)?];
        // The next component is the last element.
        let mut left = Vec::new();
        prepend(path, &mut left)?;
        let mut links = 0;
        while let Some(name) = left.pop() {
            let Some(at) = steps.last() else { return Err(OpenError::NotFound) };
            if !at.is_searchable {
                return Err(OpenError::NotFound);
            }
            if name == b".." {
                // The parent of the root is the root.
                steps.truncate((steps.len() - 1).max(1));
                continue;
            }
            let found = self.look_up_one(at.directory.as_fd(), name)?;
            let looked = FileMetadata::from_fd(found.as_fd())?;
            match looked.file_type {
                FileType::Symlink => {
                    if by_name && (left.is_empty() || !reader.is_root(looked.ownership.user)) {
                        return Err(OpenError::Link);
                    }
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(OpenError::NotFound);
                    }
                    let target = self.target_of(found.as_fd(), &looked)?;
                    if target.starts_with(b"/") {
                        steps.truncate(1);
                    }
                    prepend(&target, &mut left)?;
                }
                FileType::Directory if !left.is_empty() => {
                    if steps.len() >= DEPTH_MAX {
                        return Err(OpenError::NotFound);
                    }
                    steps.push(self.step(found, reader, by_name)?);
                }
                _ if left.is_empty() => return Ok(found),
                _ => return Err(OpenError::NotFound),
            }
        }
        // A path without components, or one that ends in `..`.
        if path.is_empty() { Err(OpenError::NotFound) } else { Err(OpenError::NotRegular) }
    }

    fn step(
        &self,
        directory: OwnedFd,
        reader: &Credentials,
        by_name: bool,
    ) -> Result<PathDirectory, OpenError> {
        let looked = FileMetadata::from_fd(directory.as_fd())?;
        if by_name && !reader.trusts(looked.ownership.user) {
            return Err(OpenError::Owner(looked.ownership.user));
        }
        let is_remote = || self.kind_of(&looked) == FilesystemKind::Remote;
        let may_deny = || is_remote() || has_acl(directory.as_fd());
        let is_searchable = reader.allows(Access::Search, looked.ownership, may_deny);
        Ok(PathDirectory { directory, is_searchable })
    }

    /// Looks up a name in a directory, without following links.
    fn look_up_one(&self, directory: BorrowedFd<'_>, name: Vec<u8>) -> Result<OwnedFd, OpenError> {
        let name = CString::new(name).map_err(|_| OpenError::NotFound)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        self.look_up_by(directory, &name, OFlags::NOFOLLOW, resolve)
    }

    /// The target of a link, unless its file system may never respond.
    fn target_of(&self, link: BorrowedFd<'_>, looked: &FileMetadata) -> Result<Vec<u8>, OpenError> {
        if self.kind_of(looked) == FilesystemKind::Remote {
            return Err(OpenError::Remote);
        }
        Ok(readlinkat(link, c"", Vec::new())?.into_bytes())
    }
}

/// Pushes the components of a path in reverse order, so that the first is the next one.
fn prepend(path: &[u8], left: &mut Vec<Vec<u8>>) -> Result<(), OpenError> {
    let parts = path.rsplit(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    left.extend(parts.map(<[u8]>::to_vec));
    let is_short = path.len() < PATH_BYTES_MAX && left.len() <= PATH_BYTES_MAX;
    if is_short { Ok(()) } else { Err(OpenError::NotFound) }
}
