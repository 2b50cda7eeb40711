//! The data flow: from records of the kernel to events.

pub(in crate::sampling) mod deferred;
pub(in crate::sampling) mod labels;
pub(in crate::sampling) mod stacks;
pub(in crate::sampling) mod stale_mappings;
pub(in crate::sampling) mod tally;
