//! Where lines of a source end, and the positions of bytecodes in it.

use super::text::Characters;

/// Lines that are kept of one source. Those behind them are unknown.
const LINES_MAX: usize = 256 << 10;
/// Positions that are kept of one function.
const POSITIONS_MAX: usize = 16 << 10;

/// The positions, in characters, of the ends of lines, sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct LineEnds {
    ends: Vec<u32>,
    /// Whether lines behind the last one are unknown.
    is_cut: bool,
}

impl LineEnds {
    pub(super) fn from_ends(ends: impl IntoIterator<Item = u32>) -> Self {
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
    pub(super) fn line_of(&self, position: u32) -> Option<u32> {
        let line = self.ends.partition_point(|end| *end < position);
        (line < self.ends.len() || !self.is_cut).then_some(line as u32)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.ends.capacity() * size_of::<u32>()
    }
}

/// Finds the ends of lines in a source that arrives in pieces, as ECMAScript defines them: a line feed, a carriage return
/// without one, and two characters of Unicode.
#[derive(Default)]
pub(super) struct LineScanner {
    found: LineEnds,
    position: u32,
    is_after_return: bool,
}

impl LineScanner {
    /// Adds a piece; false if no more are wanted.
    pub(super) fn add(&mut self, characters: &Characters<'_>) -> bool {
        match characters {
            Characters::OneByte(bytes) => bytes.iter().all(|byte| self.character(u16::from(*byte))),
            Characters::TwoByte(bytes) => {
                bytes.as_chunks().0.iter().all(|unit| self.character(u16::from_le_bytes(*unit)))
            }
        }
    }

    fn character(&mut self, character: u16) -> bool {
        let mut is_wanted = true;
        if self.is_after_return && character != 0x0a {
            is_wanted &= self.found.push(self.position - 1);
        }
        self.is_after_return = character == 0x0d;
        if matches!(character, 0x0a | 0x2028 | 0x2029) {
            is_wanted &= self.found.push(self.position);
        }
        self.position += 1;
        is_wanted
    }

    pub(super) fn finish(mut self, is_whole: bool) -> LineEnds {
        self.found.is_cut |= !is_whole;
        self.found.ends.shrink_to_fit();
        self.found
    }
}

/// A bytecode's offset and its position in the source, from a table of both (`source-position-table.cc`): differences to the
/// entry before. Sorted by offset.
pub(super) fn bytecode_positions(bytes: &[u8]) -> Vec<(u32, u32)> {
    let (mut bytes, mut rows) = (bytes.iter(), Vec::new());
    let (mut offset, mut position) = (0_i64, 0_i64);
    while rows.len() < POSITIONS_MAX {
        let (Some(offsets), Some(positions)) = (number(&mut bytes), number(&mut bytes)) else { break };
        // A negative difference stands for an expression, others for statements.
        offset = offset.saturating_add(if offsets < 0 { -(offsets + 1) } else { offsets });
        position = position.saturating_add(positions);
        let (Ok(row_offset), Ok(raw)) = (u32::try_from(offset), u64::try_from(position)) else { break };
        // Bit 0 tells positions outside of the source; the position begins at 1.
        let in_source = u32::try_from(raw >> 1 & 0x3fff_ffff).unwrap_or(0);
        if raw & 1 == 0 && in_source > 0 {
            rows.push((row_offset, in_source - 1));
        }
    }
    rows.sort_by_key(|(offset, _)| *offset);
    rows
}

/// A signed number of groups of 7 bits, the lowest first, with the sign in the lowest bit.
fn number(bytes: &mut std::slice::Iter<'_, u8>) -> Option<i64> {
    let mut number = 0_u64;
    for shift in (0..63).step_by(7) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((number >> 1) as i64 ^ -((number & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends_of(source: &str) -> LineEnds {
        let mut scanner = LineScanner::default();
        let units: Vec<u8> = source.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for piece in units.chunks(6) {
            scanner.add(&Characters::TwoByte(piece));
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

    /// As `EncodeInt` of source-position-table.cc.
    fn write(number: i64, to: &mut Vec<u8>) {
        let mut encoded = ((number << 1) ^ (number >> 63)).cast_unsigned();
        while encoded > 0x7f {
            to.push(encoded as u8 | 0x80);
            encoded >>= 7;
        }
        to.push(encoded as u8);
    }

    proptest! {
        #[test]
        fn positions_are_read_as_they_were_written(
            rows in prop::collection::vec((0_u32..300, 0_u32..100_000, any::<bool>()), 0..50)
        ) {
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            let (mut offset, mut raw) = (0, 0);
            for (more, position, is_statement) in rows {
                write(if is_statement { more.into() } else { -i64::from(more) - 1 }, &mut bytes);
                let next = i64::from(position + 1) << 1;
                write(next - raw, &mut bytes);
                (offset, raw) = (offset + more, next);
                expected.push((offset, position));
            }
            prop_assert_eq!(bytecode_positions(&bytes), expected);
        }

        #[test]
        fn any_bytes_are_a_table(bytes: Vec<u8>) {
            prop_assert!(bytecode_positions(&bytes).len() <= bytes.len());
        }

        #[test]
        fn a_line_is_the_number_of_line_feeds_before_it(source in "[a\n]{0,40}", at in 0_usize..40) {
            let at = at.min(source.len());
            let expected = source[..at].matches('\n').count();
            prop_assert_eq!(ends_of(&source).line_of(at as u32), Some(expected as u32));
        }
    }
}
