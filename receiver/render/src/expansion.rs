//! How much a document may become in memory.
//!
//! Documents hold things once and refer to them: a location with a thousand inlined calls takes a byte or two in every stack that
//! has it, and a long name as much in every line. In memory a stack is a list of frames, and output is longer still. So a
//! document of a few hundred bytes could ask for all memory there is, unless what it expands to is limited by its size.

/// How many frames each byte of a document may expand to. A reference to a location takes a byte or more, and stands for two to
/// three frames where compilers inline a lot.
const FRAMES_PER_BYTE: u64 = 4;
/// What any document may expand to, however short.
const FRAMES_MIN: u64 = 1 << 20;
/// The most frames that any document expands to: what the largest file of folded stacks can hold.
const FRAMES_MAX: u64 = 1 << 27;
/// How often a byte on disk counts at most where a document is compressed: what compresses better is repetition.
const COMPRESSION_MAX: u64 = 16;
/// The memory in bytes that a frame of a stack may take altogether, in the profile and in a page of it, where no stack shares it.
const FRAME_BYTES: usize = 64;
/// An entry of a table, such as a function or a sample, counts as so many frames.
const FRAMES_PER_ENTRY: u64 = 8;
/// So many bytes of names count as a frame.
const TEXT_BYTES_PER_FRAME: usize = 64;

/// The frames that a document may still expand to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpansionBudget {
    limit_frames: u64,
    left_frames: u64,
}

/// A document expands to too much.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it expands to more than {limit_frames} frames, the limit for its size")]
pub struct ExpansionError {
    /// The limit for this document.
    pub limit_frames: u64,
}

impl ExpansionBudget {
    /// The budget of a document of this size, which takes `stored_bytes` where it comes from: fewer if it is compressed there.
    #[must_use]
    pub fn for_document(bytes: u64, stored_bytes: u64) -> Self {
        let counted = bytes.min(stored_bytes.saturating_mul(COMPRESSION_MAX));
        Self::new(counted.saturating_mul(FRAMES_PER_BYTE).saturating_add(FRAMES_MIN))
    }

    /// The same, and no more than comes into this much memory.
    #[must_use]
    pub fn within_memory(self, bytes: usize) -> Self {
        Self::new(self.left_frames.min((bytes / FRAME_BYTES) as u64))
    }

    fn new(frames: u64) -> Self {
        let limit_frames = frames.min(FRAMES_MAX);
        Self { limit_frames, left_frames: limit_frames }
    }

    /// Takes the frames of a stack.
    ///
    /// # Errors
    ///
    /// [`ExpansionError`] if there are not so many left.
    pub fn take_frames(&mut self, frames: usize) -> Result<(), ExpansionError> {
        self.take(frames as u64)
    }

    /// Takes an entry of a table, whose texts have this length.
    ///
    /// # Errors
    ///
    /// As [`Self::take_frames`].
    pub fn take_entry(&mut self, text_bytes: usize) -> Result<(), ExpansionError> {
        self.take(FRAMES_PER_ENTRY + (text_bytes / TEXT_BYTES_PER_FRAME) as u64)
    }

    fn take(&mut self, frames: u64) -> Result<(), ExpansionError> {
        let left = self.left_frames.checked_sub(frames);
        self.left_frames = left.ok_or(ExpansionError { limit_frames: self.limit_frames })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compresses_to_nothing_counts_no_more_than_what_is_stored() {
        let limit = |bytes, stored| ExpansionBudget::for_document(bytes, stored).limit_frames;
        assert_eq!(limit(0, 0), FRAMES_MIN);
        assert_eq!(limit(1 << 20, 1 << 20), FRAMES_MIN + (4 << 20));
        assert_eq!(limit(1 << 20, 1 << 19), limit(1 << 20, 1 << 20), "compressed as usual");
        assert_eq!(limit(1 << 28, 300), FRAMES_MIN + 300 * 16 * 4);
        assert_eq!(limit(u64::MAX, u64::MAX), FRAMES_MAX);
    }

    #[test]
    fn the_error_says_the_limit() {
        let mut budget = ExpansionBudget::for_document(0, 0).within_memory(64 * 100);
        assert_eq!(budget.take_frames(60), Ok(()));
        assert_eq!(budget.take_entry(64 * 32), Ok(()));
        let error = budget.take_frames(1).unwrap_err();
        assert_eq!(error.to_string(), "it expands to more than 100 frames, the limit for its size");
    }
}
