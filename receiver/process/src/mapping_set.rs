//! The executable mappings of one address space.

use std::collections::BTreeMap;
use std::ops::Range;

use sidewinder_address::Avma;

use crate::mapping::ExecutableMapping;

/// Executable mappings of one address space: sorted, none overlapping another, and no two that could be
/// one (contiguous in memory and in the same file).
///
/// The set is bounded. A mapping, or the rest of one that was cut in two, that would exceed the limit is
/// left out and counted; what a mapping replaces is gone all the same, so that the set never says anything
/// false.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappingSet {
    by_start: BTreeMap<Avma, ExecutableMapping>,
    limit: usize,
    left_out: u64,
}

impl MappingSet {
    /// No mappings yet, and at most `limit` ever.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { by_start: BTreeMap::new(), limit, left_out: 0 }
    }

    /// Maps: what was in the range before is replaced, and what only overlaps it is cut. An empty range
    /// changes nothing.
    pub fn insert(&mut self, mut mapping: ExecutableMapping) {
        if mapping.range.is_empty() {
            return;
        }
        self.remove(&mapping.range);
        if let Some(before) = self.before(mapping.range.start)
            && before.continues_in(&mapping)
        {
            let start = before.range.start;
            mapping.file_offset = before.file_offset;
            mapping.range.start = start;
            self.by_start.remove(&start);
        }
        if let Some(after) = self.by_start.get(&mapping.range.end)
            && mapping.continues_in(after)
        {
            let merged = mapping.range.end;
            mapping.range.end = after.range.end;
            self.by_start.remove(&merged);
        }
        self.add(mapping);
    }

    /// Unmaps a range; what only overlaps it is cut.
    pub fn remove(&mut self, range: &Range<Avma>) {
        if range.is_empty() {
            return;
        }
        let first = self.before(range.start).map_or(range.start, |before| before.range.start);
        let touched: Vec<Avma> = self
            .by_start
            .range(first..range.end)
            .filter(|(_, mapping)| mapping.range.end > range.start)
            .map(|(&start, _)| start)
            .collect();
        for start in touched {
            let Some(whole) = self.by_start.remove(&start) else { continue };
            let tail = (whole.range.end > range.end).then(|| whole.tail_from(range.end));
            if start < range.start {
                self.add(ExecutableMapping { range: start..range.start, ..whole });
            }
            if let Some(tail) = tail {
                self.add(tail);
            }
        }
    }

    /// Adds a mapping that overlaps none, if there is room.
    fn add(&mut self, mapping: ExecutableMapping) {
        if self.by_start.len() < self.limit {
            self.by_start.insert(mapping.range.start, mapping);
        } else {
            self.left_out += 1;
        }
    }

    /// How many mappings or parts of mappings are missing for lack of room.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The mapping that holds an address.
    #[must_use]
    pub fn at(&self, address: Avma) -> Option<&ExecutableMapping> {
        let (_, mapping) = self.by_start.range(..=address).next_back()?;
        mapping.range.contains(&address).then_some(mapping)
    }

    /// Whether this very mapping, or one that it is part of, is in the set.
    pub(crate) fn holds(&self, mapping: &ExecutableMapping) -> bool {
        self.at(mapping.range.start).is_some_and(|held| {
            held.range.end >= mapping.range.end
                && held.backing == mapping.backing
                && held.tail_from(mapping.range.start).file_offset == mapping.file_offset
        })
    }

    /// Whether any mapping has a byte in a range.
    pub(crate) fn overlaps(&self, range: &Range<Avma>) -> bool {
        self.before(range.end).is_some_and(|last| last.range.end > range.start)
    }

    /// All mappings by rising address.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ExecutableMapping> {
        self.by_start.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// The last mapping that starts before an address.
    fn before(&self, address: Avma) -> Option<&ExecutableMapping> {
        self.by_start.range(..address).next_back().map(|(_, mapping)| mapping)
    }
}
