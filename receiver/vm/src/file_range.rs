//! Parts of files.

use sidewinder_address::FileOffset;

/// A part of a file; never empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileRange {
    /// Where it starts.
    pub start: FileOffset,
    /// Its length.
    pub bytes: u64,
}

impl FileRange {
    /// Whether an offset of the file is in it.
    #[must_use]
    pub fn contains(&self, at: FileOffset) -> bool {
        at.0.wrapping_sub(self.start.0) < self.bytes
    }
}
