//! One process in the registry.

use std::sync::Arc;

use crate::description::ProcessDescription;
use crate::id::{Pid, ProcessKey};
use crate::mapping::{ExecutableMapping, MappedFile};
use crate::mapping_set::{MappingMemory, MappingSet};

/// A process, its executable mappings and other data from its events.
#[derive(Clone, Debug)]
pub struct Process {
    pub(crate) pid: Pid,
    pub(crate) instance: u64,
    pub(crate) parent: Option<Pid>,
    pub(crate) start_ticks: Option<u64>,
    pub(crate) comm: Box<[u8]>,
    pub(crate) mappings: Arc<MappingSet>,
    /// The number of running threads; may include ended ones, until the process is rescanned.
    pub(crate) threads: u32,
    /// When the threads were read, by `CLOCK_MONOTONIC`: threads that ended earlier may not have been counted.
    pub(crate) threads_read_ns: u64,
    pub(crate) leader_ended: bool,
    /// Events since this time apply; earlier ones are already part of what was read.
    pub(crate) known_since_ns: u64,
    /// When its exit was reported or noticed.
    pub(crate) ended_ns: Option<u64>,
    /// The first file mapped since the last exec, which is the program itself.
    pub(crate) program: Option<Arc<MappedFile>>,
    pub(crate) has_executed: bool,
    pub(crate) description: Option<Arc<ProcessDescription>>,
    /// The data of the parent at the time of the fork.
    pub(crate) inherited: Option<Arc<ProcessDescription>>,
}

impl Process {
    /// A process that was seen at some time, but about which nothing else is known.
    pub(crate) fn new(pid: Pid, instance: u64, known_since_ns: u64, memory: MappingMemory) -> Self {
        Self {
            pid,
            instance,
            parent: None,
            start_ticks: None,
            comm: Box::default(),
            mappings: Arc::new(MappingSet::new(memory)),
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

    /// The child of a fork: the same mappings, shared until one of the two changes them.
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

    /// Applies an exec: mappings and description are discarded.
    pub(crate) fn exec(&mut self, comm: Box<[u8]>, memory: MappingMemory) {
        // The events after an exec provide again what earlier events provided.
        self.inherited = self.description.take().or_else(|| self.inherited.take());
        self.comm = comm;
        self.mappings = Arc::new(MappingSet::new(memory));
        self.threads = 1;
        self.threads_read_ns = 0;
        self.leader_ended = false;
        self.program = None;
        self.has_executed = true;
    }

    /// Its PID.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Identifies it among all processes with the same PID in this run. It changes with each exec.
    #[must_use]
    pub const fn instance(&self) -> u64 {
        self.instance
    }

    /// The process that forked it, if that was observed; it may have ended, and its PID may have been reused.
    #[must_use]
    pub const fn parent(&self) -> Option<Pid> {
        self.parent
    }

    /// When it started, in clock ticks after boot, once it was read from `/proc`.
    #[must_use]
    pub const fn start_ticks(&self) -> Option<u64> {
        self.start_ticks
    }

    /// The time since which its mappings are known, by `CLOCK_MONOTONIC`: its fork, its last exec, or the last scan.
    #[must_use]
    pub fn known_since_ns(&self) -> u64 {
        self.known_since_ns
    }

    /// Whether it had not ended by a time of `CLOCK_MONOTONIC`. A later process with its PID was another one.
    #[must_use]
    pub fn was_alive_at(&self, time_ns: u64) -> bool {
        self.ended_ns.is_none_or(|ended_ns| time_ns <= ended_ns)
    }

    /// The name of its leader, at most 15 arbitrary bytes; empty while unknown.
    #[must_use]
    pub fn comm(&self) -> &[u8] {
        &self.comm
    }

    /// Its executable mappings, in ascending order of address.
    pub fn mappings(&self) -> impl ExactSizeIterator<Item = &ExecutableMapping> {
        self.mappings.iter()
    }

    /// A snapshot of its executable mappings; cheap to copy, and not changed by later events.
    #[must_use]
    pub fn mapping_set(&self) -> &Arc<MappingSet> {
        &self.mappings
    }

    /// Its description: read from `/proc` if [`crate::Registry::describe`] was called in time, else derived from its events
    /// and its parent.
    #[must_use]
    pub fn description(&self) -> Option<Arc<ProcessDescription>> {
        self.description.clone().or_else(|| self.described_by_events().map(Arc::new))
    }

    /// A child has the container of its parent; its events report its program. It has the environment of its parent until it
    /// executes another program.
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
