//! Overlays the ranges of one source, and then the sources.

use sidewinder_unwind_table::{CompactRow, EntryId, EntryInterner, RowBuffer};

use crate::memory::{Memory, Reservation};

/// Overlays the rows of ranges that arrive sorted by start.
///
/// An address in several ranges belongs to the one that starts last; of equal starts, to the one that arrived last.
/// Where a range ends, the range below it applies again. A range whose rows don't fit the memory has none, and neither has what
/// follows the last row that fits.
pub(crate) struct RangeStack<'memory> {
    memory: Memory<'memory>,
    open: Vec<RangeRows<'memory>>,
    spare: Vec<ReservedRows<'memory>>,
    out: RowBuffer,
    /// What `out` takes.
    out_memory: Reservation<'memory>,
    /// How many rows of `out` are reserved.
    reserved_rows: usize,
}

/// Rows that are reserved together.
const ROWS_AT_ONCE: usize = 4096;

/// The rows of one range, such as a function.
pub(crate) struct RangeRows<'memory> {
    start: u32,
    end: u32,
    rows: ReservedRows<'memory>,
    /// The index of the first of `rows` that hasn't been emitted.
    next: usize,
}

struct ReservedRows<'memory> {
    rows: Vec<CompactRow>,
    memory: Reservation<'memory>,
    /// Whether some did not fit.
    is_cut: bool,
}

impl RangeRows<'_> {
    /// Puts `id` in force from `start`, which may not lie below any start given before. Outside the range it has no
    /// effect.
    pub(crate) fn push(&mut self, start: u32, id: EntryId) {
        if (self.start..self.end).contains(&start) {
            let ReservedRows { rows, memory, is_cut } = &mut self.rows;
            rows.pop_if(|(last, _)| *last == start);
            *is_cut |= !memory.push(rows, (start, id));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.rows.is_empty()
    }

    /// Puts `id` in force throughout the range, instead of everything pushed so far.
    pub(crate) fn set_only(&mut self, id: EntryId) {
        self.rows.clear();
        self.push(self.start, id);
    }
}

impl ReservedRows<'_> {
    fn clear(&mut self) {
        self.rows.clear();
        self.is_cut = false;
    }
}

impl<'memory> RangeStack<'memory> {
    pub(crate) fn new(memory: Memory<'memory>) -> Self {
        Self {
            memory,
            open: Vec::new(),
            spare: Vec::new(),
            out: RowBuffer::default(),
            out_memory: memory.nothing(),
            reserved_rows: 0,
        }
    }

