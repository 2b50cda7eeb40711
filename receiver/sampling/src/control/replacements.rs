//! Replaced mappings, and the time until which walks used the old ones.
//!
//! When a process unmaps a library and maps another at the same address, walks use the table of the old library until the
//! new mappings are published some milliseconds later. This module records for each process when that window ends; the data
//! part checks the stacks that were walked within it.

use std::collections::HashMap;

use sidewinder_bpf::{SampleRecord, monotonic_ns};
use sidewinder_process::Pid;

/// How long a sample may take to arrive, unless the receiver process was suspended.
const RETENTION_NS: u64 = 10_000_000_000;

/// The processes that have recently replaced a mapping.
#[derive(Debug, Default)]
pub(crate) struct MappingReplacements {
    /// When the new mappings of each process were published; `u64::MAX`: they are not published yet.
    published_at_ns: HashMap<Pid, u64>,
}

impl MappingReplacements {
    /// Records that a process has replaced a mapping.
    pub(super) fn add(&mut self, pid: Pid) {
        self.published_at_ns.insert(pid, u64::MAX);
    }

    /// Records a fork: until the mappings of the child are published, walks use those published for its parent.
    pub(super) fn inherit(&mut self, parent: Pid, child: Pid, time_ns: u64) {
        if self.is_unpublished_at(parent, time_ns) {
            self.add(child);
        }
    }

    /// Records that the mappings of a process are published.
    pub(super) fn mark_published(&mut self, pid: Pid) {
        if let Some(published_ns) = self.published_at_ns.get_mut(&pid) {
            *published_ns = monotonic_ns();
        }
    }

    /// Whether the walk of a sample may have used mappings that had been replaced.
    pub(crate) fn affects(&self, sample: &SampleRecord) -> bool {
        self.is_unpublished_at(Pid(sample.pid), sample.time_ns)
    }

    fn is_unpublished_at(&self, pid: Pid, time_ns: u64) -> bool {
        self.published_at_ns.get(&pid).is_some_and(|published_ns| time_ns <= *published_ns)
    }

    /// Forgets replacements that are older than any sample that may still arrive.
    pub(crate) fn sweep(&mut self) {
        let now_ns = monotonic_ns();
        self.published_at_ns.retain(|_, published_ns| published_ns.saturating_add(RETENTION_NS) > now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_affects_samples_of_a_process_and_its_children_until_it_is_published() {
        let (parent, child, later_child) = (Pid(1), Pid(2), Pid(3));
        let mut replacements = MappingReplacements::default();
        assert!(!replacements.is_unpublished_at(parent, 0));
        replacements.add(parent);
        assert!(replacements.is_unpublished_at(parent, u64::MAX));
        replacements.inherit(parent, child, monotonic_ns());
        replacements.mark_published(parent);
        assert!(replacements.is_unpublished_at(parent, 0), "from before the publication");
        assert!(!replacements.is_unpublished_at(parent, u64::MAX));
        assert!(replacements.is_unpublished_at(child, u64::MAX), "the child is not published");
        replacements.inherit(parent, later_child, u64::MAX);
        assert!(!replacements.is_unpublished_at(later_child, u64::MAX), "forked after the publication");
        replacements.sweep();
        assert!(replacements.is_unpublished_at(child, u64::MAX));
    }
}
