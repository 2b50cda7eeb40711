//! Spans of machine code with one rule each, and the gaps that are long enough to have any.

use sidewinder_unwind_table::{EntryId, UnresolvedReason};

/// What compilers align functions to.
pub(crate) const FUNCTION_ALIGNMENT_BYTES: u32 = 16;

/// The shortest gap between described functions that is looked at: shorter ones are padding.
pub(crate) const MIN_GAP_BYTES: u32 = FUNCTION_ALIGNMENT_BYTES;

/// Code with one rule, or with a reason why it has none.
#[derive(Clone, Copy)]
pub(crate) struct RuleSpan {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) rule: Result<EntryId, UnresolvedReason>,
}
