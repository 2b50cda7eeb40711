//! One process as the registry knows it.

use std::sync::Arc;

use crate::description::ProcessDescription;
use crate::id::{Pid, ProcessKey};
use crate::mapping::{ExecutableMapping, MappedFile};
use crate::mapping_set::MappingSet;

/// A process, its executable mappings and what else its events told.
#[derive(Clone, Debug)]
pub struct Process {
    pub(crate) pid: Pid,
    pub(crate) instance: u64,
    pub(crate) parent: Option<Pid>,
    pub(crate) start_ticks: Option<u64>,
    pub(crate) comm: Box<[u8]>,
    pub(crate) mappings: Arc<MappingSet>,
    /// Threads that have not ended; at times some that have, until their process is read again.
    pub(crate) threads: u32,
    /// When the threads were read, by `CLOCK_MONOTONIC`: those that ended before may not have been counted.
    pub(crate) threads_read_ns: u64,
    pub(crate) leader_ended: bool,
    /// Since when events are needed to know the process: those from before are part of what was read.
    pub(crate) known_since_ns: u64,
    /// When its end was told, or noticed.
    pub(crate) ended_ns: Option<u64>,
    /// The first file mapped since the last exec: the program itself.
    pub(crate) program: Option<Arc<MappedFile>>,
    pub(crate) has_executed: bool,
    pub(crate) description: Option<Arc<ProcessDescription>>,
    /// What the parent was when this process was forked.
    pub(crate) inherited: Option<Arc<ProcessDescription>>,
}

impl Process {
    /// A process of which nothing is known but that it was there at a time.
    pub(crate) fn new(pid: Pid, instance: u64, known_since_ns: u64, most_mappings: usize) -> Self {
        Self {
            pid,
            instance,
            parent: None,
            start_ticks: None,
            comm: Box::default(),
            mappings: Arc::new(MappingSet::new(most_mappings)),
            threads: 1,
            threads_read_ns: 0,
            leader_ended: false,
            known_since_ns,
            ended_ns: None,
            program: None,
            has_executed: false,
            description: None,
            inherited: None,
        }
    }

    /// The child that this process forks: the same memory, shared until one of them changes it.
    pub(crate) fn fork(&self, child: Pid, instance: u64, time_ns: u64) -> Self {
        Self {
            pid: child,
            instance,
            parent: Some(self.pid),
            start_ticks: None,
            threads: 1,
            threads_read_ns: 0,
            leader_ended: false,
            known_since_ns: time_ns,
            ended_ns: None,
            description: None,
            inherited: self.description.clone().or_else(|| self.described_by_events().map(Arc::new)),
            has_executed: false,
            ..self.clone()
        }
    }

    /// Runs another program: what was mapped and described is gone.
    pub(crate) fn exec(&mut self, comm: Box<[u8]>, most_mappings: usize) {
        // What its events told before is told anew by those that follow.
        self.inherited = self.description.take().or_else(|| self.inherited.take());
        self.comm = comm;
        self.mappings = Arc::new(MappingSet::new(most_mappings));
        self.threads = 1;
        self.threads_read_ns = 0;
        self.leader_ended = false;
        self.program = None;
        self.has_executed = true;
    }

    /// Its number.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Tells it from any other process that has or had the same number in this run, and from what it was before it ran
    /// another program.
    #[must_use]
    pub const fn instance(&self) -> u64 {
        self.instance
    }

    /// The process that forked it, where that was seen; it may have ended, and its number may be another's.
    #[must_use]
    pub const fn parent(&self) -> Option<Pid> {
        self.parent
    }

    /// When it started, in clock ticks after boot, once `/proc` was read for it.
    #[must_use]
    pub const fn start_ticks(&self) -> Option<u64> {
        self.start_ticks
    }

    /// From when on what is known of its mappings holds, by `CLOCK_MONOTONIC`: its fork, its last exec, or when it was
    /// read.
    #[must_use]
    pub fn known_since_ns(&self) -> u64 {
        self.known_since_ns
    }

    /// Whether it had not ended by a time, by `CLOCK_MONOTONIC`. What had its number later was another process.
    #[must_use]
    pub fn was_alive_at(&self, time_ns: u64) -> bool {
        self.ended_ns.is_none_or(|ended_ns| time_ns <= ended_ns)
    }

    /// The name of its leader, at most 15 bytes of anything; empty while unknown.
    #[must_use]
    pub fn comm(&self) -> &[u8] {
        &self.comm
    }

    /// Its executable mappings by rising address.
    pub fn mappings(&self) -> impl ExactSizeIterator<Item = &ExecutableMapping> {
        self.mappings.iter()
    }

    /// Its executable mappings as they are now; a cheap copy that no later event changes.
    #[must_use]
    pub fn mapping_set(&self) -> &Arc<MappingSet> {
        &self.mappings
    }

    /// What it says about itself: as read from `/proc` where [`crate::Registry::describe`] was in time,
    /// else as far as its events and its parent tell.
    #[must_use]
    pub fn description(&self) -> Option<Arc<ProcessDescription>> {
        self.description.clone().or_else(|| self.described_by_events().map(Arc::new))
    }

    /// A child is where its parent is; what it runs, its events tell. Its environment is its parent's until
    /// it runs another program.
    fn described_by_events(&self) -> Option<ProcessDescription> {
        let inherited = self.inherited.as_deref().cloned().unwrap_or_default();
        let mut description =
            ProcessDescription { started_at: None, namespaced_pids: Vec::new(), ..inherited };
        if self.has_executed {
            description.resource = Default::default();
            description.owner_uid = None;
            description.executable_path = self.program.as_ref().map(|program| program.path().into());
        }
        if !self.comm.is_empty() {
            description.comm = Some(self.comm.clone());
        }
        (description != ProcessDescription::default()).then_some(description)
    }
}

impl From<&Process> for ProcessKey {
    fn from(process: &Process) -> Self {
        Self { pid: process.pid().0, instance: process.instance() }
    }
}
