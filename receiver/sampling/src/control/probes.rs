//! The probes of users: finding the files of those in programs in the roots of processes, and attaching them.
//!
//! Owner: the sampling thread. A thread of its own opens and reads the files: they are foreign, and large. Input: processes
//! that come into scope. Output: attached probes.
//!
//! A probe is attached to the file that the profiled process sees under its path: found in the process's root, which no link
//! leaves, and attached by the descriptor with which it was checked and read. If the scope lists processes, each gets a probe
//! of its own, which costs no other process anything. Otherwise a file is probed once, for all that map it.
//!
//! A probe at a tracepoint of the kernel is attached once, for all tasks.

mod probe_error;
mod resolver;

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use sidewinder_base::causes::error_chain;
use sidewinder_base::file_version::FileVersion;
use sidewinder_base::supervise::ThreadSupervisor;
use sidewinder_bpf::Profiler;
use sidewinder_kind::SampledProbe;
use sidewinder_process::{Pid, ProcessKey};
use tracing::{debug, warn};

pub(crate) use self::probe_error::ProbeError;
use self::resolver::{ProbeResolver, ResolvedProbe};
use crate::user_probe::UserProbe;

/// How long startup waits for the files of probes to be found and read.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The probes, and where they are attached.
#[derive(Debug)]
pub(crate) struct Probes {
    resolver: Option<ProbeResolver>,
    tracked: Vec<TrackedProbe>,
    /// Whether each process has a probe of its own.
    is_per_process: bool,
    /// Attached files, by probe; with the process if each has its own.
    attached: HashSet<(u8, FileVersion, Option<Pid>)>,
    /// The processes in whose roots files are looked for already, by their instance.
    processes: HashMap<Pid, u64>,
}

#[derive(Debug)]
struct TrackedProbe {
    probe: UserProbe,
    attached_count: u64,
    /// Why it could not be attached, most recently.
    failure: Option<ProbeError>,
}

impl Probes {
    pub(crate) fn start(
        probes: &[UserProbe],
        is_per_process: bool,
        supervisor: &ThreadSupervisor,
        profiler: &mut Profiler<'_>,
    ) -> io::Result<Self> {
        for (index, probe) in (0..).zip(probes) {
            let share = probe
                .spec
                .as_ref()
                .map_or(sidewinder_config::ProbeSpec::MAX_OVERHEAD, |spec| spec.max_overhead.get());
            profiler.set_user_probe_budget(index, share);
            if probe.spec.is_none() {
                profiler.await_user_probe(index);
            }
        }
        let has_places = probes.iter().any(|probe| probe.in_programs().is_some());
        let resolver = has_places.then(|| ProbeResolver::start(probes, supervisor)).transpose()?;
        let tracked = probes
            .iter()
            .map(|probe| TrackedProbe { probe: probe.clone(), attached_count: 0, failure: None })
            .collect();
        Ok(Self { resolver, tracked, is_per_process, attached: HashSet::new(), processes: HashMap::new() })
    }

    /// Attaches the probes at tracepoints of the kernel.
    pub(crate) fn attach_tracepoints(&mut self, profiler: &mut Profiler<'_>) {
        let indexed = (0..).zip(&mut self.tracked);
        let tracepoints = indexed.filter_map(|(probe, tracked)| {
            let tracepoint = tracked.probe.tracepoint()?;
            Some((probe, tracked, tracepoint))
        });
        for (index, (probe, tracked, tracepoint)) in tracepoints.enumerate() {
            let attached = tracepoint
                .value()
                .and_then(|value| profiler.attach_tracepoint(probe, index, &tracepoint.name, value));
            match attached.map_err(ProbeError::Tracepoint) {
                Ok(()) => tracked.attached_count += 1,
                Err(failure) => {
                    warn!(probe = tracked.probe.sampled.name(), "degraded: {}", error_chain(&failure));
                    tracked.failure = Some(failure);
                }
            }
        }
    }

