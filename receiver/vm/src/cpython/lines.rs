//! The lines of a function's instructions.
//!
//! Source: `Objects/lnotab_notes.txt` (3.8 to 3.10), `InternalDocs/code_objects.md` (3.11+).

use super::layout::LineForm;

/// Rows that are kept of one function: as many as fit in 128 KiB. Lines behind them are unknown.
const ROWS_MAX: usize = 16 << 10;
/// Bytes of a unit of bytecode.
const UNIT_BYTES: u32 = 2;

/// The line of each instruction of a function: rows with the place, an offset in bytes in the bytecode, from which on a line
/// holds, and that line, as a distance from the lowest one, from 1 on; 0 for none. Sorted, each place once. They are as narrow
/// as the largest of these numbers allows, since most functions are short.
///
/// `base` is one less than the lowest line.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Lines {
    Bytes { base: u32, rows: Box<[[u8; 2]]> },
    Halves { base: u32, rows: Box<[[u16; 2]]> },
    Words { base: u32, rows: Box<[[u32; 2]]> },
}

/// From `place` on, the line is `line`; 0 if there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    place: u32,
    line: u32,
}

impl Lines {
    /// Decodes a table; `first` is the function's first line. Whatever the table contains, there is a result.
    pub(super) fn decode(form: LineForm, table: &[u8], first: i32) -> Self {
        let mut rows = Rows(Vec::new());
        let first = i64::from(first);
        match form {
            LineForm::Increments => increments(table, first, &mut rows),
            LineForm::Ranges => ranges(table, first, &mut rows),
            LineForm::Locations => locations(table, first, &mut rows),
        }
        rows.into()
    }

    /// Lines of ranges that begin at a place, sorted by that; a line of 0 is none.
    pub(crate) fn from_rows(rows: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut kept = Rows(Vec::new());
        let _is_complete = rows.into_iter().all(|(place, line)| kept.push(place, Some(line.into())));
        kept.into()
    }

    /// The line at a place.
    pub(super) fn at(&self, place: u32) -> Option<u32> {
        let (base, distance) = match self {
            Self::Bytes { base, rows } => (base, value_at(rows, place)),
            Self::Halves { base, rows } => (base, value_at(rows, place)),
            Self::Words { base, rows } => (base, value_at(rows, place)),
        };
        distance.filter(|distance| *distance != 0).map(|distance| base.saturating_add(distance))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Bytes { rows, .. } => size_of_val(&**rows),
            Self::Halves { rows, .. } => size_of_val(&**rows),
            Self::Words { rows, .. } => size_of_val(&**rows),
        }
    }
}

/// The second number of the last row whose first one isn't higher.
fn value_at<N: Copy + Into<u32>>(rows: &[[N; 2]], place: u32) -> Option<u32> {
    let after = rows.partition_point(|[start, _]| (*start).into() <= place);
    let [_, value] = rows.get(after.checked_sub(1)?)?;
    Some((*value).into())
}

/// The rows as narrower numbers, if all fit.
fn narrowed<N: TryFrom<u32>>(rows: &[[u32; 2]]) -> Option<Box<[[N; 2]]>> {
    rows.iter().map(|[place, value]| Some([(*place).try_into().ok()?, (*value).try_into().ok()?])).collect()
}

impl From<Rows> for Lines {
    fn from(Rows(rows): Rows) -> Self {
        let lowest = rows.iter().map(|row| row.line).filter(|line| *line != 0).min();
        let base = lowest.map_or(0, |line| line - 1);
        let rows: Vec<_> = rows.iter().map(|row| [row.place, row.line.saturating_sub(base)]).collect();
        narrowed(&rows)
            .map(|rows| Self::Bytes { base, rows })
            .or_else(|| narrowed(&rows).map(|rows| Self::Halves { base, rows }))
            .unwrap_or_else(|| Self::Words { base, rows: rows.into() })
    }
}

/// Rows in the making.
struct Rows(Vec<Row>);

impl Rows {
    /// Adds a row; places don't decrease. A later row for the same place counts. False if no more are kept.
    fn push(&mut self, place: u32, line: Option<i64>) -> bool {
        let line = line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        self.0.pop_if(|row| row.place == place);
        match self.0.last() {
            Some(row) if row.line == line => {}
            _ if self.0.len() + 1 >= ROWS_MAX => {
                self.0.push(Row { place, line: 0 });
                return false;
            }
            _ => self.0.push(Row { place, line }),
        }
        true
    }
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

    impl Lines {
        fn rows(&self) -> Vec<(u32, u32)> {
            let places: Vec<u32> = match self {
                Self::Bytes { rows, .. } => rows.iter().map(|[place, _]| (*place).into()).collect(),
                Self::Halves { rows, .. } => rows.iter().map(|[place, _]| (*place).into()).collect(),
                Self::Words { rows, .. } => rows.iter().map(|[place, _]| *place).collect(),
            };
            places.into_iter().map(|place| (place, self.at(place).unwrap_or(0))).collect()
        }
    }

    fn rows(form: LineForm, table: &[u8]) -> Vec<(u32, u32)> {
        Lines::decode(form, table, 10).rows()
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
    fn rows_are_as_narrow_as_possible() {
        let bytes = |rows: &[(u32, u32)]| Lines::from_rows(rows.iter().copied()).heap_bytes();
        assert_eq!(bytes(&[(0, 1000), (200, 0), (255, 1254)]), 6);
        assert_eq!(bytes(&[(0, 1000), (5, 1255)]), 8);
        assert_eq!(bytes(&[(0, 1000), (256, 1001)]), 8);
        assert_eq!(bytes(&[(0, 1000), (65_536, 1001)]), 16);
        assert_eq!(bytes(&[]), 0);
    }

    #[test]
    fn a_place_has_the_line_of_the_row_before_it() {
        let lines = Lines::decode(LineForm::Ranges, &[6, 0, 4, 0x80, 8, 1], 10);
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
            let lines = Lines::decode(form, &table, first);
            let rows = lines.rows();
            prop_assert!(rows.is_sorted_by(|(a, _), (b, _)| a < b));
            prop_assert!(rows.len() <= table.len() + 2);
        }

        #[test]
        fn rows_of_any_size_are_kept(
            first in prop::sample::select(vec![0_u32, 1, 200, 70_000, u32::MAX - 300]),
            rows in prop::collection::btree_map(0_u32..300, 0_u32..300, 0..20),
            scale in prop::sample::select(vec![1_u32, 100, 100_000]),
        ) {
            let rows: Vec<_> = rows
                .into_iter()
                .map(|(place, line)| (place * scale, if line == 0 { 0 } else { first.saturating_add(line) }))
                .collect();
            let lines = Lines::from_rows(rows.iter().copied());
            for (place, line) in rows {
                prop_assert_eq!(lines.at(place), (line != 0).then_some(line));
            }
        }
    }

    #[test]
    fn rows_are_bounded() {
        let table: Vec<u8> =
            (0..64 << 10).map(|at| if at % 2 == 0 { 1 } else { 1 + (at / 2 % 2) as u8 }).collect();
        for form in [LineForm::Increments, LineForm::Ranges] {
            let lines = Lines::decode(form, &table, 1);
            assert_eq!(lines.rows().len(), ROWS_MAX);
            assert_eq!(lines.at(u32::MAX), None);
            assert!(lines.heap_bytes() <= 128 << 10);
        }
    }
}
