//! The lines of a function's instructions.

/// Rows that are kept of one function: as many as fit in 128 KiB. Lines behind them are unknown.
pub const ROWS_MAX: usize = 16 << 10;

/// The line of each instruction of a function: rows with the place, an offset in bytes in the bytecode, from which on a line
/// holds, and that line, as a distance from the lowest one, from 1 on; 0 for none. Sorted, each place once. They are as narrow
/// as the largest of these numbers allows, since most functions are short.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Lines {
    /// Rows of u8.
    Bytes {
        /// One less than the lowest line.
        base: u32,
        /// Place and line.
        rows: Box<[[u8; 2]]>,
    },
    /// Rows of u16.
    Halves {
        /// One less than the lowest line.
        base: u32,
        /// Place and line.
        rows: Box<[[u16; 2]]>,
    },
    /// Rows of u32.
    Words {
        /// One less than the lowest line.
        base: u32,
        /// Place and line.
        rows: Box<[[u32; 2]]>,
    },
}

/// From `place` on, the line is `line`; 0 if there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    place: u32,
    line: u32,
}

impl Lines {
    /// Lines of ranges that begin at a place, sorted by that; a line of 0 is none.
    pub fn from_rows(rows: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut kept = Rows::default();
        let _is_complete = rows.into_iter().all(|(place, line)| kept.push(place, Some(line.into())));
        kept.into()
    }

    /// The line at a place.
    #[must_use]
    pub fn at(&self, place: u32) -> Option<u32> {
        let (base, distance) = match self {
            Self::Bytes { base, rows } => (base, value_at(rows, place)),
            Self::Halves { base, rows } => (base, value_at(rows, place)),
            Self::Words { base, rows } => (base, value_at(rows, place)),
        };
        distance.filter(|distance| *distance != 0).map(|distance| base.saturating_add(distance))
    }

    /// Bytes of heap memory that they use.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Bytes { rows, .. } => size_of_val(&**rows),
            Self::Halves { rows, .. } => size_of_val(&**rows),
            Self::Words { rows, .. } => size_of_val(&**rows),
        }
    }
}

#[cfg(any(test, feature = "test-support"))]
impl Lines {
    /// Each place with its line; 0 if it has none.
    #[must_use]
    pub fn rows(&self) -> Vec<(u32, u32)> {
        let places: Vec<u32> = match self {
            Self::Bytes { rows, .. } => rows.iter().map(|[place, _]| (*place).into()).collect(),
            Self::Halves { rows, .. } => rows.iter().map(|[place, _]| (*place).into()).collect(),
            Self::Words { rows, .. } => rows.iter().map(|[place, _]| *place).collect(),
        };
        places.into_iter().map(|place| (place, self.at(place).unwrap_or(0))).collect()
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
#[derive(Default, Debug)]
pub struct Rows(Vec<Row>);

impl Rows {
    /// Adds a row; places don't decrease. A later row for the same place counts. False if no more are kept.
    pub fn push(&mut self, place: u32, line: Option<i64>) -> bool {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_are_as_narrow_as_possible() {
        let bytes = |rows: &[(u32, u32)]| Lines::from_rows(rows.iter().copied()).heap_bytes();
        assert_eq!(bytes(&[(0, 1000), (200, 0), (255, 1254)]), 6);
        assert_eq!(bytes(&[(0, 1000), (5, 1255)]), 8);
        assert_eq!(bytes(&[(0, 1000), (256, 1001)]), 8);
        assert_eq!(bytes(&[(0, 1000), (65_536, 1001)]), 16);
        assert_eq!(bytes(&[]), 0);
    }

    proptest! {
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
}
