//! Files whose tables are incomplete or missing for lack of memory: they are counted once, are not built in vain again, and
//! are named in the status.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use sidewinder_text::ExternalText;

/// Files whose tables are incomplete or missing because the memory budget doesn't allow reading them. A file that is
/// forgotten and seen again is identified by its path and its size.
#[derive(Default, Debug)]
pub(crate) struct IncompleteFiles {
    /// The budget that was available for each file, in bytes.
    known: HashMap<FileKey, u64>,
    /// The number of incomplete files, including those that are no longer in `known`.
    pub(crate) count: u64,
}

/// A path and a size in bytes.
pub(crate) type FileKey = (Vec<u8>, u64);

impl IncompleteFiles {
    const KNOWN_MAX: usize = 4096;

    /// Adds a file. Returns whether it is new.
    pub(crate) fn add(&mut self, file: FileKey, budget_bytes: u64) -> bool {
        if self.known.len() >= Self::KNOWN_MAX {
            self.known.clear();
        }
        let is_new = self.known.insert(file, budget_bytes).is_none();
        self.count += u64::from(is_new);
        is_new
    }

    /// Whether a build of a file would probably run out of budget again: less than twice the previous budget is available.
    pub(crate) fn would_not_fit(&self, file: &FileKey, budget_bytes: impl Fn() -> u64) -> bool {
        self.known.get(file).is_some_and(|previous_bytes| budget_bytes() / 2 < *previous_bytes)
    }
}

/// The files that have no whole table now, for lack of memory, and the memory that would be enough.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct IncompleteTables {
    /// Those with the most code without a table come first; at most [`FILES_MAX`](Self::FILES_MAX).
    pub files: Arc<[IncompleteTable]>,
    /// The number of files that are not in the list.
    pub more_files: usize,
    /// The `memory_limit_mib` that would hold all tables, about; 0 if all are whole.
    pub memory_limit_mib: u32,
}

/// A file without a whole table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IncompleteTable<Path = String> {
    /// Its path as its processes see it; in a `String`, U+FFFD stands for bytes that are not UTF-8.
    pub path: Path,
    /// The code that walks may find in it; 0 if that is unknown, because too little of the file could be read.
    pub code_bytes: u64,
    /// The part of this code that has rows only for functions that walks have encountered.
    pub left_out_code_bytes: u64,
    /// The size of the piece of the file that could not be read.
    pub unread_bytes: Option<u64>,
}

impl IncompleteTables {
    /// The paths of files may be long.
    const FILES_MAX: usize = 16;

    pub(crate) fn new(mut files: Vec<IncompleteTable<&[u8]>>, memory_limit_mib: u32) -> Self {
        files.sort_unstable_by_key(|file| (Reverse(file.left_out_code_bytes), file.path));
        let more_files = files.len().saturating_sub(Self::FILES_MAX);
        files.truncate(Self::FILES_MAX);
        Self {
            files: files.iter().map(IncompleteTable::to_owned_path).collect(),
            more_files,
            memory_limit_mib,
        }
    }
}

impl IncompleteTable<&[u8]> {
    fn to_owned_path(&self) -> IncompleteTable {
        let Self { path, code_bytes, left_out_code_bytes, unread_bytes } = *self;
        let path = ExternalText::from_bytes(path).to_lossy().into_owned();
        IncompleteTable { path, code_bytes, left_out_code_bytes, unread_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_the_most_code_without_a_table_are_listed_and_the_others_counted() {
        let file = |left_out_code_bytes| IncompleteTable {
            path: &b"/a\n"[..],
            code_bytes: 100,
            left_out_code_bytes,
            unread_bytes: None,
        };
        let tables = IncompleteTables::new((0..20).map(file).collect(), 64);
        assert_eq!(tables.files.len(), 16);
        assert_eq!([tables.files[0].left_out_code_bytes, tables.files[15].left_out_code_bytes], [19, 4]);
        assert_eq!(tables.files[0].path, "/a\n", "it is escaped where it is displayed");
        assert_eq!((tables.more_files, tables.memory_limit_mib), (4, 64));
    }

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
