//! Rows under construction, and overlaying one layer of rows over another.

use crate::entries::{EntryId, EntryInterner};

/// The start of a row in bytes from the table's base, and its entry.
pub type CompactRow = (u32, EntryId);

/// Rows of a part of the code, in order.
///
/// No two neighbours are equal, starts are strictly increasing, and the last row is an end. Rows are kept in chunks, so
/// that growth neither moves them nor doubles the allocated memory.
#[derive(Clone, Debug, Default)]
pub struct RowBuffer {
    /// All but the last are full; none is empty.
    chunks: Vec<RowChunk>,
}

const CHUNK_ROWS: usize = 4096;

#[derive(Clone, Debug, Default)]
struct RowChunk {
    starts: Vec<u32>,
    ids: Vec<EntryId>,
}

impl RowBuffer {
    /// The memory of one row.
    pub const ROW_BYTES: usize = size_of::<u32>() + size_of::<EntryId>();

    /// Appends a row with `id` at `start`, which must not be below any previous start.
    pub fn push(&mut self, (start, id): CompactRow) {
        if self.last().is_some_and(|(last, _)| last == start) {
            self.pop();
        }
        let last = self.last();
        debug_assert!(last.is_none_or(|(last, _)| last < start), "rows come sorted");
        if last.map_or(EntryInterner::NO_INFORMATION, |(_, id)| id) == id {
            return;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.starts.len() == CHUNK_ROWS) {
            let (starts, ids) = (Vec::with_capacity(CHUNK_ROWS), Vec::with_capacity(CHUNK_ROWS));
            self.chunks.push(RowChunk { starts, ids });
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.starts.push(start);
            chunk.ids.push(id);
        }
    }

