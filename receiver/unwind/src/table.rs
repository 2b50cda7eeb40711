//! The table: sorted rows over interned entries.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{Hash as _, Hasher};

use sidewinder_address::Svma;

use crate::rule::{EndReason, Entry, UnsupportedReason};

/// An entry with the address from which it is in force, up to the next row's.
///
/// Its `Display` is one line of the stable text form, four columns separated by tabs: start (`0x` and lower-case
/// hex), CFA, frame pointer, return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The first address.
    pub start: Svma,
    /// What holds there.
    pub entry: Entry,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}", self.start, self.entry)
    }
}

/// Where rows come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// A function whose place on a stack is known by its name or as the ELF entry point.
    KnownFunction,
    /// `.eh_frame`.
    EhFrame,
    /// `.gopclntab`.
    GoPclntab,
    /// `.debug_frame`.
    DebugFrame,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KnownFunction => "known function",
            Self::EhFrame => ".eh_frame",
            Self::GoPclntab => ".gopclntab",
            Self::DebugFrame => ".debug_frame",
        })
    }
}

/// What was read to make a table, and what of it could not be used.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Functions (DWARF: FDEs) that each source describes and that rows were made of.
    pub functions: BTreeMap<Source, u64>,
    /// Entries of a source that are broken: each costs the rows of its own range and nothing else.
    pub malformed: BTreeMap<Source, u64>,
    /// Entries of a source for addresses that the file doesn't execute, as linkers leave them behind for
    /// functions that they dropped.
    pub outside_code: BTreeMap<Source, u64>,
    /// Rows that state something that a [`Rule`](crate::Rule) can't, by reason, before equal neighbours merge.
    pub unsupported_rows: BTreeMap<UnsupportedReason, u64>,
}

impl Summary {
    pub(crate) fn count(counts: &mut BTreeMap<Source, u64>, source: Source) {
        *counts.entry(source).or_default() += 1;
    }

    pub(crate) fn count_unsupported(&mut self, entry: Entry) {
        if let Entry::End(EndReason::Unsupported(reason)) = entry {
            *self.unsupported_rows.entry(reason).or_default() += 1;
        }
    }

    /// All broken entries.
    #[must_use]
    pub fn malformed_total(&self) -> u64 {
        self.malformed.values().sum()
    }

    /// All rows that can't be stated.
    #[must_use]
    pub fn unsupported_total(&self) -> u64 {
        self.unsupported_rows.values().sum()
    }
}

/// The index of an interned entry.
pub(crate) type EntryId = u16;

/// The distinct entries of a table. The first is always [`Entry::NO_INFORMATION`].
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    by_id: Vec<Entry>,
    ids: HashMap<Entry, EntryId>,
    /// Entries asked for lately, each in its slot by [`SlotHasher`]: functions repeat each other, and hashing for
    /// `ids`, which input can't degrade, would take a fifth of the time.
    recent: Box<[(Entry, EntryId)]>,
}

impl Entries {
    pub(crate) const NO_INFORMATION: EntryId = 0;
    const TOO_MANY: EntryId = 1;
    const RECENT_SLOTS: usize = 256;

    pub(crate) fn new() -> Self {
        let by_id = vec![Entry::NO_INFORMATION, Entry::unsupported(UnsupportedReason::TooManyRules)];
        let ids = by_id.iter().zip(0..).map(|(entry, id)| (*entry, id)).collect();
        let recent = vec![(Entry::NO_INFORMATION, Self::NO_INFORMATION); Self::RECENT_SLOTS];
        Self { by_id, ids, recent: recent.into_boxed_slice() }
    }

    /// The id of `entry`, or of the reason why it can't have one.
    pub(crate) fn intern(&mut self, entry: Entry) -> EntryId {
        let slot = SlotHasher::slot(&entry, self.recent.len());
        if let Some((recent, id)) = self.recent.get(slot)
            && *recent == entry
        {
            return *id;
        }
        let id = self.look_up_or_add(entry);
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = (entry, id);
        }
        id
    }

    fn look_up_or_add(&mut self, entry: Entry) -> EntryId {
        if let Some(id) = self.ids.get(&entry) {
            return *id;
        }
        let Ok(id) = EntryId::try_from(self.by_id.len()) else { return Self::TOO_MANY };
        self.by_id.push(entry);
        self.ids.insert(entry, id);
        id
    }

    fn get(&self, id: EntryId) -> Entry {
        self.by_id.get(usize::from(id)).copied().unwrap_or(Entry::NO_INFORMATION)
    }
}

