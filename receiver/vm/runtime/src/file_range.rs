//! Parts of files.

use sidewinder_address::FileOffset;
use sidewinder_bpf::can_look_up_loop;

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

/// Ranges in the form in which walks have them.
pub fn published_ranges(ranges: &[FileRange]) -> Vec<(FileOffset, u64)> {
    ranges.iter().map(|range| (range.start, range.bytes)).collect()
}

/// Whether walks can look up all of a loop.
pub fn can_be_looked_up(ranges: &[FileRange]) -> bool {
    can_look_up_loop(&published_ranges(ranges))
}
