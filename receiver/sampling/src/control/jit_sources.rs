//! Where processes that generate code publish the names of that code. It is looked up while the process runs, since its
//! samples may be emitted after its exit.
//!
//! Owner: the sampling thread.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sidewinder_message::JitSource;
use sidewinder_process::{Backing, Pid, ProcessKey};

use super::processes::ProcessTracker;

/// The JIT sources of sampled processes.
#[derive(Debug, Default)]
pub(super) struct JitSources {
    entries: HashMap<ProcessKey, JitEntry>,
    /// Processes whose mappings have changed since they were last inspected.
    changed_mappings: HashSet<Pid>,
}

#[derive(Debug)]
struct JitEntry {
    source: Arc<JitSource>,
    is_announced: bool,
}

impl JitSources {
    /// Records that a process has changed its mappings.
    pub(super) fn mappings_changed(&mut self, pid: Pid) {
        self.changed_mappings.insert(pid);
    }

    /// Looks for the JIT source of a process that a sample has arrived from, if its mappings have changed since the last
    /// time.
    pub(super) fn find_jit_source(&mut self, pid: Pid, processes: &ProcessTracker) {
        if !self.changed_mappings.remove(&pid) {
            return;
        }
        let Some(process) = processes.registry.process(pid) else { return };
        let key = ProcessKey::from(process);
        let is_known = self.entries.get(&key).is_some_and(|entry| entry.source.is_current_for(process));
        if is_known || !process.mappings().any(|mapping| mapping.backing == Backing::Anonymous) {
            return;
        }
        if let Some(jit) = JitSource::new(pid, process.mappings(), processes.reader()) {
            self.entries.insert(key, JitEntry { source: Arc::new(jit), is_announced: false });
        }
    }

    /// The JIT source of a process, when called for the first time since it was found.
    pub(super) fn take_unannounced(&mut self, key: ProcessKey) -> Option<Arc<JitSource>> {
        let entry = self.entries.get_mut(&key).filter(|entry| !entry.is_announced)?;
        entry.is_announced = true;
        Some(Arc::clone(&entry.source))
    }

    /// Forgets processes that no more samples can arrive from.
    pub(super) fn forget_exited(&mut self, processes: &ProcessTracker) {
        self.entries.retain(|key, _| processes.running_or_exited(*key).is_some());
        self.changed_mappings.retain(|pid| processes.registry.process(*pid).is_some());
    }
}
