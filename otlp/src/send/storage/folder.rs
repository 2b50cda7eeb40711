//! The folder of a queue.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::error::StorageError;

/// A folder that one process has locked.
#[derive(Debug)]
pub(super) struct QueueFolder {
    path: PathBuf,
    /// Keeps the lock.
    lock: File,
}

impl QueueFolder {
    /// Creates the folder if it does not exist, and locks it.
    pub(super) fn open(path: PathBuf) -> Result<Self, StorageError> {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StorageError::io("create", &path)(error));
            }
            _ => {}
        }
        let lock_path = Self::lock_path(&path);
        let lock = open_file(OpenOptions::new().write(true).create(true).truncate(false), &lock_path);
        let lock = lock.map_err(StorageError::io("open", &lock_path))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(StorageError::InUse(path));
        }
        Ok(Self { path, lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder is still where it was: neither removed, nor renamed, nor hidden by a mount.
    pub(super) fn is_in_place(&self) -> bool {
        let [found, locked] = [fs::symlink_metadata(Self::lock_path(&self.path)), self.lock.metadata()];
        let identity = |file: io::Result<fs::Metadata>| file.ok().map(|file| (file.dev(), file.ino()));
        let (found, locked) = (identity(found), identity(locked));
        found.is_some() && found == locked
    }

    fn lock_path(folder: &Path) -> PathBuf {
        folder.join("lock")
    }
}

/// Opens a file of the queue. A pipe in its place does not block.
pub(super) fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}
