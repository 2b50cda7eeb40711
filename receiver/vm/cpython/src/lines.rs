//! The lines of a function's instructions.
//!
//! Source: `Objects/lnotab_notes.txt` (3.8 to 3.10), `InternalDocs/code_objects.md` (3.11+).

use sidewinder_vm_runtime::lines::{Lines, Rows};

use super::layout::LineForm;

/// Bytes of a unit of bytecode.
const UNIT_BYTES: u32 = 2;

/// Decodes a table; `first` is the function's first line. Whatever the table contains, there is a result.
pub(super) fn decode(form: LineForm, table: &[u8], first: i32) -> Lines {
    let mut rows = Rows::default();
    let first = i64::from(first);
    match form {
        LineForm::Increments => increments(table, first, &mut rows),
        LineForm::Ranges => ranges(table, first, &mut rows),
        LineForm::Locations => locations(table, first, &mut rows),
    }
    rows.into()
}

/// `co_lnotab`: pairs of an increment of the place, and a signed one of the line from there on.
fn increments(table: &[u8], first: i64, rows: &mut Rows) {
    let (mut place, mut line) = (0_u32, first);
    let (pairs, _) = table.as_chunks();
    rows.push(place, Some(line));
    for [bytes, lines] in pairs {
        place = place.saturating_add(u32::from(*bytes));
        line += i64::from(lines.cast_signed());
        if !rows.push(place, Some(line)) {
            return;
        }
    }
}

/// `co_linetable` of 3.10: pairs of the length of a range, and the signed increment of its line.
fn ranges(table: &[u8], first: i64, rows: &mut Rows) {
    const NO_LINE: i8 = -128;
    let (mut place, mut line) = (0_u32, first);
    let (pairs, _) = table.as_chunks();
    for [bytes, lines] in pairs {
        let of_range = match lines.cast_signed() {
            NO_LINE => None,
            lines => {
                line += i64::from(lines);
                Some(line)
            }
        };
        if *bytes > 0 && !rows.push(place, of_range) {
            return;
        }
        place = place.saturating_add(u32::from(*bytes));
    }
    rows.push(place, None);
}

/// `co_linetable` of 3.11 and later. An entry starts with the only one of its bytes whose highest bit is set: its form, and its
/// length in units of bytecode.
fn locations(table: &[u8], first: i64, rows: &mut Rows) {
    /// Forms that differ in how lines are encoded.
    const ONE_LINE: std::ops::RangeInclusive<u8> = 10..=12;
    const NO_COLUMNS: u8 = 13;
    const LONG: u8 = 14;
    const NONE: u8 = 15;
    let (mut place, mut line) = (0_u32, first);
    let mut rest = table;
    while let Some((start, after)) = rest.split_first() {
        rest = after;
        if start & 0x80 == 0 {
            continue;
        }
        let form = start >> 3 & 15;
        let of_entry = match form {
            NONE => None,
            NO_COLUMNS | LONG => {
                line = line.saturating_add(signed_varint(after));
                Some(line)
            }
            form if ONE_LINE.contains(&form) => {
                line = line.saturating_add(i64::from(form - ONE_LINE.start()));
                Some(line)
            }
            _ => Some(line),
        };
        if !rows.push(place, of_entry) {
            return;
        }
        place = place.saturating_add((u32::from(start & 7) + 1) * UNIT_BYTES);
    }
    rows.push(place, None);
}

/// A number in groups of six bits, the least significant ones first; bit 6 is set in all groups but the last. Its lowest bit is
/// the sign.
fn signed_varint(bytes: &[u8]) -> i64 {
    const GROUPS_MAX: u32 = 6;
    let mut number = 0_i64;
    for (group, byte) in (0..GROUPS_MAX).zip(bytes) {
        number |= i64::from(byte & 0x3f) << (group * 6);
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = number >> 1;
    if number & 1 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use sidewinder_vm_runtime::lines::ROWS_MAX;

    fn rows(form: LineForm, table: &[u8]) -> Vec<(u32, u32)> {
        decode(form, table, 10).rows()
    }

    /// The example of `Objects/lnotab_notes.txt`: increments that don't fit in one pair, and lines that go back.
    #[test]
    fn increments_add_up() {
        let table = [6, 1, 44, 5, 255, 0, 45, 127, 0, 73, 2, 0_u8.wrapping_sub(3)];
        let expected = [(0, 10), (6, 11), (50, 16), (350, 216), (352, 213)];
        assert_eq!(rows(LineForm::Increments, &table), expected);
        assert_eq!(rows(LineForm::Increments, &[]), [(0, 10)]);
        assert_eq!(rows(LineForm::Increments, &[0, 1, 4]), [(0, 11)], "half a pair");
    }

    #[test]
    fn ranges_may_have_no_line_or_no_length() {
        let table = [6, 0, 4, 0x80, 0, 100, 8, 1, 2, 0xff];
        let expected = [(0, 10), (6, 0), (10, 111), (18, 110), (20, 0)];
        assert_eq!(rows(LineForm::Ranges, &table), expected);
        assert_eq!(rows(LineForm::Ranges, &[]), [(0, 0)]);
    }

    #[test]
    fn locations_of_each_form_are_decoded() {
        let entry = |form: u8, units: u8| 0x80 | form << 3 | (units - 1);
        let table = [
            &[entry(0, 1), 0x11][..],             // the same line, columns in one byte
            &[entry(11, 2), 4, 9],                // one line further
            &[entry(13, 8), 0x40 | 0b10_0000, 3], // no columns: +112
            &[entry(15, 1)],                      // none
            &[entry(14, 1), 0b1011, 0, 1, 2],     // long: -5
        ];
        let expected = [(0, 10), (2, 11), (6, 123), (22, 0), (24, 118), (26, 0)];
        assert_eq!(rows(LineForm::Locations, &table.concat()), expected);
    }

    #[test]
    fn a_place_has_the_line_of_the_row_before_it() {
        let lines = decode(LineForm::Ranges, &[6, 0, 4, 0x80, 8, 1], 10);
        let at = |place| lines.at(place);
        assert_eq!([at(0), at(5), at(6), at(9)], [Some(10), Some(10), None, None]);
        assert_eq!([at(10), at(17), at(18), at(u32::MAX)], [Some(11), Some(11), None, None]);
    }

    proptest! {
        #[test]
        fn any_table_gives_sorted_rows(
            table in prop::collection::vec(any::<u8>(), 0..2048),
            first: i32,
            form in prop::sample::select(vec![LineForm::Increments, LineForm::Ranges, LineForm::Locations]),
        ) {
            let lines = decode(form, &table, first);
            let rows = lines.rows();
            prop_assert!(rows.is_sorted_by(|(a, _), (b, _)| a < b));
            prop_assert!(rows.len() <= table.len() + 2);
        }
    }

    #[test]
    fn rows_are_bounded() {
        let table: Vec<u8> =
            (0..64 << 10).map(|at| if at % 2 == 0 { 1 } else { 1 + (at / 2 % 2) as u8 }).collect();
        for form in [LineForm::Increments, LineForm::Ranges] {
            let lines = decode(form, &table, 1);
            assert_eq!(lines.rows().len(), ROWS_MAX);
            assert_eq!(lines.at(u32::MAX), None);
            assert!(lines.heap_bytes() <= 128 << 10);
        }
    }
}
