//! Where processes that generate code write its names. That is looked up while the process runs, since its samples may be
//! emitted after its exit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sidewinder_process::{Backing, Pid, ProcessKey};

use super::processes::Processes;
use crate::jit::JitPlace;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Runtimes {
    places: HashMap<ProcessKey, Place>,
    /// Processes whose mappings have changed since the last look.
    remapped: HashSet<Pid>,
}

#[derive(Debug)]
struct Place {
    jit: Arc<JitPlace>,
    is_announced: bool,
}

impl Runtimes {
    /// Notes that a process has changed its mappings.
    pub(super) fn mappings_changed(&mut self, pid: Pid) {
        self.remapped.insert(pid);
    }

    /// Looks at a process of which a sample has arrived, if its mappings have changed since the last look.
    pub(super) fn meet(&mut self, pid: Pid, processes: &mut Processes) {
        if !self.remapped.remove(&pid) {
            return;
        }
        let Some(process) = processes.registry.process(pid) else { return };
        let key = ProcessKey::from(process);
        let is_known = self.places.get(&key).is_some_and(|place| place.jit.is_still_of(process));
        if is_known || !process.mappings().any(|mapping| mapping.backing == Backing::Anonymous) {
            return;
        }
        let description = processes.describe(pid);
        let program = description.as_ref().and_then(|described| described.executable_name());
        let jit = processes
            .registry
            .process(pid)
            .and_then(|process| JitPlace::of(process, program.unwrap_or_default(), processes.reader()));
        if let Some(jit) = jit {
            self.places.insert(key, Place { jit: Arc::new(jit), is_announced: false });
        }
    }

    /// The place of a process, the first time.
    pub(super) fn take_unannounced(&mut self, key: ProcessKey) -> Option<Arc<JitPlace>> {
        let place = self.places.get_mut(&key).filter(|place| !place.is_announced)?;
        place.is_announced = true;
        Some(Arc::clone(&place.jit))
    }

    /// Forgets processes of which no more samples arrive.
    pub(super) fn forget_exited(&mut self, processes: &Processes) {
        self.places.retain(|key, _| processes.remembered(*key).is_some());
        self.remapped.retain(|pid| processes.registry.process(*pid).is_some());
    }
}