    /// A range without rows, for [`open`](Self::open).
    pub(crate) fn range(&mut self, (start, end): (u32, u32)) -> RangeRows<'memory> {
        let unused = || ReservedRows { rows: Vec::new(), memory: self.memory.nothing(), is_cut: false };
        let rows = self.spare.pop().unwrap_or_else(unused);
        RangeRows { start, end, rows, next: 0 }
    }

    /// Begins a range, which may not start below any range opened before.
    pub(crate) fn open(&mut self, mut range: RangeRows<'memory>) {
        self.flush_until(range.start);
        if range.rows.is_cut {
            range.rows.clear();
        }
        let rows = &mut range.rows.rows;
        if rows.first().is_none_or(|(first, _)| *first > range.start) {
            rows.insert(0, (range.start, EntryInterner::NO_INFORMATION));
        }
        self.open.push(range);
    }

    /// Ends all ranges, and returns the rows.
    pub(crate) fn finish(mut self) -> RowBuffer {
        self.flush_until(u32::MAX);
        self.out
    }

    fn emit(&mut self, (start, id): CompactRow) {
        if self.out.len() >= self.reserved_rows {
            if !self.out_memory.grow(ROWS_AT_ONCE * RowBuffer::ROW_BYTES) {
                self.out.push((start, EntryInterner::NO_INFORMATION));
                return;
            }
            self.reserved_rows = self.out.len() + ROWS_AT_ONCE;
        }
        self.out.push((start, id));
    }

    fn flush_until(&mut self, limit: u32) {
        while let Some(top) = self.open.last_mut() {
            let until = top.end.min(limit);
            let row = top.rows.rows.get(top.next).filter(|(start, _)| *start < until);
            if let Some(row) = row.copied() {
                top.next += 1;
                self.emit(row);
                continue;
            }
            if top.end > limit {
                return;
            }
            let end = top.end;
            self.close();
            self.resume(end);
        }
    }

    /// Resumes the ranges below the one that ended at `at`.
    fn resume(&mut self, at: u32) {
        while self.open.last().is_some_and(|below| below.end <= at) {
            self.close();
        }
        let mut in_force = EntryInterner::NO_INFORMATION;
        if let Some(below) = self.open.last_mut() {
            let passed =
                below.rows.rows.get(below.next..).map_or(0, |rest| rest.partition_point(|row| row.0 <= at));
            below.next += passed;
            if let Some((_, id)) = below.next.checked_sub(1).and_then(|last| below.rows.rows.get(last)) {
                in_force = *id;
            }
        }
        self.emit((at, in_force));
    }

    fn close(&mut self) {
        if let Some(mut closed) = self.open.pop() {
            closed.rows.clear();
            self.spare.push(closed.rows);
        }
    }
}

/// The rows of several sources, laid over each other as far as there is memory for all of them.
pub(crate) struct Layers<'memory> {
    rows: RowBuffer,
    reserved: Reservation<'memory>,
}

impl<'memory> Layers<'memory> {
    pub(crate) fn new(memory: Memory<'memory>) -> Self {
        Self { rows: RowBuffer::default(), reserved: memory.nothing() }
    }

    /// Adds a source below the others, or leaves it out if its rows don't fit.
    pub(crate) fn add_below(&mut self, rows: RowBuffer, entries: &EntryInterner) {
        if self.reserved.grow(rows.len() * RowBuffer::ROW_BYTES) {
            self.rows = overlay(std::mem::take(&mut self.rows), rows, entries);
        }
    }

    /// The same above the others.
    pub(crate) fn add_above(&mut self, rows: RowBuffer, entries: &EntryInterner) {
        if self.reserved.grow(rows.len() * RowBuffer::ROW_BYTES) {
            self.rows = overlay(rows, std::mem::take(&mut self.rows), entries);
        }
    }

    pub(crate) fn rows(&self) -> &RowBuffer {
        &self.rows
    }

    pub(crate) fn into_rows(self) -> RowBuffer {
        self.rows
    }
}

/// Overlays one layer on another: where the upper one has no information, the lower one applies.
pub(crate) fn overlay(above: RowBuffer, below: RowBuffer, entries: &EntryInterner) -> RowBuffer {
    match (above.is_empty(), below.is_empty()) {
        (_, true) => above,
        (true, false) => below,
        (false, false) => above.merge_over(below, entries),
    }
}

