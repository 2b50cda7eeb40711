//! Spans of machine code with one rule each, and the shortest gap that can contain one.

use sidewinder_unwind_table::{EntryId, UnresolvedReason};

/// The alignment that compilers give to functions.
pub(crate) const FUNCTION_ALIGNMENT_BYTES: u32 = 16;

/// The shortest gap between described functions that is analyzed: shorter ones are padding.
pub(crate) const MIN_GAP_BYTES: u32 = FUNCTION_ALIGNMENT_BYTES;

/// Code with one rule, or with the reason why it has none.
#[derive(Clone, Copy)]
pub(crate) struct RuleSpan {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) rule: Result<EntryId, UnresolvedReason>,
}
