//! Pages of a file, at whose boundaries segments are cut.

use sidewinder_unwind_table::Entry;

use crate::intf;

/// The programs' page size, independent of the machine's.
pub(super) const PAGE_BYTES: u64 = 1 << intf::SW_PAGE_SHIFT;

/// The rows that start in one page, by their offset in the page.
#[derive(Debug)]
pub(super) struct PageRows {
    pub(super) entry_at_start: Entry,
    pub(super) rows: Vec<(u64, Entry)>,
}

impl Default for PageRows {
    fn default() -> Self {
        Self { entry_at_start: Entry::NO_INFORMATION, rows: Vec::new() }
    }
}
