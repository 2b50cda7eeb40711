//! The memory that is left for tables, which builders of tables look at.

use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that is left for tables. The sampling thread, which loads them, states it; the threads that build tables stop
/// where it ends.
#[derive(Debug)]
pub(crate) struct TableRoom(AtomicU64);

impl TableRoom {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    pub(crate) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
