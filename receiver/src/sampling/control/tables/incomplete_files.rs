//! Files whose tables are incomplete or missing for lack of memory: they are counted once, and are not built in vain again.

use std::collections::HashMap;

/// Files whose tables are incomplete or missing because the memory budget doesn't allow reading them. A file that is
/// forgotten and seen again is identified by its path and its size.
#[derive(Default, Debug)]
pub(super) struct IncompleteFiles {
    /// The budget that was available for each file, in bytes.
    known: HashMap<FileKey, u64>,
    /// The number of incomplete files, including those that are no longer in `known`.
    pub(super) count: u64,
}

/// A path and a size in bytes.
pub(super) type FileKey = (Vec<u8>, u64);

impl IncompleteFiles {
    const KNOWN_MAX: usize = 4096;

    /// Adds a file. Returns whether it is new.
    pub(super) fn add(&mut self, file: FileKey, budget_bytes: u64) -> bool {
        if self.known.len() >= Self::KNOWN_MAX {
            self.known.clear();
        }
        let is_new = self.known.insert(file, budget_bytes).is_none();
        self.count += u64::from(is_new);
        is_new
    }

    /// Whether a build of a file would probably run out of budget again: less than twice the previous budget is available.
    pub(super) fn would_not_fit(&self, file: &FileKey, budget_bytes: impl Fn() -> u64) -> bool {
        self.known.get(file).is_some_and(|previous_bytes| budget_bytes() / 2 < *previous_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_file_is_counted_once_even_if_it_is_forgotten_and_seen_again() {
        let mut incomplete = IncompleteFiles::default();
        let file = |size_bytes| (b"/usr/bin/node".to_vec(), size_bytes);
        assert!(incomplete.add(file(1), 100));
        assert!(!incomplete.add(file(1), 100));
        assert!(incomplete.add(file(2), 100), "another version of it");
        assert_eq!(incomplete.count, 2);
        assert!(incomplete.would_not_fit(&file(1), || 199) && !incomplete.would_not_fit(&file(1), || 200));
        assert!(!incomplete.would_not_fit(&file(3), || 0), "no build of it was tried");
        (0..2 * IncompleteFiles::KNOWN_MAX as u64)
            .for_each(|size_bytes| _ = incomplete.add(file(size_bytes), 100));
        assert!(incomplete.known.len() <= IncompleteFiles::KNOWN_MAX);
    }
}
