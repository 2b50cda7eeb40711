//! A small cache of pages of files and of compressed sections, and the budget of bytes that may be read.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gimli::{Error, Result};
use lru::LruCache;

/// A power of two.
pub(super) const PAGE_BYTES: u64 = 16 << 10;

/// Identifies the source of pages: a file or a compressed section.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ImageId(u64);

impl ImageId {
    /// A new, unique ID.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A file or a compressed section, and the index of a page in it.
pub(super) type PageId = (ImageId, u64);

/// The most recently used pages of all files, and the remaining bytes that may be read, which bounds the work a
/// malicious file can cause.
#[derive(Debug)]
pub(crate) struct PageCache {
    held: RefCell<LruCache<PageId, Arc<[u8]>>>,
    pages_max: Cell<usize>,
    work_left_bytes: Cell<u64>,
    is_exhausted: Cell<bool>,
}

impl PageCache {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self {
            held: RefCell::new(LruCache::unbounded()),
            pages_max: Cell::new(pages_max(budget_bytes)),
            work_left_bytes: Cell::new(0),
            is_exhausted: Cell::new(false),
        }
    }

    /// Sets the budget. Pages that no longer fit are dropped.
    pub(crate) fn set_budget(&self, bytes: usize) {
        self.pages_max.set(pages_max(bytes));
        let mut held = self.held.borrow_mut();
        while held.len() > self.pages_max.get() {
            held.pop_lru();
        }
    }

    /// Allows this many bytes to be read from now on.
    pub(crate) fn set_work_budget(&self, work_bytes: u64) {
        self.work_left_bytes.set(work_bytes);
        self.is_exhausted.set(false);
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held.borrow().len() * PAGE_BYTES as usize
    }

    /// Whether more bytes were wanted than the budget allowed.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    pub(super) fn spend(&self, bytes: u64) -> Result<()> {
        let Some(left) = self.work_left_bytes.get().checked_sub(bytes) else {
            self.is_exhausted.set(true);
            return Err(Error::Io);
        };
        self.work_left_bytes.set(left);
        Ok(())
    }

    /// A page; `read` fills a buffer with it if it isn't held.
    pub(super) fn page(
        &self,
        page: PageId,
        read: impl FnOnce(&mut [u8]) -> Result<usize>,
    ) -> Result<Arc<[u8]>> {
        let mut held = self.held.borrow_mut();
        if let Some(bytes) = held.get(&page) {
            return Ok(Arc::clone(bytes));
        }
        let mut bytes = vec![0; PAGE_BYTES as usize];
        let count = read(&mut bytes)?;
        bytes.truncate(count);
        let bytes: Arc<[u8]> = bytes.into();
        while held.len() >= self.pages_max.get() {
            held.pop_lru();
        }
        held.put(page, Arc::clone(&bytes));
        Ok(bytes)
    }
}

fn pages_max(budget_bytes: usize) -> usize {
    (budget_bytes / PAGE_BYTES as usize).max(4)
}
