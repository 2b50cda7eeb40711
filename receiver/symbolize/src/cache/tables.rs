//! The symbol tables of files, as many as there is room for.

use std::collections::HashSet;

use lru::LruCache;

use crate::binary::Binary;
use crate::names::{FileId, NoName};

/// Files kept open at once, well below the usual limit of 1,024 descriptors.
const OPEN_FILES_LIMIT: usize = 256;
/// What a file costs beside its index: the entry, and what it remembers of a failure.
pub(super) const FILE_BYTES: usize = 512;
/// Evicted tables that are remembered; then all of them are forgotten.
const EVICTED_MAX: usize = 16_384;

/// The symbol tables of files.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) files: LruCache<FileId, Result<Binary, NoName>>,
    pub(super) bytes: usize,
    open_files: usize,
    pub(super) budget_bytes: usize,
    pub(super) evicted: HashSet<FileId>,
    pub(super) evictions: u64,
}

impl Tables {
    pub(super) fn new(budget_bytes: usize) -> Self {
        let files = LruCache::unbounded();
        Self { files, bytes: 0, open_files: 0, budget_bytes, evicted: HashSet::new(), evictions: 0 }
    }

    pub(super) fn put(&mut self, file: FileId, table: Result<Binary, NoName>) {
        self.make_room(file_bytes(&table));
        self.bytes += file_bytes(&table);
        self.open_files += open_files(&table);
        self.files.put(file, table);
    }

    pub(super) fn forget(&mut self, file: FileId) {
        self.evicted.remove(&file);
        if let Some(table) = self.files.pop(&file) {
            self.uncount(&table);
        }
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

    pub(super) fn uncount(&mut self, table: &Result<Binary, NoName>) {
        self.bytes -= file_bytes(table);
        self.open_files -= open_files(table);
    }
}

pub(super) fn file_bytes(table: &Result<Binary, NoName>) -> usize {
    FILE_BYTES + table.as_ref().map_or(0, Binary::heap_bytes)
}

pub(super) fn open_files(table: &Result<Binary, NoName>) -> usize {
    table.as_ref().map_or(0, Binary::open_files)
}
