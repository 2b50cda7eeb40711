//! Where processes that make code while they run have it named. It is found while a process is there: its samples may be
//! handed on later.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sidewinder_process::{Backing, Pid, Registry};

use super::environments::Environments;
use crate::jit::JitPlace;
use crate::sampling::feed::ProcessKey;

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::sampling) struct Runtimes {
    places: HashMap<ProcessKey, Place>,
    /// Processes that have mapped something since they were last looked at.
    remapped: HashSet<Pid>,
}

#[derive(Debug)]
struct Place {
    of: Arc<JitPlace>,
    is_told: bool,
}

impl Runtimes {
    pub(in crate::sampling) fn mappings_changed(&mut self, pid: Pid) {
        self.remapped.insert(pid);
    }

    /// A sample of a process has come.
    pub(in crate::sampling) fn meet(
        &mut self,
        pid: Pid,
        registry: &mut Registry,
        environments: &mut Environments,
    ) {
        if !self.remapped.remove(&pid) {
            return;
        }
        let Some(process) = registry.process(pid) else { return };
        let key = ProcessKey::of(process);
        let is_known = self.places.get(&key).is_some_and(|place| place.of.is_still_of(process));
        if is_known || !process.mappings().any(|mapping| mapping.backing == Backing::Anonymous) {
            return;
        }
        let description = environments.describe(pid, registry);
        let program = description.as_ref().and_then(|described| described.executable_name());
        let place = registry
            .process(pid)
            .and_then(|process| JitPlace::of(process, program.unwrap_or_default(), environments.reader()));
        if let Some(place) = place {
            self.places.insert(key, Place { of: Arc::new(place), is_told: false });
        }
    }

    /// The place of a process's names, when it is asked for the first time.
    pub(in crate::sampling) fn untold(&mut self, key: ProcessKey) -> Option<Arc<JitPlace>> {
        let place = self.places.get_mut(&key).filter(|place| !place.is_told)?;
        place.is_told = true;
        Some(Arc::clone(&place.of))
    }

    pub(in crate::sampling) fn forget_all_but(
        &mut self,
        registry: &Registry,
        is_known: impl Fn(&ProcessKey) -> bool,
    ) {
        self.places.retain(|key, _| is_known(key));
        self.remapped.retain(|pid| registry.process(*pid).is_some());
    }
}