    fn pop(&mut self) {
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.starts.pop();
            chunk.ids.pop();
        }
        self.chunks.pop_if(|chunk| chunk.starts.is_empty());
    }

    fn last(&self) -> Option<CompactRow> {
        let chunk = self.chunks.last()?;
        Some((*chunk.starts.last()?, *chunk.ids.last()?))
    }

    /// Overlays these rows over `lower`: rows of `lower` replace those without information or with a broken entry.
    #[must_use]
    pub fn merge_over(self, lower: Self, entries: &EntryInterner) -> Self {
        let yielding = entries.overridable();
        let yields = |id| yielding.contains(&id);
        let mut merged = Self::default();
        let (mut above, mut below) = (self.into_rows().peekable(), lower.into_rows().peekable());
        let (mut id_above, mut id_below) = (EntryInterner::NO_INFORMATION, EntryInterner::NO_INFORMATION);
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
            let lower_speaks = id_below != EntryInterner::NO_INFORMATION;
            merged.push((start, if yields(id_above) && lower_speaks { id_below } else { id_above }));
        }
        merged
    }

    /// The rows in order. Frees chunks that were iterated.
    pub fn into_rows(self) -> impl Iterator<Item = CompactRow> {
        self.chunks.into_iter().flat_map(|chunk| chunk.starts.into_iter().zip(chunk.ids))
    }

    /// The parts of a range that another layer would fill.
    pub fn gaps(
        &self,
        start: u32,
        end: u32,
        entries: &EntryInterner,
    ) -> impl Iterator<Item = (u32, u32)> + use<'_> {
        let yielding = entries.overridable();
        let in_force = self.at(u64::from(start)).map_or(EntryInterner::NO_INFORMATION, |(_, id)| id);
        let rows = self.rows_after(start).take_while(move |(at, _)| *at < end);
        let mut rows = std::iter::once((start, in_force)).chain(rows).peekable();
        std::iter::from_fn(move || {
            loop {
                let (at, id) = rows.next()?;
                if !yielding.contains(&id) {
                    continue;
                }
                while rows.next_if(|(_, id)| yielding.contains(id)).is_some() {}
                return Some((at, rows.peek().map_or(end, |(next, _)| *next)));
            }
        })
    }

    /// The ranges with rules, in order.
    #[must_use]
    pub fn covered_ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut open = None;
        for (at, id) in self.chunks.iter().flat_map(|chunk| chunk.starts.iter().zip(&chunk.ids)) {
            match (open, *id == EntryInterner::NO_INFORMATION) {
                (Some(start), true) => {
                    ranges.push((start, *at));
                    open = None;
                }
                (None, false) => open = Some(*at),
                _ => {}
            }
        }
        ranges
    }

    /// The rows that start above an offset.
    pub fn rows_after(&self, start: u32) -> impl Iterator<Item = CompactRow> + '_ {
        let below =
            self.chunks.partition_point(|chunk| chunk.starts.last().is_some_and(|last| *last <= start));
        let chunks = self.chunks.get(below..).unwrap_or_default();
        let rows =
            chunks.iter().flat_map(|chunk| chunk.starts.iter().copied().zip(chunk.ids.iter().copied()));
        rows.skip_while(move |(at, _)| *at <= start)
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK_ROWS + last.starts.len())
    }

    /// The row with this index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<CompactRow> {
        let chunk = self.chunks.get(index / CHUNK_ROWS)?;
        Some((*chunk.starts.get(index % CHUNK_ROWS)?, *chunk.ids.get(index % CHUNK_ROWS)?))
    }

    /// The row that covers an offset.
    #[must_use]
    pub fn at(&self, offset: u64) -> Option<CompactRow> {
        let starts_by = |start: &u32| u64::from(*start) <= offset;
        let after = self.chunks.partition_point(|chunk| chunk.starts.first().is_some_and(starts_by));
        let chunk = self.chunks.get(after.checked_sub(1)?)?;
        let index = chunk.starts.partition_point(starts_by).checked_sub(1)?;
        Some((*chunk.starts.get(index)?, *chunk.ids.get(index)?))
    }

    /// The entry ids of all rows, for renumbering.
    pub fn ids_mut(&mut self) -> impl Iterator<Item = &mut EntryId> {
        self.chunks.iter_mut().flat_map(|chunk| &mut chunk.ids)
    }

    /// Frees excess capacity.
    pub fn shrink_to_fit(&mut self) {
        self.chunks.shrink_to_fit();
        if let Some(last) = self.chunks.last_mut() {
            last.starts.shrink_to_fit();
            last.ids.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{EndReason, Entry, Rule, UnsupportedReason};

    fn rows(buffer: &RowBuffer) -> Vec<CompactRow> {
        buffer.clone().into_rows().collect()
    }

    #[test]
    fn rows_are_found_across_chunks_by_place_and_by_index() {
        let mut buffer = RowBuffer::default();
        let count = 2 * CHUNK_ROWS as u32 + 10;
        (0..count).for_each(|row| buffer.push((row * 4, 1 + (row % 7) as EntryId)));
        assert_eq!(buffer.len(), count as usize);
        for row in [0, 1, CHUNK_ROWS as u32 - 1, CHUNK_ROWS as u32, count - 1] {
            let expected = Some((row * 4, 1 + (row % 7) as EntryId));
            assert_eq!(buffer.get(row as usize), expected);
            assert_eq!(buffer.at(u64::from(row) * 4 + 3), expected);
        }
        assert_eq!(buffer.get(count as usize), None);
        assert_eq!(buffer.at(u64::MAX), buffer.get(count as usize - 1));
    }

    #[test]
    fn a_row_is_taken_back_across_the_edge_of_a_chunk() {
        let mut buffer = RowBuffer::default();
        (0..=CHUNK_ROWS as u32).for_each(|row| buffer.push((row, 1 + (row % 2) as EntryId)));
        let (at, before) = (CHUNK_ROWS as u32, buffer.get(CHUNK_ROWS - 1));
        buffer.push((at, before.map_or(0, |(_, id)| id)));
        assert_eq!(buffer.len(), CHUNK_ROWS, "it says what the row before says");
        buffer.push((at, 9));
        assert_eq!(buffer.get(CHUNK_ROWS), Some((at, 9)));
    }

    #[test]
    fn a_lower_layer_shows_only_through_gaps_and_broken_entries() {
        let mut entries = EntryInterner::new();
        let rule = entries.intern(Entry::Rule(Rule::LEAF));
        let below = entries.intern(Entry::Rule(Rule::FRAME_POINTER));
        let broken = entries.intern(Entry::End(EndReason::Malformed));
        let unsupported = entries.intern(Entry::unsupported(UnsupportedReason::CfaExpression));
        let mut upper = RowBuffer::default();
        for row in [
            (10, rule),
            (20, broken),
            (30, unsupported),
            (40, EntryInterner::NO_INFORMATION),
            (70, rule),
            (80, 0),
        ] {
            upper.push(row);
        }
        let mut lower = RowBuffer::default();
        for row in [(5, below), (60, EntryInterner::NO_INFORMATION)] {
            lower.push(row);
        }
        assert_eq!(
            rows(&upper.merge_over(lower, &entries)),
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
}
