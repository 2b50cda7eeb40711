//! Where the lines of a source end.

use crate::recent::MemorySize;

/// Lines that are kept of one source. Those behind them are unknown.
const LINES_MAX: usize = 256 << 10;

/// The positions, in characters, of the ends of lines, sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LineEnds {
    ends: Vec<u32>,
    /// Whether lines behind the last one are unknown.
    is_cut: bool,
}

impl LineEnds {
    /// Those of a sorted list: the first that is not in order, and all behind it, are unknown.
    pub fn from_ends(ends: impl IntoIterator<Item = u32>) -> Self {
        let mut found = Self::default();
        for end in ends {
            if found.ends.last().is_some_and(|last| *last > end) || !found.push(end) {
                found.is_cut = true;
                break;
            }
        }
        found
    }

    fn push(&mut self, end: u32) -> bool {
        self.is_cut |= self.ends.len() >= LINES_MAX;
        if !self.is_cut {
            self.ends.push(end);
        }
        !self.is_cut
    }

    /// The line of a position, counted from 0.
    #[must_use]
    pub fn line_of(&self, position: u32) -> Option<u32> {
        Some(self.place_of(position)?.0)
    }

    /// The line and the column of a position, both counted from 0.
    #[must_use]
    pub fn place_of(&self, position: u32) -> Option<(u32, u32)> {
        let line = self.ends.partition_point(|end| *end < position);
        let before = line.checked_sub(1).and_then(|before| self.ends.get(before));
        let column = before.map_or(position, |end| position - end - 1);
        (line < self.ends.len() || !self.is_cut).then_some((line as u32, column))
    }

    /// All ends; `None` if some are unknown.
    #[must_use]
    pub fn all(&self) -> Option<&[u32]> {
        (!self.is_cut).then_some(&self.ends)
    }
}

impl MemorySize for LineEnds {
    fn bytes(&self) -> usize {
        self.ends.capacity() * size_of::<u32>()
    }
}

/// Finds the ends of lines in a source that arrives in pieces, as ECMAScript defines them: a line feed, a carriage return
/// without one, and two characters of Unicode.
#[derive(Default, Debug)]
pub struct LineScanner {
    found: LineEnds,
    position: u32,
    is_after_return: bool,
}

impl LineScanner {
    /// Adds a unit of UTF-16; false if no more are wanted.
    pub fn character(&mut self, character: u16) -> bool {
        let mut is_wanted = true;
        if self.is_after_return && character != 0x0a {
            is_wanted &= self.found.push(self.position - 1);
        }
        self.is_after_return = character == 0x0d;
        if matches!(character, 0x0a | 0x2028 | 0x2029) {
            is_wanted &= self.found.push(self.position);
        }
        self.position = self.position.saturating_add(1);
        is_wanted
    }

    /// How many units have been added.
    #[must_use]
    pub fn characters(&self) -> u32 {
        self.position
    }

    /// The ends that were found; `is_whole`: all of the source was added.
    #[must_use]
    pub fn finish(mut self, is_whole: bool) -> LineEnds {
        self.found.is_cut |= !is_whole;
        self.found.ends.shrink_to_fit();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends_of(source: &str) -> LineEnds {
        let mut scanner = LineScanner::default();
        for unit in source.encode_utf16() {
            scanner.character(unit);
        }
        scanner.finish(true)
    }

    #[test]
    fn lines_end_as_in_the_language() {
        let ends = ends_of("a\nb\r\nc\rd\u{2028}e");
        assert_eq!(ends.ends, [1, 4, 6, 8]);
        assert_eq!(
            [0, 1, 2, 4, 5, 7, 9, 1000].map(|at| ends.line_of(at)),
            [0, 0, 1, 1, 2, 3, 4, 4].map(Some)
        );
        let cut = LineEnds { is_cut: true, ..ends };
        assert_eq!((cut.line_of(8), cut.line_of(9)), (Some(3), None));
    }

    proptest! {
        #[test]
        fn a_line_is_the_number_of_line_feeds_before_it(source in "[a\n]{0,40}", at in 0_usize..40) {
            let at = at.min(source.len());
            let expected = source[..at].matches('\n').count();
            prop_assert_eq!(ends_of(&source).line_of(at as u32), Some(expected as u32));
        }
    }
}
