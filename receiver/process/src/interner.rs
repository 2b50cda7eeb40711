//! Deduplicates reported files.

use std::collections::HashSet;
use std::sync::Arc;

use crate::mapping::{Backing, MappedFile};

/// Keeps each reported file once, however many processes map it.
#[derive(Debug, Default)]
pub(crate) struct MappedFileInterner {
    files: HashSet<Arc<MappedFile>>,
    sweep_at: usize,
}

impl MappedFileInterner {
    /// The number of files at which those that are no longer mapped are first removed.
    const FIRST_SWEEP_AT: usize = 1024;

    /// Replaces a file with the known equal one.
    pub(crate) fn intern(&mut self, backing: &mut Backing) {
        let Backing::File(file) = backing else { return };
        if let Some(known) = self.files.get(file) {
            *file = Arc::clone(known);
            return;
        }
        if self.files.len() >= self.sweep_at.max(Self::FIRST_SWEEP_AT) {
            self.files.retain(|file| Arc::strong_count(file) > 1);
            self.sweep_at = self.files.len() * 2;
        }
        self.files.insert(Arc::clone(file));
    }
}
