//! The bounds of Go's own code in a Go program.

use std::ops::Range;

use super::name::read_name;
use crate::elf::{CodeSymbol, TableLayout};
use crate::image::Image;

/// Unsized symbols of a Go file whose names are read to find the bounds of its text.
const MARKS_LIMIT: u32 = 256;

/// The range that the Go linker marks with two unsized symbols.
#[derive(Default)]
pub(super) struct GoTextRange {
    start: Option<u64>,
    end: Option<u64>,
    marks_read: u32,
}

impl GoTextRange {
    /// Considers an unsized symbol.
    pub(super) fn add_marker(&mut self, image: &Image, table: &TableLayout, symbol: &CodeSymbol) {
        if self.marks_read == MARKS_LIMIT {
            return;
        }
        self.marks_read += 1;
        // A name that can't be read is no marker; looking it up later reports the error.
        let name = read_name(image, table.strings.clone(), symbol.name, 32).unwrap_or_default().0;
        match &*name {
            b"runtime.text" => self.start = Some(symbol.svma),
            b"runtime.etext" => self.end = Some(symbol.svma),
            _ => {}
        }
    }

    pub(super) fn range(&self) -> Option<Range<u64>> {
        Some(self.start?..self.end?)
    }
}
