//! Whether a file is the one that was read before.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// A file in a certain state: equal versions have the same content, as far as the filesystem records changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    /// In seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for FileVersion {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