    /// Looks for the files of probes in the root of a process, unless that was done.
    pub(crate) fn add_process(&mut self, key: ProcessKey) {
        let Some(resolver) = &mut self.resolver else { return };
        if self.processes.insert(Pid(key.pid), key.instance) != Some(key.instance) {
            resolver.request(Pid(key.pid));
        }
    }

    /// Looks for the files of probes in the root of a process that sampling knows no more of than that it is in scope.
    pub(crate) fn add_unknown_process(&mut self, pid: Pid) {
        if let Some(resolver) = self.resolver.as_mut().filter(|_| !self.processes.contains_key(&pid)) {
            resolver.request(pid);
        }
    }

    /// Looks again in the root of a process that has run exec: a container's first process gets its root shortly before.
    pub(crate) fn renew_process(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Takes the probes of a process that has exited out.
    pub(crate) fn remove_process(&mut self, pid: Pid, profiler: &mut Profiler<'_>) {
        self.processes.remove(&pid);
        if self.is_per_process {
            profiler.detach_user_probes(pid.0);
            self.attached.retain(|(_, _, process)| *process != Some(pid));
        }
    }

    /// Attaches probes to the files that have been found.
    pub(crate) fn attach_found(&mut self, profiler: &mut Profiler<'_>) {
        while let Some(found) = self.resolver.as_mut().and_then(ProbeResolver::try_next) {
            self.attach(found, profiler);
        }
    }

    /// Waits until the files of the processes so far have been found and probed.
    pub(crate) fn wait_for_found(&mut self, profiler: &mut Profiler<'_>) {
        let deadline = Instant::now() + START_TIMEOUT;
        while let Some(resolver) = self.resolver.as_mut().filter(|resolver| resolver.in_progress() > 0) {
            let Some(found) = resolver.next_by(deadline) else { return };
            self.attach(found, profiler);
        }
    }

    fn attach(&mut self, found: ResolvedProbe, profiler: &mut Profiler<'_>) {
        let ResolvedProbe { probe, pid, found } = found;
        let Some(tracked) = self.tracked.get_mut(usize::from(probe)) else { return };
        let attached = found.and_then(|(file, content, places)| {
            let process = self.is_per_process.then_some(pid);
            if self.attached.contains(&(probe, file, process)) {
                return Ok(());
            }
            for place in places.iter() {
                profiler
                    .attach_user_probe(probe, &content, *place, process.map(|pid| pid.0))
                    .map_err(|source| ProbeError::Attach { pid, source })?;
            }
            self.attached.insert((probe, file, process));
            tracked.attached_count += 1;
            Ok(())
        });
        let Err(failure) = attached else { return };
        let name = tracked.probe.sampled.name();
        if failure.is_missing_file() {
            debug!(probe = name, %pid, "the process has no such file");
        } else if tracked.failure.as_ref().is_none_or(ProbeError::is_missing_file) {
            warn!(probe = name, "degraded: {}", error_chain(&failure));
        }
        if tracked.failure.as_ref().is_none_or(ProbeError::is_missing_file) {
            tracked.failure = Some(failure);
        }
    }

    /// The probes that are attached nowhere.
    pub(crate) fn unattached(&self) -> impl Iterator<Item = SampledProbe> {
        let is_unattached =
            |tracked: &&TrackedProbe| tracked.attached_count == 0 && tracked.probe.spec.is_some();
        self.tracked.iter().filter(is_unattached).map(|tracked| tracked.probe.sampled)
    }

    /// Takes the first probe that is attached nowhere, with the reason.
    pub(crate) fn take_unattached(&mut self) -> Option<(String, ProbeError)> {
        let tracked = self
            .tracked
            .iter_mut()
            .find(|tracked| tracked.attached_count == 0 && tracked.probe.spec.is_some())?;
        let spec = tracked.probe.spec.as_ref()?.to_string();
        Some((spec, tracked.failure.take().unwrap_or(ProbeError::NoFile)))
    }
}
