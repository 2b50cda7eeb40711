//! Pages of files and of compressed sections, a few of which are held, and how much may still be read.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gimli::{Error, Result};
use lru::LruCache;

/// A power of two.
pub(super) const PAGE_BYTES: u64 = 16 << 10;

/// Tells apart of what pages are held: files, and compressed sections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ImageId(u64);

impl ImageId {
    /// One that nothing has had before.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A file or a compressed section, and the number of a page in it.
pub(super) type PageId = (ImageId, u64);

/// The pages used last, of all files, and how many bytes may still be looked at: what a hostile file makes us do has an end.
#[derive(Debug)]
pub(crate) struct PageCache {
    held: RefCell<LruCache<PageId, Arc<[u8]>>>,
    pages_max: usize,
    work_left_bytes: Cell<u64>,
    is_exhausted: Cell<bool>,
}

impl PageCache {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        let pages_max = (budget_bytes / PAGE_BYTES as usize).max(4);
        Self {
            held: RefCell::new(LruCache::unbounded()),
            pages_max,
            work_left_bytes: Cell::new(0),
            is_exhausted: Cell::new(false),
        }
    }

    /// Allows so many bytes to be looked at from now on.
    pub(crate) fn set_work_budget(&self, work_bytes: u64) {
        self.work_left_bytes.set(work_bytes);
        self.is_exhausted.set(false);
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held.borrow().len() * PAGE_BYTES as usize
    }

    /// Whether more was to be looked at than is allowed.
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

    /// A page, which `read` reads into a buffer where it is not held.
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
        while held.len() >= self.pages_max {
            held.pop_lru();
        }
        held.put(page, Arc::clone(&bytes));
        Ok(bytes)
    }
}
