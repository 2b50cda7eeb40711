//! All processes, kept up to date from events.

mod counters;
mod events;
mod rescan_queue;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

pub use counters::{RegistryCounters, RegistryLimits};
use rescan_queue::RescanQueue;

use crate::clock::monotonic_ns;
use crate::description::ProcessDescription;
use crate::environment::ResourceVariables;
use crate::event::ProcessEvent;
use crate::id::Pid;
use crate::interner::MappedFileInterner;
use crate::mapping_set::{MappingMemory, MappingSet};
use crate::pod::PodBounds;
use crate::process::Process;
use crate::procfs::{ProcRoot, ProcessDir, ProcessState, ProcfsError};
use crate::scan::{ScanResult, Scanner};

/// A change that the owner of a registry must process.
#[derive(Clone, Debug)]
pub enum Change {
    /// The process is new, or its mappings have changed.
    MappingsChanged(Pid),
    /// The process has ended; this is its last known state.
    Exited(Box<Process>),
}

/// The living processes and their executable mappings.
#[derive(Debug)]
pub struct Registry {
    proc_root: ProcRoot,
    limits: RegistryLimits,
    processes: HashMap<Pid, Process>,
    last_instance: u64,
    files: MappedFileInterner,
    mapping_memory: MappingMemory,
    changed: BTreeSet<Pid>,
    exited: Vec<Process>,
    rescans: RescanQueue,
    /// The processes whose scan is in progress, with their events since it began.
    scans: HashMap<Pid, Vec<ProcessEvent>>,
    /// When it was last learned that events are lost, by `CLOCK_MONOTONIC`.
    lost_at_ns: u64,
    /// Whether all processes are followed, so that processes whose fork was lost are looked for.
    follows_all: bool,
    /// The pod to which processes must belong to be read.
    pod: Option<PodBounds>,
    counters: RegistryCounters,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new(proc_root: ProcRoot, limits: RegistryLimits) -> Self {
        Self {
            rescans: RescanQueue::new(limits.rescans_per_second, monotonic_ns()),
            proc_root,
            mapping_memory: MappingMemory::new(limits.mapping_bytes),
            limits,
            processes: HashMap::new(),
            last_instance: 0,
            files: MappedFileInterner::default(),
            changed: BTreeSet::new(),
            exited: Vec::new(),
            scans: HashMap::new(),
            lost_at_ns: 0,
            follows_all: false,
            pod: None,
            counters: RegistryCounters::default(),
        }
    }

    /// Restricts the registry to a pod: of processes outside of it, only their cgroup is read from now on.
    pub fn restrict_to_pod(&mut self, pod: PodBounds) {
        self.pod = Some(pod);
    }

    /// Enables the search for processes whose fork was lost.
    pub fn follow_all(&mut self) {
        self.follows_all = true;
    }

    /// Reads all processes. Events must have been recorded since before this call.
    ///
    /// # Errors
    /// If the processes can't be listed. A process that can't be read is only counted.
    pub fn scan_all(&mut self) -> Result<(), ProcfsError> {
        self.follow_all();
        for pid in self.proc_root.pids()? {
            // A process that can't be read has ended or is counted.
            let _ = self.scan(pid);
        }
        Ok(())
    }

    /// Reads one process now.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] for a process that has ended, which is then removed.
    pub fn scan(&mut self, pid: Pid) -> Result<(), ProcfsError> {
        let scanner = self.begin_scan(pid);
        self.end_scan(pid, scanner.scan(pid))
    }

    /// Starts the scan of a process, which another thread may do, because reading its mappings may block indefinitely.
    /// Events of the process are kept until [`Self::end_scan`] or [`Self::abandon_scan`].
    pub fn begin_scan(&mut self, pid: Pid) -> Scanner {
        self.rescans.remove_stale(pid);
        self.scans.insert(pid, Vec::new());
        Scanner {
            proc_root: self.proc_root.clone(),
            pod: self.pod.clone(),
            memory: self.mapping_memory.clone(),
        }
    }

