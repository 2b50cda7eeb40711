//! The mappings of a source map: segments, each with a position in the script and in a source, as differences in numbers of
//! Base64 digits (ECMA-426, "Mappings structure").
//!
//! They stay as they are written, which no table of numbers is shorter than. Checkpoints say what the differences are from.

use super::error::SourceMapError;

/// Bytes between checkpoints, about.
const CHECKPOINT_BYTES: usize = 512;
/// Bits of a digit that are a part of the number, and the one that says that more follow.
const DIGIT_BITS: u32 = 5;
const MORE: u32 = 1 << DIGIT_BITS;
/// Digits of a number of 32 bits.
const DIGITS_MAX: u32 = 7;

/// A segment. What it does not have is that of the segment before, since the next one is relative to that. All count from 0,
/// columns in units of UTF-16.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Segment {
    /// In the script.
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) source: u32,
    pub(super) original_line: u32,
    pub(super) original_column: u32,
    pub(super) name: u32,
    pub(super) has_source: bool,
    pub(super) has_name: bool,
}

impl Segment {
    fn place(&self) -> (u32, u32) {
        (self.line, self.column)
    }
}

/// Where a segment is written.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    /// The position of the segment in the script.
    place: (u32, u32),
    offset: u32,
    /// What its numbers are relative to: the segment before, or the start of its line.
    before: Segment,
}

/// Checked mappings, in the order of positions in the script.
#[derive(Debug)]
pub(super) struct Mappings {
    text: Box<[u8]>,
    checkpoints: Box<[Checkpoint]>,
}

impl Mappings {
    /// Checks mappings that refer to so many sources and names.
    pub(super) fn new(text: String, sources: usize, names: usize) -> Result<Self, SourceMapError> {
        let text = text.into_bytes().into_boxed_slice();
        if u32::try_from(text.len()).is_err() {
            return Err(SourceMapError::TooBig);
        }
        let mut checkpoints: Vec<Checkpoint> = Vec::new();
        let mut reader = SegmentReader { bytes: &text, at: 0, last: Segment::default() };
        loop {
            reader.skip_separators();
            let (before, offset) = (reader.last, reader.at);
            let Some(segment) = reader.next()? else { break };
            if segment.place() < before.place() {
                return Err(SourceMapError::Malformed("mappings that are not in order"));
            }
            if segment.has_source && segment.source as usize >= sources
                || segment.has_name && segment.name as usize >= names
            {
                return Err(SourceMapError::Malformed("a mapping to something that is not there"));
            }
            let next = checkpoints.last().map_or(0, |last| last.offset as usize + CHECKPOINT_BYTES);
            if offset >= next {
                checkpoints.push(Checkpoint { place: segment.place(), offset: offset as u32, before });
            }
        }
        Ok(Self { checkpoints: checkpoints.into(), text })
    }

    /// The last segment in a line that does not begin behind a column.
    pub(super) fn find(&self, line: u32, column: u32) -> Option<Segment> {
        let after = self.checkpoints.partition_point(|checkpoint| checkpoint.place <= (line, column));
        let start = self.checkpoints.get(after.checked_sub(1)?)?;
        let mut reader = SegmentReader { bytes: &self.text, at: start.offset as usize, last: start.before };
        let mut found = None;
        // All have been read once without an error.
        while let Ok(Some(segment)) = reader.next()
            && segment.place() <= (line, column)
        {
            found = Some(segment);
        }
        found.filter(|segment| segment.line == line)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.checkpoints)
    }
}

struct SegmentReader<'text> {
    bytes: &'text [u8],
    at: usize,
    last: Segment,
}

impl SegmentReader<'_> {
    fn skip_separators(&mut self) {
        while let Some(separator @ (b',' | b';')) = self.bytes.get(self.at) {
            if *separator == b';' {
                self.last.line = self.last.line.saturating_add(1);
                self.last.column = 0;
            }
            self.at += 1;
        }
    }

    fn next(&mut self) -> Result<Option<Segment>, SourceMapError> {
        self.skip_separators();
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let mut next = self.last;
        self.number(&mut next.column)?;
        next.has_source = !self.is_at_end();
        if next.has_source {
            self.number(&mut next.source)?;
            self.number(&mut next.original_line)?;
            self.number(&mut next.original_column)?;
        }
        next.has_name = next.has_source && !self.is_at_end();
        if next.has_name {
            self.number(&mut next.name)?;
        }
        if !self.is_at_end() {
            return Err(SourceMapError::Malformed("a mapping of too many numbers"));
        }
        self.last = next;
        Ok(Some(next))
    }

    fn is_at_end(&self) -> bool {
        matches!(self.bytes.get(self.at), None | Some(b',' | b';'))
    }

    /// Adds the next number, whose lowest bit is its sign.
    fn number(&mut self, to: &mut u32) -> Result<(), SourceMapError> {
        let malformed = SourceMapError::Malformed("a mapping that is no number");
        let mut number = 0_i64;
        for index in 0..DIGITS_MAX {
            let digit = self.bytes.get(self.at).and_then(|byte| digit(*byte));
            let Some(digit) = digit else { return Err(malformed) };
            self.at += 1;
            number |= i64::from(digit & (MORE - 1)) << (DIGIT_BITS * index);
            if digit & MORE == 0 {
                let difference = if number & 1 == 0 { number >> 1 } else { -(number >> 1) };
                *to = u32::try_from(i64::from(*to) + difference).map_err(|_| malformed)?;
                return Ok(());
            }
        }
        Err(malformed)
    }
}

