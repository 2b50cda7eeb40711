//! The processes that sampling follows: the registry, the processes that have just exited, and the reads of `/proc` in
//! progress.
//!
//! Owner: the sampling thread. Reads run on the threads of [`ForeignReader`], and none blocks sampling for longer than its
//! caller allows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_base::foreign::{ForeignReader, PendingRead, ReadProgress, ReadTarget};
use sidewinder_bpf::{Outcome, SampleRecord};
use sidewinder_process::{
    Pid, ProcRoot, Process, ProcessDescription, ProcessKey, ProcfsError, Registry, RegistryLimits, ScanResult,
};
use tracing::debug;

use super::environments::Environments;

/// The shortest time between two rescans of a process whose samples don't match its known mappings.
const RESCAN_INTERVAL: Duration = Duration::from_millis(500);

/// The processes that sampling follows, running or recently exited.
#[derive(Debug)]
pub(crate) struct ProcessTracker {
    pub(crate) registry: Registry,
    environments: Environments,
    reader: ForeignReader,
    scans: Vec<PendingScan>,
    /// Processes that have exited, and when. Their samples may still arrive.
    exited: HashMap<Pid, (Box<Process>, Instant)>,
    /// When a rescan of a process was last requested.
    rescans_requested_at: HashMap<Pid, Instant>,
}

/// A process whose mappings are being read.
#[derive(Debug)]
struct PendingScan {
    pid: Pid,
    pending: PendingRead<Result<ScanResult, ProcfsError>>,
}

impl ProcessTracker {
    /// With the names of the environment variables that are sent, and the memory for mappings.
    pub(crate) fn new(
        reader: ForeignReader,
        include_env_vars: Arc<[Box<str>]>,
        mapping_bytes: usize,
    ) -> Self {
        let limits = RegistryLimits { mapping_bytes, ..RegistryLimits::default() };
        Self {
            registry: Registry::new(ProcRoot::default(), limits),
            environments: Environments::new(reader.clone(), include_env_vars),
            reader,
            scans: Vec::new(),
            exited: HashMap::new(),
            rescans_requested_at: HashMap::new(),
        }
    }

    /// The reader of processes' memory and of their files in `/proc`.
    pub(crate) fn reader(&self) -> &ForeignReader {
        &self.reader
    }

    /// Whether reads are in progress.
    pub(crate) fn has_pending_reads(&self) -> bool {
        !self.scans.is_empty() || self.environments.has_pending_reads()
    }

    /// The process that a sample belongs to. A process with the same PID that exited before the sample is a different one.
    pub(crate) fn process_of(&self, sample: &SampleRecord) -> Option<&Process> {
        // Threads are still interrupted on their way out, after the exit event of their process.
        self.latest_with_pid(Pid(sample.pid))
            .filter(|process| sample.outcome == Outcome::Exiting || process.was_alive_at(sample.time_ns))
    }

    /// The process that has a PID, or the last one that had it.
    fn latest_with_pid(&self, pid: Pid) -> Option<&Process> {
        let exited = || self.exited.get(&pid).map(|(process, _)| &**process);
        self.registry.process_or_ended(pid).or_else(exited)
    }

    /// The process with this key, if it is running or has just exited.
    pub(crate) fn running_or_exited(&self, key: ProcessKey) -> Option<&Process> {
        self.latest_with_pid(Pid(key.pid)).filter(|process| process.instance() == key.instance)
    }

    /// The process with this key, if it is running.
    pub(crate) fn running(&self, key: ProcessKey) -> Option<&Process> {
        self.registry.process(Pid(key.pid)).filter(|process| process.instance() == key.instance)
    }

    /// The description of a running process, with its environment if the read completes at once. Otherwise
    /// [`Self::finish_environments`] adds the environment later.
    pub(crate) fn describe(&mut self, pid: Pid) -> Option<Arc<ProcessDescription>> {
        self.environments.describe(pid, &mut self.registry)
    }

    /// Adds the environments that have been read since. Returns their processes.
    pub(super) fn finish_environments(&mut self) -> Vec<ProcessKey> {
        self.environments.take_completed(&mut self.registry)
    }

    /// Reads the mappings of a process, and waits for them at most for `timeout`. [`Self::finish_scans`] takes the result of
    /// a scan that takes longer.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] for a process that has exited.
    pub(crate) fn scan(&mut self, pid: Pid, timeout: Duration) -> Result<(), ProcfsError> {
        let scanner = self.registry.begin_scan(pid);
        let target = match scanner.start_ticks(pid) {
            Ok(start_ticks) => ReadTarget { pid, start_ticks },
            Err(error) => return self.registry.end_scan(pid, Err(error)),
        };
        let submitted = self.reader.submit(target, move || scanner.scan(pid));
        match submitted.and_then(|pending| pending.wait(timeout)) {
            Ok(ReadProgress::Done(scanned)) => self.registry.end_scan(pid, scanned),
            Ok(ReadProgress::Pending(pending)) => {
                self.scans.push(PendingScan { pid, pending });
                Ok(())
            }
            Err(none) => {
                debug!(%pid, %none, "can't read the mappings of a process");
                self.registry.abandon_scan(pid);
                Ok(())
            }
        }
    }

    /// Rescans the processes that the registry considers stale.
    pub(crate) fn rescan_stale(&mut self) {
        for pid in self.registry.take_due_rescans() {
            // If reading fails, the registry removes or counts the process.
            let _ = self.scan(pid, Duration::ZERO);
        }
    }

    /// Takes the results of the scans that have ended.
    pub(crate) fn finish_scans(&mut self) {
        let (registry, scans) = (&mut self.registry, &mut self.scans);
        scans.retain(|PendingScan { pid, pending }| match pending.poll() {
            None => true,
            Some(Ok(scanned)) => {
                let _ = registry.end_scan(*pid, scanned);
                false
            }
            Some(Err(none)) => {
                debug!(%pid, %none, "can't read the mappings of a process");
                registry.abandon_scan(*pid);
                false
            }
        });
    }

    /// Requests a rescan of a process whose samples don't match its known mappings.
    pub(crate) fn request_rescan(&mut self, pid: Pid) {
        let requested_at = self.rescans_requested_at.get(&pid);
        if requested_at.is_none_or(|at| at.elapsed() >= RESCAN_INTERVAL) {
            self.rescans_requested_at.insert(pid, Instant::now());
            self.registry.mark_stale(pid);
        }
    }

    /// Keeps a process that has exited, for its late samples.
    pub(crate) fn retain_exited(&mut self, process: Box<Process>) {
        self.rescans_requested_at.remove(&process.pid());
        self.exited.insert(process.pid(), (process, Instant::now()));
    }

    /// Forgets processes that exited longer ago than this.
    pub(crate) fn forget_exited(&mut self, age: Duration) {
        self.exited.retain(|_, (_, at)| at.elapsed() < age);
        self.rescans_requested_at.retain(|_, at| at.elapsed() < 4 * RESCAN_INTERVAL);
    }
}
