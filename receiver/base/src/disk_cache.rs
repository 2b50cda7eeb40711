//! What caches on disk have in common: files that appear only once they are whole, and a limit for all of them together.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The beginning of the name of a file that is being written.
pub const UNFINISHED_PREFIX: &str = ".sidewinder-";
/// How long a file that is being written can be another run's.
pub const UNFINISHED_MAX: Duration = Duration::from_secs(24 * 3600);
/// The most entries of a directory that are looked at for files to remove.
pub const SCANNED_MAX: usize = 20_000;

/// A file that is being written. It is removed unless it is [kept](Self::keep).
#[derive(Debug)]
pub struct UnfinishedFile {
    /// Open for reading and writing.
    pub file: File,
    path: PathBuf,
    is_kept: bool,
}

impl UnfinishedFile {
    /// Creates a file in a directory.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn create(directory: &Path) -> io::Result<Self> {
        let path = directory.join(format!("{UNFINISHED_PREFIX}{:016x}", rand::random::<u64>()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        Ok(Self { file: options.open(&path)?, path, is_kept: false })
    }

    /// Renames it, replacing whatever was there.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn keep(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.is_kept {
            _ = fs::remove_file(&self.path);
        }
    }
}

/// A file of a cache: when it was last used, its size in bytes, and its path.
pub type CachedFile = (SystemTime, u64, PathBuf);

/// Removes the files that were used longest ago until the others take at most `bytes_max`. Returns what these take.
///
/// # Errors
/// If a file can't be removed.
pub fn remove_oldest(mut files: Vec<CachedFile>, bytes_max: u64) -> io::Result<u64> {
    files.sort_unstable();
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, file_bytes, path) in files.iter().filter(|(_, bytes, _)| *bytes > 0) {
        if bytes <= bytes_max {
            break;
        }
        fs::remove_file(path)?;
        bytes -= file_bytes;
    }
    Ok(bytes)
}