/// The value of a digit of Base64.
fn digit(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    fn write_number(difference: i64, to: &mut String) {
        let mut number = difference.unsigned_abs() << 1 | u64::from(difference < 0);
        loop {
            let more = if number >= 32 { 32 } else { 0 };
            to.push(DIGITS[(number % 32 + more) as usize].into());
            number /= 32;
            if more == 0 {
                return;
            }
        }
    }

    /// As generators write segments.
    fn write(segments: &[Segment]) -> String {
        let (mut text, mut last) = (String::new(), Segment::default());
        let mut is_first = true;
        for segment in segments {
            while last.line < segment.line {
                text.push(';');
                (last.line, last.column, is_first) = (last.line + 1, 0, true);
            }
            if !is_first {
                text.push(',');
            }
            is_first = false;
            let mut add = |now: u32, last: &mut u32| {
                write_number(i64::from(now) - i64::from(*last), &mut text);
                *last = now;
            };
            add(segment.column, &mut last.column);
            if segment.has_source {
                add(segment.source, &mut last.source);
                add(segment.original_line, &mut last.original_line);
                add(segment.original_column, &mut last.original_column);
                if segment.has_name {
                    add(segment.name, &mut last.name);
                }
            }
        }
        text
    }

    #[test]
    fn a_segment_holds_up_to_the_next_one_in_its_line() {
        // Of `tsc`: the first two lines of a program.
        let mappings = Mappings::new("AAAA,SAAS,IAAI,CAAC,KAAa;IACzB,IAAI;".to_owned(), 1, 0).unwrap();
        let at = |line, column| {
            mappings
                .find(line, column)
                .map(|found| (found.column, found.original_line, found.original_column))
        };
        assert_eq!(at(0, 0), Some((0, 0, 0)));
        assert_eq!(at(0, 10), Some((9, 0, 9)));
        assert_eq!(at(0, 18), Some((14, 0, 14)));
        assert_eq!(at(0, 900), Some((19, 0, 27)));
        assert_eq!((at(1, 3), at(1, 4), at(2, 0)), (None, Some((4, 1, 2)), None));
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        for text in ["A!", "g", "AA", "AAA", "AAAAAA", "ACAA", "AAAAC", "D", "CAAA,DAAA", "gggggggg", "AADA"]
        {
            assert!(Mappings::new(text.to_owned(), 1, 1).is_err(), "{text}");
        }
        for text in ["", ";;;", ",,", "AAAA,;,CAAAA", "A,C"] {
            assert!(Mappings::new(text.to_owned(), 1, 1).is_ok(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn each_position_has_the_segment_that_a_search_of_all_finds(
            steps in prop::collection::vec((0_u32..3, 0_u32..40, 0_u32..5, 0_u32..9000, 0_u32..300, 0_u32..7, 0_u8..3), 0..600),
            wanted in prop::collection::vec((0_u32..900, 0_u32..300), 1..40),
        ) {
            let (mut line, mut column, mut segments) = (0, 0, Vec::new());
            for (lines, columns, source, original_line, original_column, name, fields) in steps {
                let more = lines / 2;
                column = if more > 0 { columns } else { column + columns };
                line += more;
                segments.push(Segment {
                    line, column, source, original_line, original_column, name,
                    has_source: fields > 0, has_name: fields > 1,
                });
            }
            let mappings = Mappings::new(write(&segments), 5, 7).unwrap();
            for (line, column) in wanted {
                let before = segments.iter().rev().find(|segment| segment.place() <= (line, column));
                let expected = before.filter(|segment| segment.line == line);
                let found = mappings.find(line, column);
                prop_assert_eq!(found.map(|found| found.place()), expected.map(Segment::place));
                if let (Some(found), Some(expected)) = (found, expected) && expected.has_source {
                    prop_assert_eq!(found.source, expected.source);
                    prop_assert_eq!(found.original_line, expected.original_line);
                    prop_assert_eq!(found.original_column, expected.original_column);
                    prop_assert_eq!(found.has_name.then_some(found.name), expected.has_name.then_some(expected.name));
                }
            }
        }

        #[test]
        fn any_text_is_mappings_or_an_error(text in "[A-Za-z0-9+/,;!]{0,200}", line in 0_u32..9, column: u32) {
            if let Ok(mappings) = Mappings::new(text, 3, 3) {
                mappings.find(line, column);
            }
        }
    }
}
