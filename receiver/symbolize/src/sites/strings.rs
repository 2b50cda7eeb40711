//! The names of a symbol table, read in the order in which its symbols refer to them.

use std::ops::Range;

use crate::image::Image;

/// The part that is read at once, and the longest name that is compared.
const WINDOW_BYTES: usize = 64 << 10;

/// The strings of a symbol table, with the part that was read last.
pub(super) struct SymbolStrings<'image> {
    image: &'image Image,
    range: Range<u64>,
    window_start: u64,
    window: Vec<u8>,
}

impl<'image> SymbolStrings<'image> {
    pub(super) fn new(image: &'image Image, range: Range<u64>) -> Self {
        Self { image, range, window_start: 0, window: Vec::new() }
    }

    /// The name at an offset; `None` if it is not text, longer than is read at once, or outside of the file.
    pub(super) fn get(&mut self, offset: u32) -> Option<&str> {
        let at = self.range.start.checked_add(offset.into()).filter(|at| self.range.contains(at))?;
        if self.end_in_window(at).is_none() {
            let room = usize::try_from(self.range.end - at).unwrap_or(WINDOW_BYTES);
            self.window.resize(room.min(WINDOW_BYTES), 0);
            let count = self.image.read_at(at, &mut self.window).ok()?;
            self.window.truncate(count);
            self.window_start = at;
        }
        let bytes = self.end_in_window(at)?;
        str::from_utf8(self.window.get(bytes)?).ok()
    }

    /// Where the name at `at` is in the window, if all of it is.
    fn end_in_window(&self, at: u64) -> Option<Range<usize>> {
        let start = usize::try_from(at.checked_sub(self.window_start)?).ok()?;
        let length = self.window.get(start..)?.iter().position(|byte| *byte == 0)?;
        Some(start..start + length)
    }
}
