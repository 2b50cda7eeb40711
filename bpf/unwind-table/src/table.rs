//! The unwind table: sorted rows with interned entries.

use std::fmt;
use std::ops::Range;

use sidewinder_address::Svma;

use crate::entries::EntryInterner;
use crate::rows::{CompactRow, RowBuffer};
use crate::rule::{Entry, Rule};
use crate::summary::Summary;

/// An entry, with the address from which it holds until the next row.
///
/// Its `Display` is one line of the stable text form, four columns separated by tabs: start (`0x` and
/// lower-case hex), CFA, frame pointer, return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnwindRow {
    /// The first address.
    pub start: Svma,
    /// The entry that holds there.
    pub entry: Entry,
}

impl fmt::Display for UnwindRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}", self.start, self.entry)
    }
}

/// The unwind table of one file.
///
/// Rows are sorted by start, no two neighbours have equal entries, and the last one is an end. Addresses below the first
/// row have no information. It takes six bytes per row, plus the distinct entries, of which there are at most 65,535.
#[derive(Clone, Debug)]
pub struct UnwindTable {
    base: Svma,
    /// Starts in bytes from the base, and entries as indices into `entries`.
    rows: RowBuffer,
    entries: Vec<Entry>,
    /// Ranges with rows from the machine code, in bytes from the base.
    by_machine_code: Vec<(u32, u32)>,
    summary: Summary,
}

impl UnwindTable {
    /// Creates a table from rows whose starts are relative to `base` and whose entries are in `entries`.
    #[must_use]
    pub fn new(base: Svma, mut rows: RowBuffer, entries: EntryInterner, summary: Summary) -> Self {
        rows.shrink_to_fit();
        let entries = entries.retain(rows.ids_mut());
        Self { base, rows, entries, by_machine_code: Vec::new(), summary }
    }

    /// Records the ranges with rows from the machine code: sorted, in bytes from the base.
    #[must_use]
    pub fn with_machine_code(self, by_machine_code: Vec<(u32, u32)>) -> Self {
        Self { by_machine_code, ..self }
    }

    /// The ranges with rows from the machine code ([`RowSource::MachineCode`](crate::RowSource::MachineCode)), in order.
    pub fn by_machine_code(&self) -> impl Iterator<Item = Range<Svma>> + '_ {
        let svma = |at: u32| Svma(self.base.0.saturating_add(u64::from(at)));
        self.by_machine_code.iter().map(move |(start, end)| svma(*start)..svma(*end))
    }

    /// Replaces the rules of some ranges, which are sorted by start. If ranges overlap, the first holds; a range too far
    /// from the table's base is ignored.
    #[must_use]
    pub fn with_corrections(&self, rules: impl IntoIterator<Item = (Range<Svma>, Rule)>) -> Self {
        let mut entries = EntryInterner::new();
        let mut given = RowBuffer::default();
        for row in self.rows() {
            if let Some(start) = self.offset(row.start) {
                given.push((start, entries.intern(row.entry)));
            }
        }
        let mut corrections = RowBuffer::default();
        let mut last_end = 0;
        for (range, rule) in rules {
            let Some((start, end)) = self.offset(range.start).zip(self.offset(range.end)) else { continue };
            if start >= last_end {
                corrections.push((start, entries.intern(Entry::Rule(rule))));
                corrections.push((end, EntryInterner::NO_INFORMATION));
                last_end = end;
            }
        }
        let rows = corrections.merge_over(given, &entries);
        let by_machine_code = self.by_machine_code.clone();
        Self::new(self.base, rows, entries, self.summary.clone()).with_machine_code(by_machine_code)
    }

    fn offset(&self, at: Svma) -> Option<u32> {
        u32::try_from(at.checked_offset_from(self.base)?).ok()
    }

    /// The rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = UnwindRow> + Clone + '_ {
        (0..self.rows.len()).map(|index| self.row(self.rows.get(index).unwrap_or_default()))
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no information for any address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The entry for an address.
    #[must_use]
    pub fn lookup(&self, at: Svma) -> Entry {
        self.row_at(at).map_or(Entry::NO_INFORMATION, |row| row.entry)
    }

    /// The row that covers an address; `None` below the first row.
    #[must_use]
    pub fn row_at(&self, at: Svma) -> Option<UnwindRow> {
        Some(self.row(self.rows.at(at.checked_offset_from(self.base)?)?))
    }

    /// The first row that starts above an address.
    #[must_use]
    pub fn row_after(&self, at: Svma) -> Option<UnwindRow> {
        let after = match at.checked_offset_from(self.base) {
            None => self.rows.get(0),
            Some(offset) => self.rows.rows_after(u32::try_from(offset).ok()?).next(),
        };
        after.map(|row| self.row(row))
    }

    /// The distinct entries of the rows. The first is [`Entry::NO_INFORMATION`].
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The sources of the table.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    fn row(&self, (start, id): CompactRow) -> UnwindRow {
        let start = Svma(self.base.0.saturating_add(u64::from(start)));
        UnwindRow {
            start,
            entry: self.entries.get(usize::from(id)).copied().unwrap_or(Entry::NO_INFORMATION),
        }
    }
}
