//! Numbers and lines in HotSpot's compressed form.

/// Rows that are kept of one method. Lines behind them are unknown.
const ROWS_MAX: usize = 16 << 10;
/// The longest number, in bytes.
const NUMBER_BYTES_MAX: u32 = 5;
/// Of the values of a byte, those that are the last of a number, in versions before 20, in which all values occur.
const LAST_BYTES: u32 = 192;
/// The same since 20, in which no byte of a number is 0.
const LAST_BYTES_WITHOUT_ZERO: u32 = 191;

/// A stream of numbers (`unsigned5.hpp`; before 20, `compressedStream.hpp`).
pub(super) struct Numbers<'bytes> {
    bytes: &'bytes [u8],
    excludes_zero: bool,
}

impl<'bytes> Numbers<'bytes> {
    /// A stream of the version with this number.
    pub(super) fn new(bytes: &'bytes [u8], version: u8) -> Self {
        Self { bytes, excludes_zero: version >= 20 }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// The next number; `None` at the end.
    pub(super) fn next(&mut self) -> Option<u32> {
        let (excluded, last) =
            if self.excludes_zero { (1, LAST_BYTES_WITHOUT_ZERO) } else { (0, LAST_BYTES) };
        let mut number = 0_u32;
        for place in 0..NUMBER_BYTES_MAX {
            let byte = u32::from(self.byte()?);
            let digit = byte.checked_sub(excluded)?;
            number = number.wrapping_add(digit.wrapping_shl(6 * place));
            if digit < last {
                break;
            }
        }
        Some(number)
    }

    fn next_signed(&mut self) -> Option<i32> {
        let number = self.next()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

/// The lines of a method: pairs of the offset in the bytecode from which on a line holds, and the line
/// (`CompressedLineNumberReadStream`). Sorted by offset.
pub(super) fn line_table(bytes: &[u8], version: u8) -> Vec<(u32, u32)> {
    let mut stream = Numbers::new(bytes, version);
    let (mut bci, mut line) = (0_i32, 0_i32);
    let mut rows = Vec::new();
    while rows.len() < ROWS_MAX {
        let (bytes, lines) = match stream.byte() {
            None | Some(0) => break,
            Some(0xff) => match (stream.next_signed(), stream.next_signed()) {
                (Some(bytes), Some(lines)) => (bytes, lines),
                _ => break,
            },
            Some(both) => (i32::from(both >> 3), i32::from(both & 7)),
        };
        bci = bci.wrapping_add(bytes);
        line = line.wrapping_add(lines);
        if let (Ok(bci), Ok(line)) = (u32::try_from(bci), u32::try_from(line)) {
            rows.push((bci, line));
        }
    }
    // Compilers may write several tables, one after the other.
    rows.sort_by_key(|(bci, _)| *bci);
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As `UNSIGNED5::write_uint` does.
    fn write(mut number: u32, version: u8) -> Vec<u8> {
        let (excluded, last) = if version >= 20 { (1, 191) } else { (0, 192) };
        let mut bytes = Vec::new();
        for place in 0..5 {
            if number < last || place == 4 {
                bytes.push((number + excluded) as u8);
                break;
            }
            let digit = last + (number - last) % 64;
            bytes.push((digit + excluded) as u8);
            number = (number - digit) >> 6;
        }
        bytes
    }

    fn write_signed(number: i32, version: u8) -> Vec<u8> {
        write((number.cast_unsigned() << 1) ^ (number >> 31).cast_unsigned(), version)
    }

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_written(number: u32, version in prop::sample::select(vec![17_u8, 25])) {
            let bytes = write(number, version);
            prop_assert_eq!(Numbers::new(&bytes, version).next(), Some(number));
        }

        #[test]
        fn lines_are_read_as_they_were_written(
            rows in prop::collection::vec((1_i32..2000, -3000_i32..3000), 0..50),
            version in prop::sample::select(vec![17_u8, 25]),
        ) {
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            let (mut bci, mut line) = (0, 100_000);
            bytes.push(0xff);
            bytes.extend(write_signed(bci, version));
            bytes.extend(write_signed(line, version));
            expected.push((bci as u32, line as u32));
            for (more, lines) in rows {
                bci += more;
                line += lines;
                if more < 31 && (0..8).contains(&lines) {
                    bytes.push((more << 3 | lines) as u8);
                } else {
                    bytes.push(0xff);
                    bytes.extend(write_signed(more, version));
                    bytes.extend(write_signed(lines, version));
                }
                if line >= 0 {
                    expected.push((bci as u32, line as u32));
                }
            }
            bytes.push(0);
            prop_assert_eq!(line_table(&bytes, version), expected);
        }

        #[test]
        fn any_bytes_are_a_table(bytes: Vec<u8>, version: u8) {
            prop_assert!(line_table(&bytes, version).len() <= bytes.len());
        }
    }
}
