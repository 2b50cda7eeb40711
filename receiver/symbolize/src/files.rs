//! The source of a binary and its companion files.

use std::io;

use crate::image::Image;

/// A binary and its companion files. The implementation locates them; each is requested at most once while the binary
/// is in the cache, and none is trusted.
pub trait BinaryFiles {
    /// Opens the binary itself.
    ///
    /// # Errors
    ///
    /// The reason why it can't be opened.
    fn content(&self) -> io::Result<Image>;

    /// Its separate debug file.
    fn debug_file(&self) -> Option<Image> {
        None
    }

    /// The file that its debug file shares with others (`.gnu_debugaltlink`).
    fn alternate(&self) -> Option<Image> {
        None
    }

    /// The file of all split units (`.dwp`).
    fn package(&self) -> Option<Image> {
        None
    }

    /// The file of one split unit (`.dwo`), by its path on the machine that compiled it. Requested whenever it is
    /// needed.
    fn split_unit(&self, _path: &[u8]) -> Option<Image> {
        None
    }
}

/// A binary that has no other files.
impl<F: Fn() -> io::Result<I>, I: Into<Image>> BinaryFiles for F {
    fn content(&self) -> io::Result<Image> {
        self().map(Into::into)
    }
}
