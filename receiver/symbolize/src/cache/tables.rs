//! The symbol tables of files, within a byte budget.

use std::collections::HashSet;

use lru::LruCache;

use crate::binary::BinarySymbols;
use crate::names::{BinaryId, UnnamedReason};

/// Files kept open at once, well below the usual limit of 1,024 descriptors.
const OPEN_FILES_LIMIT: usize = 256;
/// The memory of a file in addition to its index: the entry, and the record of a failure.
pub(super) const FILE_BYTES: usize = 512;
/// Evicted tables that are remembered; beyond that, all of them are forgotten.
const EVICTED_MAX: usize = 16_384;

/// The symbol tables of files.
#[derive(Debug)]
pub(super) struct SymbolTableCache {
    pub(super) files: LruCache<BinaryId, Result<BinarySymbols, UnnamedReason>>,
    pub(super) bytes: usize,
    open_files: usize,
    pub(super) budget_bytes: usize,
    pub(super) evicted: HashSet<BinaryId>,
    pub(super) evictions: u64,
}

impl SymbolTableCache {
    pub(super) fn new(budget_bytes: usize) -> Self {
        let files = LruCache::unbounded();
        Self { files, bytes: 0, open_files: 0, budget_bytes, evicted: HashSet::new(), evictions: 0 }
    }

    pub(super) fn put(&mut self, file: BinaryId, table: Result<BinarySymbols, UnnamedReason>) {
        self.make_room(file_bytes(&table));
        self.bytes += file_bytes(&table);
        self.open_files += open_files(&table);
        self.files.put(file, table);
    }

    pub(super) fn forget(&mut self, file: BinaryId) {
        self.evicted.remove(&file);
        if let Some(table) = self.files.pop(&file) {
            self.uncount(&table);
        }
    }

    /// Sets the budget. What no longer fits is evicted.
    pub(super) fn set_budget(&mut self, bytes: usize) {
        self.budget_bytes = bytes;
        self.make_room(0);
    }

    pub(super) fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.budget_bytes || self.open_files >= OPEN_FILES_LIMIT {
            let Some((file, table)) = self.files.pop_lru() else { break };
            self.uncount(&table);
            self.evictions += u64::from(table.is_ok());
            if self.evicted.len() >= EVICTED_MAX {
                self.evicted.clear();
            }
            self.evicted.insert(file);
        }
    }

    pub(super) fn uncount(&mut self, table: &Result<BinarySymbols, UnnamedReason>) {
        self.bytes -= file_bytes(table);
        self.open_files -= open_files(table);
    }
}

pub(super) fn file_bytes(table: &Result<BinarySymbols, UnnamedReason>) -> usize {
    FILE_BYTES + table.as_ref().map_or(0, BinarySymbols::heap_bytes)
}

pub(super) fn open_files(table: &Result<BinarySymbols, UnnamedReason>) -> usize {
    table.as_ref().map_or(0, BinarySymbols::open_files)
}