    /// Applies a scan, and then the events since its start; neither, if the process has exited since.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn end_scan(
        &mut self,
        pid: Pid,
        scanned: Result<ScanResult, ProcfsError>,
    ) -> Result<(), ProcfsError> {
        let Some(meanwhile) = self.scans.remove(&pid) else { return Ok(()) };
        match scanned {
            Ok(scanned) => {
                let read_from_ns = scanned.read_from_ns;
                if scanned.mappings.is_none() {
                    self.counters.processes_unreadable += 1;
                    if self.keep_known_from_events(pid, &scanned.state) {
                        return Ok(());
                    }
                }
                let read = self.process_of(pid, scanned);
                self.insert_scanned(read);
                for event in meanwhile.into_iter().filter(|event| event.time_ns >= read_from_ns) {
                    self.apply_to_process(event);
                }
                Ok(())
            }
            Err(error) => {
                if matches!(error, ProcfsError::Gone { .. }) {
                    self.retire(pid, monotonic_ns());
                } else {
                    self.counters.processes_unreadable += 1;
                }
                Err(error)
            }
        }
    }

    /// Abandons the scan of a process.
    pub fn abandon_scan(&mut self, pid: Pid) {
        self.scans.remove(&pid);
        self.counters.processes_unreadable += 1;
    }

    /// Marks a process whose data may be wrong, to be rescanned by [`Self::rescan_stale`].
    pub fn mark_stale(&mut self, pid: Pid) {
        self.rescans.mark_stale(pid);
    }

    /// Rescans stale processes, as many as the limits currently allow, and returns how many are left. Call it after each
    /// batch of events.
    pub fn rescan_stale(&mut self) -> usize {
        for pid in self.take_due_rescans() {
            // A process that can't be read is removed or counted.
            let _ = self.scan(pid);
        }
        self.rescans.len()
    }

    /// Takes the processes that [`Self::rescan_stale`] would rescan, for a scan on another thread.
    pub fn take_due_rescans(&mut self) -> Vec<Pid> {
        let now_ns = monotonic_ns();
        if self.rescans.take_recovery(now_ns) {
            self.mark_all_stale();
        }
        // A process whose scan is in progress is rescanned after that.
        self.rescans.take_due(now_ns, |pid| self.scans.contains_key(&pid))
    }

    /// The changes since the last call: first exits, then each process whose mappings have changed, once. Call it after each
    /// batch of events.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let exited = self.exited.drain(..).map(|process| Change::Exited(Box::new(process)));
        let changed = std::mem::take(&mut self.changed).into_iter().map(Change::MappingsChanged);
        exited.chain(changed).collect()
    }

    /// Returns a living process.
    #[must_use]
    pub fn process(&self, pid: Pid) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// Returns a living process, or the last state of one whose exit [`Self::take_changes`] has not returned yet.
    #[must_use]
    pub fn process_or_ended(&self, pid: Pid) -> Option<&Process> {
        self.process(pid).or_else(|| self.exited.iter().rev().find(|process| process.pid == pid))
    }

    /// Iterates over all living processes, in no particular order.
    pub fn processes(&self) -> impl ExactSizeIterator<Item = &Process> {
        self.processes.values()
    }

    /// The description of a living process. It is read at the first call after its start or exec, so that it is available
    /// after the process has ended.
    pub fn describe(&mut self, pid: Pid) -> Option<Arc<ProcessDescription>> {
        let proc_root = self.proc_root.clone();
        self.describe_with(pid, |_| {
            let directory = ProcessDir::open(&proc_root, pid).ok();
            directory.map(|directory| ResourceVariables::read(&directory, &[])).unwrap_or_default()
        })
    }

    /// As [`Self::describe`], but `environment` reads the environment, given the start time of the process in clock ticks
    /// after boot: an environment is memory of the process, and reading it may block indefinitely.
    pub fn describe_with(
        &mut self,
        pid: Pid,
        environment: impl FnOnce(u64) -> ResourceVariables,
    ) -> Option<Arc<ProcessDescription>> {
        let process = self.processes.get_mut(&pid)?;
        if process.description.is_none()
            && let Ok(directory) = ProcessDir::open(&self.proc_root, pid)
            && let Ok(state) = directory.state()
            && !state.has_ended()
            && *process.start_ticks.get_or_insert(state.start_ticks) == state.start_ticks
        {
            let resource = environment(state.start_ticks);
            let description = ProcessDescription { resource, ..ProcessDescription::read(&directory) };
            process.description = Some(Arc::new(description));
        }
        process.description()
    }

    /// Adds the environment of a described process. Returns false if it is no longer the same process.
    pub fn set_resource(&mut self, pid: Pid, instance: u64, resource: ResourceVariables) -> bool {
        let process = self.processes.get_mut(&pid).filter(|process| process.instance == instance);
        let Some(description) = process.and_then(|process| process.description.as_mut()) else {
            return false;
        };
        Arc::make_mut(description).resource = resource;
        true
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> RegistryCounters {
        self.counters
    }

    /// The lost events may be of any process, and may include forks.
    fn mark_all_stale(&mut self) {
        self.processes.keys().for_each(|&pid| self.rescans.mark_stale(pid));
        if self.follows_all {
            let listed = self.proc_root.pids().unwrap_or_default();
            listed.into_iter().for_each(|pid| self.rescans.mark_stale(pid));
        }
    }

    /// The data of a scan, with its files interned.
    fn process_of(&mut self, pid: Pid, scanned: ScanResult) -> Process {
        let ScanResult { read_from_ns, state, state_read_ns, mappings, malformed_lines } = scanned;
        let memory = self.mapping_memory.clone();
        let mut mappings = mappings.unwrap_or_else(|| MappingSet::new(memory.clone()));
        mappings.intern(&mut self.files);
        let program = mappings.iter().find_map(|mapping| mapping.backing.file().cloned());
        self.counters.process_reads += 1;
        self.counters.maps_lines_malformed += malformed_lines;
        self.counters.mappings_left_out += mappings.left_out();
        Process {
            start_ticks: Some(state.start_ticks),
            comm: state.comm,
            mappings: Arc::new(mappings),
            // An ended leader is counted until its last thread has ended.
            threads: state.threads.saturating_sub(u32::from(state.leader_ended)).max(1),
            threads_read_ns: state_read_ns,
            leader_ended: state.leader_ended,
            program,
            ..Process::new(pid, 0, read_from_ns, memory)
        }
    }

    /// Keeps what is known of a process whose mappings can't be read, if no change since its exec or fork can be missing: a scan
    /// would replace its mappings by none, and have events that are still to come taken for older ones. Returns whether it is so.
    fn keep_known_from_events(&mut self, pid: Pid, state: &ProcessState) -> bool {
        let Some(known) = self.processes.get_mut(&pid) else { return false };
        let is_same = known.start_ticks.is_none_or(|start_ticks| start_ticks == state.start_ticks);
        if !is_same || self.lost_at_ns > known.known_since_ns {
            return false;
        }
        known.start_ticks = Some(state.start_ticks);
        true
    }

    /// Applies a scan, to a known process or as a new one with the same PID.
    fn insert_scanned(&mut self, mut read: Process) {
        let pid = read.pid;
        if read.leader_ended {
            self.rescans.mark_leaderless(pid);
        }
        match self.processes.get_mut(&pid) {
            // It has executed another program since, which its events report completely.
            Some(known) if known.known_since_ns > read.known_since_ns => {}
            Some(known) if known.start_ticks.is_none() || known.start_ticks == read.start_ticks => {
                if known.mappings != read.mappings {
                    known.mappings = read.mappings;
                    self.changed.insert(pid);
                }
                known.start_ticks = read.start_ticks;
                known.comm = read.comm;
                known.threads = read.threads;
                known.threads_read_ns = read.threads_read_ns;
                known.leader_ended = read.leader_ended;
                known.known_since_ns = read.known_since_ns;
                if known.program != read.program {
                    // It runs another program: an exec event was lost.
                    known.program = read.program;
                    known.description = None;
                }
            }
            _ => {
                self.retire(pid, read.known_since_ns);
                read.instance = self.next_instance();
                self.add(read);
            }
        }
    }

    fn add(&mut self, process: Process) {
        if self.processes.len() >= self.limits.processes {
            self.counters.processes_left_out += 1;
            self.rescans.remove_stale(process.pid);
            return;
        }
        if !process.mappings.is_empty() {
            self.changed.insert(process.pid);
        }
        self.processes.insert(process.pid, process);
    }

    fn retire(&mut self, pid: Pid, ended_ns: u64) {
        self.rescans.remove(pid);
        self.scans.remove(&pid);
        self.changed.remove(&pid);
        let ended = self.processes.remove(&pid);
        self.exited.extend(ended.map(|process| Process { ended_ns: Some(ended_ns), ..process }));
    }

    fn next_instance(&mut self) -> u64 {
        self.last_instance += 1;
        self.last_instance
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_address::{Avma, FileOffset};

    use super::*;
    use crate::event::ProcessEventKind;

    const PID: Pid = Pid(7);

    fn apply(registry: &mut Registry, time_ns: u64, kind: ProcessEventKind) {
        registry.apply(ProcessEvent { time_ns, pid: PID, kind });
    }

    fn map(start: u64) -> ProcessEventKind {
        ProcessEventKind::Map {
            range: Avma(start)..Avma(start + 0x1000),
            file_offset: FileOffset(0),
            file: None,
            path: Box::default(),
            executable: true,
        }
    }

    fn mapping_count(registry: &Registry) -> usize {
        registry.process(PID).unwrap().mappings().len()
    }

    /// A scan that may not read the mappings.
    fn scan_without_mappings(registry: &mut Registry, read_from_ns: u64) {
        registry.begin_scan(PID);
        let state = ProcessState::parse(b"7 (app) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0").unwrap();
        let scanned = ScanResult {
            read_from_ns,
            state,
            state_read_ns: read_from_ns,
            mappings: None,
            malformed_lines: 0,
        };
        registry.end_scan(PID, Ok(scanned)).unwrap();
    }

    #[test]
    fn a_scan_that_may_not_read_the_mappings_leaves_those_of_events_and_takes_later_ones() {
        let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
        apply(&mut registry, 10, ProcessEventKind::Exec { comm: Box::default() });
        apply(&mut registry, 11, map(0x1000));
        scan_without_mappings(&mut registry, 20);
        apply(&mut registry, 15, map(0x4000));
        assert_eq!(mapping_count(&registry), 2);
        assert_eq!(registry.process(PID).unwrap().start_ticks(), Some(100));
        assert_eq!(registry.counters().processes_unreadable, 1);
    }

    #[test]
    fn mappings_that_may_be_those_before_a_lost_exec_are_forgotten() {
        let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
        apply(&mut registry, 10, ProcessEventKind::Exec { comm: Box::default() });
        apply(&mut registry, 11, map(0x1000));
        apply(&mut registry, 12, ProcessEventKind::Lost { count: 1 });
        scan_without_mappings(&mut registry, monotonic_ns());
        assert_eq!(mapping_count(&registry), 0);
    }
}
