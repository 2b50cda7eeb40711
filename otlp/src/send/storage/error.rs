use std::io;
use std::path::{Path, PathBuf};

/// Why a directory can't hold a queue.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A file or directory can't be used.
    #[error("cannot {action} {path:?}, where the queue is kept")]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process or exporter has its queue there.
    #[error("{0:?} is another exporter's queue, perhaps another process's: give each its own directory")]
    InUse(PathBuf),
}

impl StorageError {
    /// The error of an operation on a path.
    pub(super) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path: path.clone(), source }
    }
}
