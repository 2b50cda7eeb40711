//! The control flow: from what happens to processes to what walks look up.

pub(in crate::sampling) mod contexts;
pub(in crate::sampling) mod environments;
pub(in crate::sampling) mod follow;
pub(in crate::sampling) mod membership;
pub(in crate::sampling) mod runtimes;
pub(in crate::sampling) mod scans;
pub(crate) mod scope;
pub(crate) mod tables;
pub(in crate::sampling) mod variables;