/// A hash that is quick on the few small integers of an entry, for a slot that may as well be the wrong one.
#[derive(Default)]
struct SlotHasher(u64);

impl SlotHasher {
    fn slot(entry: &Entry, slots: usize) -> usize {
        let mut hasher = Self::default();
        entry.hash(&mut hasher);
        (hasher.0 >> 32) as usize % slots
    }

    fn mix(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_i32(&mut self, value: i32) {
        self.mix(u64::from(value.cast_unsigned()));
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(value as u64);
    }
}

/// The start of a row as bytes from the table's base, and the entry in force from there.
pub(crate) type CompactRow = (u32, EntryId);

/// Rows of a part of the code, in order.
///
/// No two neighbours are equal, each start is above the one before, and the last is an end: what a sink of
/// sorted rows has seen so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowBuffer {
    starts: Vec<u32>,
    ids: Vec<EntryId>,
}

impl RowBuffer {
    /// Put `id` in force from `start`, which may not lie below any start given before.
    pub(crate) fn push(&mut self, (start, id): CompactRow) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.ids.pop();
        }
        debug_assert!(self.starts.last().is_none_or(|last| *last < start), "rows come sorted");
        let in_force = self.ids.last().copied().unwrap_or(Entries::NO_INFORMATION);
        if in_force != id {
            self.starts.push(start);
            self.ids.push(id);
        }
    }

    fn iter(&self) -> impl Iterator<Item = CompactRow> {
        self.starts.iter().copied().zip(self.ids.iter().copied())
    }

    /// These rows, and where they have no information or a broken entry, those of `lower`.
    pub(crate) fn over(&self, lower: &Self, entries: &Entries) -> Self {
        let yields =
            |id| matches!(entries.get(id), Entry::End(EndReason::NoInformation | EndReason::Malformed));
        let mut merged = Self::default();
        let (mut above, mut below) = (self.iter().peekable(), lower.iter().peekable());
        let (mut id_above, mut id_below) = (Entries::NO_INFORMATION, Entries::NO_INFORMATION);
        while let Some(start) = match (above.peek(), below.peek()) {
            (Some((a, _)), Some((b, _))) => Some(*a.min(b)),
            (Some((only, _)), None) | (None, Some((only, _))) => Some(*only),
            (None, None) => None,
        } {
            if let Some((_, id)) = above.next_if(|(at, _)| *at == start) {
                id_above = id;
            }
            if let Some((_, id)) = below.next_if(|(at, _)| *at == start) {
                id_below = id;
            }
            let lower_speaks = id_below != Entries::NO_INFORMATION;
            merged.push((start, if yields(id_above) && lower_speaks { id_below } else { id_above }));
        }
        merged
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }
}

/// Lays the rows of ranges that come sorted by start over one another.
///
/// An address in several ranges belongs to the one that starts last; of equal starts, to the one that came
/// last. Where a range ends, what it lay over shows again.
#[derive(Default)]
pub(crate) struct RangeStack {
    open: Vec<RangeRows>,
    spare: Vec<Vec<CompactRow>>,
}

/// The rows of one range, such as a function.
pub(crate) struct RangeRows {
    start: u32,
    end: u32,
    rows: Vec<CompactRow>,
    /// The first of `rows` that hasn't been put out.
    next: usize,
}

