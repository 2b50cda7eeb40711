//! Finds the symbols that reach an address.

use super::entry::SymbolEntry;

/// Entries of a block, whose farthest end is kept.
const BLOCK_ENTRIES: usize = 64;

/// Entries in order, each once.
///
/// Which of them a lookup finds depends only on those that reach the address and on those of the last start before it, not on how
/// many others lie between: so a subset with these gives the same result.
#[derive(Debug)]
pub(super) struct SymbolIndex {
    entries: Vec<SymbolEntry>,
    /// For each block of entries, the end of the one that ends last. Functions that nest are found by it, however many others the
    /// outer one holds.
    block_ends: Vec<u32>,
}

impl SymbolIndex {
    /// Of entries in any order.
    pub(super) fn new(entries: Vec<SymbolEntry>) -> Self {
        let mut index = Self { entries, block_ends: Vec::new() };
        index.restore_order();
        index.entries.shrink_to_fit();
        index.block_ends.shrink_to_fit();
        index
    }

    /// Empty, with memory for this many entries.
    pub(super) fn with_capacity(entries: usize) -> Self {
        Self { entries: Vec::with_capacity(entries), block_ends: Vec::with_capacity(blocks(entries)) }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.block_ends.clear();
    }

    /// Adds entries, some of which may be present.
    pub(super) fn extend(&mut self, more: Vec<SymbolEntry>) {
        self.entries.extend(more);
        self.restore_order();
    }

    fn restore_order(&mut self) {
        self.entries.sort_unstable();
        self.entries.dedup();
        let end = |block: &[SymbolEntry]| block.iter().map(SymbolEntry::end).max().unwrap_or_default();
        self.block_ends.clear();
        self.block_ends.extend(self.entries.chunks(BLOCK_ENTRIES).map(end));
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<SymbolEntry>() + self.block_ends.capacity() * size_of::<u32>()
    }

    /// The last start at or before an offset.
    pub(super) fn last_start(&self, offset: u32) -> Option<u32> {
        Some(self.up_to(offset).last()?.start)
    }

    /// The last start of an entry that reaches an offset.
    pub(super) fn last_start_reaching(&self, offset: u32) -> Option<u32> {
        let before = self.up_to(offset);
        let blocks = before.chunks(BLOCK_ENTRIES).zip(&self.block_ends).rev();
        let mut reaching = blocks.filter(|(_, end)| **end > offset);
        reaching
            .find_map(|(block, _)| block.iter().rfind(|entry| entry.reaches(offset)))
            .map(|entry| entry.start)
    }

    /// The entries with a start.
    pub(super) fn starting_at(&self, start: u32) -> &[SymbolEntry] {
        let up_to = self.up_to(start);
        let first = up_to.partition_point(|entry| entry.start < start);
        up_to.get(first..).unwrap_or_default()
    }

    /// The entries that start at or before an offset.
    fn up_to(&self, offset: u32) -> &[SymbolEntry] {
        let after = self.entries.partition_point(|entry| entry.start <= offset);
        self.entries.get(..after).unwrap_or_default()
    }
}

fn blocks(entries: usize) -> usize {
    entries.div_ceil(BLOCK_ENTRIES)
}
