//! Where the files come from that name the addresses of a binary.

use std::io;

use crate::image::Image;

/// A binary and the files that tell more of it. Whoever implements this finds them; each is asked for at most once while the
/// binary is known, and none is trusted.
pub trait BinaryFiles {
    /// The binary itself.
    ///
    /// # Errors
    ///
    /// Why it can't be opened.
    fn content(&self) -> io::Result<Image>;

    /// Its separate debug file.
    fn debug_file(&self) -> Option<Image> {
        None
    }

    /// What its debug file shares with others (`.gnu_debugaltlink`).
    fn alternate(&self) -> Option<Image> {
        None
    }

    /// The file of all units that were split off (`.dwp`).
    fn package(&self) -> Option<Image> {
        None
    }

    /// The file of one unit that was split off (`.dwo`), by its path on the machine that compiled it. Asked for whenever it
    /// is needed.
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