impl RangeRows {
    /// Put `id` in force from `start`, which may not lie below any start given before. Outside the range it has
    /// no effect.
    pub(crate) fn put(&mut self, start: u32, id: EntryId) {
        if (self.start..self.end).contains(&start) {
            self.rows.pop_if(|(last, _)| *last == start);
            self.rows.push((start, id));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Put `id` in force everywhere instead of all that was put so far.
    pub(crate) fn put_only(&mut self, id: EntryId) {
        self.rows.clear();
        self.rows.push((self.start, id));
    }
}

impl RangeStack {
    /// A range without rows, for [`open`](Self::open).
    pub(crate) fn range(&mut self, (start, end): (u32, u32)) -> RangeRows {
        RangeRows { start, end, rows: self.spare.pop().unwrap_or_default(), next: 0 }
    }

    /// Begin a range, which may not start below any opened before.
    pub(crate) fn open(&mut self, mut range: RangeRows, out: &mut RowBuffer) {
        self.put_out_until(range.start, out);
        if range.rows.first().is_none_or(|(first, _)| *first > range.start) {
            range.rows.insert(0, (range.start, Entries::NO_INFORMATION));
        }
        self.open.push(range);
    }

    /// End all ranges.
    pub(crate) fn finish(mut self, out: &mut RowBuffer) {
        self.put_out_until(u32::MAX, out);
    }

    fn put_out_until(&mut self, limit: u32, out: &mut RowBuffer) {
        while let Some(top) = self.open.last_mut() {
            let until = top.end.min(limit);
            while let Some(row) = top.rows.get(top.next).filter(|(start, _)| *start < until) {
                out.push(*row);
                top.next += 1;
            }
            if top.end > limit {
                return;
            }
            let end = top.end;
            self.close();
            self.resume(end, out);
        }
    }

    /// Show what the range that ended at `at` lay over.
    fn resume(&mut self, at: u32, out: &mut RowBuffer) {
        while self.open.last().is_some_and(|below| below.end <= at) {
            self.close();
        }
        let mut in_force = Entries::NO_INFORMATION;
        if let Some(below) = self.open.last_mut() {
            let passed =
                below.rows.get(below.next..).map_or(0, |rest| rest.partition_point(|row| row.0 <= at));
            below.next += passed;
            if let Some((_, id)) = below.next.checked_sub(1).and_then(|last| below.rows.get(last)) {
                in_force = *id;
            }
        }
        out.push((at, in_force));
    }

    fn close(&mut self) {
        if let Some(mut closed) = self.open.pop() {
            closed.rows.clear();
            self.spare.push(closed.rows);
        }
    }
}

/// The unwind table of one file.
///
/// Rows are sorted by start, no two neighbours say the same, and the last one is an end. Addresses below the first
/// row have no information. Six bytes a row, plus the distinct entries, of which there are at most 65,535.
#[derive(Clone, Debug)]
pub struct UnwindTable {
    base: Svma,
    rows: RowBuffer,
    entries: Vec<Entry>,
    summary: Summary,
}

impl UnwindTable {
    /// Keep of `entries` those that `rows` use.
    pub(crate) fn new(base: Svma, rows: RowBuffer, entries: &Entries, summary: Summary) -> Self {
        let RowBuffer { mut starts, mut ids } = rows;
        starts.shrink_to_fit();
        ids.shrink_to_fit();
        let mut used = vec![Entry::NO_INFORMATION];
        let mut new_ids = vec![None; entries.by_id.len()];
        if let Some(new_id) = new_ids.first_mut() {
            *new_id = Some(Entries::NO_INFORMATION);
        }
        for id in &mut ids {
            let entry = entries.get(*id);
            if let Some(new_id) = new_ids.get_mut(usize::from(*id)) {
                *id = *new_id.get_or_insert_with(|| {
                    used.push(entry);
                    // There are no more of them than ids.
                    (used.len() - 1) as EntryId
                });
            }
        }
        Self { base, rows: RowBuffer { starts, ids }, entries: used, summary }
    }

    /// The rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row> + Clone + '_ {
        self.rows.starts.iter().zip(&self.rows.ids).map(|(start, id)| self.row(*start, *id))
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.starts.len()
    }

    /// Whether nothing is known of any address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What holds at an address.
    #[must_use]
    pub fn lookup(&self, at: Svma) -> Entry {
        self.row_at(at).map_or(Entry::NO_INFORMATION, |row| row.entry)
    }

    /// The row in force at an address, unless it lies below the first.
    #[must_use]
    pub fn row_at(&self, at: Svma) -> Option<Row> {
        let offset = at.checked_offset_from(self.base)?;
        let after = self.rows.starts.partition_point(|start| u64::from(*start) <= offset);
        let index = after.checked_sub(1)?;
        Some(self.row(*self.rows.starts.get(index)?, *self.rows.ids.get(index)?))
    }

    /// The distinct entries of the rows. The first is [`Entry::NO_INFORMATION`].
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What the table was made of.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    fn row(&self, start: u32, id: EntryId) -> Row {
        let start = Svma(self.base.0.saturating_add(u64::from(start)));
        Row { start, entry: self.entries.get(usize::from(id)).copied().unwrap_or(Entry::NO_INFORMATION) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;

    fn rows(buffer: &RowBuffer) -> Vec<CompactRow> {
        buffer.iter().collect()
    }

    fn laid_over(ranges: &[(u32, u32, &[CompactRow])]) -> Vec<CompactRow> {
        let mut stack = RangeStack::default();
        let mut out = RowBuffer::default();
        for (start, end, rows) in ranges {
            let mut range = stack.range((*start, *end));
            rows.iter().for_each(|(at, id)| range.put(*at, *id));
            stack.open(range, &mut out);
        }
        stack.finish(&mut out);
        rows(&out)
    }

    #[test]
    fn a_gap_after_a_range_is_an_explicit_end() {
        let ranges: [(u32, u32, &[CompactRow]); 2] = [(10, 20, &[(10, 5)]), (30, 40, &[(30, 5)])];
        assert_eq!(laid_over(&ranges), [(10, 5), (20, 0), (30, 5), (40, 0)]);
    }

    #[test]
    fn equal_neighbours_merge_across_adjacent_ranges() {
        let ranges: [(u32, u32, &[CompactRow]); 2] = [(10, 20, &[(10, 5), (12, 6)]), (20, 40, &[(20, 6)])];
        assert_eq!(laid_over(&ranges), [(10, 5), (12, 6), (40, 0)]);
    }

    #[test]
    fn an_inner_range_hides_the_outer_one_which_then_resumes_where_it_stands() {
        let ranges: [(u32, u32, &[CompactRow]); 2] =
            [(0, 100, &[(0, 5), (25, 6), (35, 7), (90, 8)]), (20, 40, &[(20, 9)])];
        assert_eq!(laid_over(&ranges), [(0, 5), (20, 9), (40, 7), (90, 8), (100, 0)]);
    }

    #[test]
    fn a_range_that_starts_later_wins_beyond_the_end_of_the_earlier_one() {
        let ranges: [(u32, u32, &[CompactRow]); 2] = [(0, 30, &[(0, 5)]), (20, 40, &[(20, 6)])];
        assert_eq!(laid_over(&ranges), [(0, 5), (20, 6), (40, 0)]);
    }

    #[test]
    fn of_equal_starts_the_last_given_wins() {
        let ranges: [(u32, u32, &[CompactRow]); 2] = [(0, 30, &[(0, 5)]), (0, 10, &[(0, 6)])];
        assert_eq!(laid_over(&ranges), [(0, 6), (10, 5), (30, 0)]);
    }

    #[test]
    fn a_lower_layer_shows_only_through_gaps_and_broken_entries() {
        let mut entries = Entries::new();
        let rule = entries.intern(Entry::Rule(Rule::LEAF));
        let below = entries.intern(Entry::Rule(Rule::FRAME_POINTER));
        let broken = entries.intern(Entry::End(EndReason::Malformed));
        let unsupported = entries.intern(Entry::unsupported(UnsupportedReason::CfaExpression));
        let mut upper = RowBuffer::default();
        for row in
            [(10, rule), (20, broken), (30, unsupported), (40, Entries::NO_INFORMATION), (70, rule), (80, 0)]
        {
            upper.push(row);
        }
        let mut lower = RowBuffer::default();
        for row in [(5, below), (60, Entries::NO_INFORMATION)] {
            lower.push(row);
        }
        assert_eq!(
            rows(&upper.over(&lower, &entries)),
            [
                (5, below),
                (10, rule),
                (20, below),
                (30, unsupported),
                (40, below),
                (60, 0),
                (70, rule),
                (80, 0)
            ]
        );
    }

    #[test]
    fn more_distinct_rules_than_ids_end_with_their_reason() {
        let mut entries = Entries::new();
        for offset in 0..70_000 {
            entries.intern(Entry::Rule(Rule::above_stack_pointer(offset)));
        }
        let id = entries.intern(Entry::Rule(Rule::above_stack_pointer(69_999)));
        assert_eq!(entries.get(id), Entry::unsupported(UnsupportedReason::TooManyRules));
        let kept = entries.intern(Entry::Rule(Rule::above_stack_pointer(9)));
        assert_eq!(entries.get(kept), Entry::Rule(Rule::above_stack_pointer(9)));
    }
}