/// The rows of a layer without those that the layer above it hides.
pub(crate) fn visible(below: RowBuffer, above: &RowBuffer, entries: &EntryInterner) -> RowBuffer {
    let mut out = RowBuffer::default();
    let mut rows = below.into_rows().peekable();
    while let Some((start, id)) = rows.next() {
        let Some((end, _)) = rows.peek().filter(|_| id != EntryInterner::NO_INFORMATION) else {
            out.push((start, EntryInterner::NO_INFORMATION));
            continue;
        };
        for (from, to) in above.gaps(start, *end, entries) {
            out.push((from, id));
            out.push((to, EntryInterner::NO_INFORMATION));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryBudget;

    fn rows(buffer: &RowBuffer) -> Vec<CompactRow> {
        buffer.clone().into_rows().collect()
    }

    fn laid_over(ranges: &[(u32, u32, &[CompactRow])]) -> Vec<CompactRow> {
        laid_over_within(Memory::UNSHARED, ranges)
    }

    fn laid_over_within(memory: Memory<'_>, ranges: &[(u32, u32, &[CompactRow])]) -> Vec<CompactRow> {
        let mut stack = RangeStack::new(memory);
        for (start, end, rows) in ranges {
            let mut range = stack.range((*start, *end));
            rows.iter().for_each(|(at, id)| range.push(*at, *id));
            stack.open(range);
        }
        rows(&stack.finish())
    }

    #[test]
    fn a_source_that_does_not_fit_beside_the_others_is_left_out() {
        let entries = EntryInterner::new();
        let budget = MemoryBudget::new(3 * RowBuffer::ROW_BYTES as u64);
        let mut layers = Layers::new(Memory::limited_by(&budget));
        let source = |from| {
            let mut rows = RowBuffer::default();
            rows.push((from, EntryInterner::SOMETHING));
            rows.push((from + 8, EntryInterner::NO_INFORMATION));
            rows
        };
        layers.add_below(source(0), &entries);
        layers.add_below(source(16), &entries);
        assert_eq!(rows(layers.rows()), rows(&source(0)));
        assert_eq!(budget.refused_bytes(), Some(2 * RowBuffer::ROW_BYTES as u64));
    }

    #[test]
    fn a_range_whose_rows_do_not_fit_has_none() {
        let many: Vec<CompactRow> = (100..10_000).map(|at| (at, 5 + (at % 2) as EntryId)).collect();
        let ranges: [(u32, u32, &[CompactRow]); 3] =
            [(10, 20, &[(10, 5)]), (100, 10_000, &many), (10_000, 10_010, &[(10_000, 6)])];
        let budget = MemoryBudget::new(60_000);
        let laid_over = laid_over_within(Memory::limited_by(&budget), &ranges);
        assert_eq!(laid_over, [(10, 5), (20, 0), (10_000, 6), (10_010, 0)]);
        assert!(budget.refused_bytes().is_some());
        assert!(budget.take(60_000), "all was given back");
    }

    #[test]
    fn what_follows_the_last_row_that_fits_has_no_information() {
        let ranges: Vec<_> = (0..5000_u32).map(|at| (4 * at, 4 * at + 2, [(4 * at, 5)])).collect();
        let ranges: Vec<(u32, u32, &[CompactRow])> =
            ranges.iter().map(|(start, end, rows)| (*start, *end, &rows[..])).collect();
        let budget = MemoryBudget::new(30_000);
        let laid_over = laid_over_within(Memory::limited_by(&budget), &ranges);
        assert_eq!(laid_over.len(), ROWS_AT_ONCE);
        assert_eq!(laid_over.last().unwrap().1, EntryInterner::NO_INFORMATION);
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
    fn a_layer_is_visible_where_the_one_above_has_no_rows() {
        let buffer = |rows: &[CompactRow]| {
            let mut buffer = RowBuffer::default();
            rows.iter().for_each(|row| buffer.push(*row));
            buffer
        };
        let below = buffer(&[(10, 5), (20, 6), (30, 0), (50, 5), (60, 0)]);
        let seen =
            |above: &[CompactRow]| rows(&visible(below.clone(), &buffer(above), &EntryInterner::new()));
        assert_eq!(seen(&[]), rows(&below));
        assert_eq!(seen(&[(0, 7), (100, 0)]), []);
        assert_eq!(seen(&[(15, 7), (25, 0)]), [(10, 5), (15, 0), (25, 6), (30, 0), (50, 5), (60, 0)]);
        assert_eq!(seen(&[(10, 7), (12, 8), (30, 0)]), [(50, 5), (60, 0)]);
        assert_eq!(seen(&[(52, 7), (60, 0)]), [(10, 5), (20, 6), (30, 0), (50, 5), (52, 0)]);
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
}
