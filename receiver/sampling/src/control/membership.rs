//! Scope membership: which processes are in scope, and which containers have their events open.
//!
//! Owner: the sampling thread. Input: exec events, forks that the [scope](super::scope) follows, and new containers that the
//! eBPF programs report. Output: the programs' list of processes, open events, and scans of the processes that come into
//! scope.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sidewinder_base::causes::error_chain;
use sidewinder_base::foreign::ReadTarget;
use sidewinder_bpf::{
    EventError, EventScope, ListedFrom, Newcomer, Opener, Profiler, SampleRecord, TaskFilter, boot_time_ns,
    monotonic_ns,
};
use sidewinder_process::{Pid, ProcRoot, ProcessDir, ProcessTree, ProcfsError, RunningProcess};
use tracing::{info, warn};

use super::pod::{self, Pod};
use super::processes::ProcessTracker;
use super::scope::{ForkedProcess, ListChange, SamplingScope};
use crate::SamplingError;

/// How long startup waits for the scan of a process that the configuration names.
const NAMED_PROCESS_SCAN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long startup waits for the scans of all running descendants of such processes together.
const DESCENDANTS_SCAN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long startup waits for the scan of any other process.
const PROCESS_SCAN_TIMEOUT: Duration = Duration::from_millis(100);
/// How long sampling waits for the scan of the first process of a container.
const FIRST_PROCESS_SCAN_TIMEOUT: Duration = Duration::from_millis(20);

/// The scope, and the containers whose events are open.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) scope: SamplingScope,
    /// The profiler's own pod, if it is the scope and cgroups distinguish it from the rest of the node.
    pod: Option<Pod>,
    /// Opens events, which needs privileges.
    opener: Opener,
    /// Containers whose events could not be opened yet, by cgroup, and the time of the first attempt.
    unopened_containers: HashMap<u64, (Newcomer, Instant)>,
    /// The number of processes for which the programs' list was full, as of the last warning.
    list_full_count: u64,
}

impl Membership {
    pub(crate) fn new(scope: SamplingScope, pod: Option<Pod>, opener: Opener) -> Self {
        Self { scope, pod, opener, unopened_containers: HashMap::new(), list_full_count: 0 }
    }

    /// Opens the side band, for the pod's containers or for every task.
    pub(crate) fn open_side_band(&mut self, processes: &mut ProcessTracker, profiler: &mut Profiler<'_>) {
        let event_scope = pod::audience(self.pod.as_ref(), &self.opener);
        if let Some(pod) = &self.pod {
            processes.registry.restrict_to_pod(pod.bounds.clone());
            if matches!(event_scope, EventScope::EveryTask) {
                self.scope.restrict_to_pod(pod.bounds.clone());
            }
        }
        if let Err(error) = profiler.open_side_band(event_scope) {
            warn!(%error, "degraded: new mappings are noticed only when a sample hits them");
        }
    }

    /// Finds the running processes that are in scope.
    pub(crate) fn find_running(
        &mut self,
        processes: &mut ProcessTracker,
        profiler: &Profiler<'_>,
    ) -> Result<(), SamplingError> {
        for pid in self.scope.pids() {
            if !self.scope.begins_at_exec(pid) {
                processes.scan(Pid(pid), NAMED_PROCESS_SCAN_TIMEOUT).map_err(|error| match error {
                    ProcfsError::Gone { .. } => SamplingError::NoProcess(pid),
                    other => SamplingError::Scan(other),
                })?;
            }
            self.evaluate(Pid(pid), processes, profiler)?;
        }
        if self.scope.mode() != TaskFilter::Listed {
            processes.registry.follow_all();
            for pid in ProcRoot::default().pids().map_err(SamplingError::Scan)? {
                // A process that can't be read has exited, or is counted.
                let _ = processes.scan(pid, PROCESS_SCAN_TIMEOUT);
            }
        }
        for pid in self.scope.excluded_pids() {
            self.evaluate(Pid(pid), processes, profiler)?;
        }
        if self.scope.depends_on_exec() {
            self.evaluate_all(processes, profiler)?;
        }
        self.list_descendants(DESCENDANTS_SCAN_TIMEOUT, processes, profiler)
    }

    /// Lists the running descendants of listed processes: those that were forked before their parent was listed, and whose fork we
    /// have not seen. Waits for their scans at most for `timeout` altogether.
    fn list_descendants(
        &mut self,
        timeout: Duration,
        processes: &mut ProcessTracker,
        profiler: &Profiler<'_>,
    ) -> Result<(), SamplingError> {
        if self.scope.mode() == TaskFilter::All || !self.scope.has_children() {
            return Ok(());
        }
        let deadline = Instant::now() + timeout;
        let tree = ProcessTree::read(ProcRoot::default()).map_err(SamplingError::Scan)?;
        let listed = self.scope.listed().into_iter();
        let mut parents: Vec<RunningProcess> = listed.filter_map(|pid| tree.process(Pid(pid))).collect();
        while let Some(parent) = parents.pop() {
            // The scope may still have a process that has exited since, and whose PID another process has now.
            if !profiler.is_listed_since(parent.pid.0, target(parent).start_ns()) {
                continue;
            }
            let children = match self.scope.mode() {
                TaskFilter::Unlisted => tree.possible_children(parent).collect(),
                TaskFilter::All | TaskFilter::Listed => tree.children(parent),
            };
            for child in children {
                if self.list_child(child, profiler)? {
                    parents.push(child);
                    if self.scope.contains(child.pid.0) {
                        let timeout = deadline.saturating_duration_since(Instant::now());
                        // A process that can't be read has exited, or is counted.
                        let _ = processes.scan(child.pid, timeout.min(PROCESS_SCAN_TIMEOUT));
                    }
                }
            }
        }
        Ok(())
    }

    /// Lists a running child of a listed process, unless it is excluded, outside of our pod, or listed already. Returns whether
    /// that has changed the list.
    fn list_child(&mut self, child: RunningProcess, profiler: &Profiler<'_>) -> Result<bool, SamplingError> {
        // If it has exited, there is nothing to list.
        let Ok(child) = target(child).open_dir() else { return Ok(false) };
        let is_in_pod = self
            .pod
            .as_ref()
            .is_none_or(|pod| child.read("cgroup").is_ok_and(|cgroup| pod.bounds.contain(&cgroup)));
        if !is_in_pod {
            return Ok(false);
        }
        self.update_list(&child, SamplingScope::evaluate_child, profiler)
    }

    /// Evaluates all running processes, and repeats while new containers come into scope: a process can bring in the
    /// container of one that was evaluated before it.
    fn evaluate_all(
        &mut self,
        processes: &mut ProcessTracker,
        profiler: &Profiler<'_>,
    ) -> Result<(), SamplingError> {
        loop {
            let containers = self.scope.containers();
            for pid in ProcRoot::default().pids().map_err(SamplingError::Scan)? {
                self.evaluate(pid, processes, profiler)?;
            }
            if containers == self.scope.containers() {
                return Ok(());
            }
        }
    }

    /// Evaluates a process that has executed a program. One that comes into scope is not scanned: the events that follow report
    /// all of its mappings.
    pub(crate) fn evaluate_exec(
        &mut self,
        pid: Pid,
        processes: &mut ProcessTracker,
        profiler: &Profiler<'_>,
    ) {
        if !self.scope.depends_on_exec() {
            return;
        }
        let containers = self.scope.containers();
        let evaluated =
            self.apply_rules(pid, profiler).and_then(|_| match containers == self.scope.containers() {
                true => Ok(()),
                false => self.evaluate_all(processes, profiler),
            });
        if let Err(error) = evaluated {
            warn!(%pid, "degraded: a process can't be added to the scope: {}", error_chain(&error));
        }
    }

    fn evaluate(
        &mut self,
        pid: Pid,
        processes: &mut ProcessTracker,
        profiler: &Profiler<'_>,
    ) -> Result<(), SamplingError> {
        let is_changed = self.apply_rules(pid, profiler)?;
        if is_changed && self.scope.contains(pid.0) && !self.scope.begins_at_exec(pid.0) {
            // A process that can't be read has exited, or is counted.
            let _ = processes.scan(pid, Duration::ZERO);
        }
        Ok(())
    }

    /// Applies the rules to the process that has a PID now. Returns whether the programs' list has changed.
    fn apply_rules(&mut self, pid: Pid, profiler: &Profiler<'_>) -> Result<bool, SamplingError> {
        match ProcessDir::open(&ProcRoot::default(), pid) {
            Ok(process) => self.update_list(&process, SamplingScope::evaluate, profiler),
            Err(_) => Ok(false),
        }
    }

    /// Applies rules of the scope to a process, and updates the programs' list. Returns whether that has changed.
    fn update_list(
        &mut self,
        process: &ProcessDir,
        rules: impl FnOnce(&mut SamplingScope, &ProcessDir) -> ListChange,
        profiler: &Profiler<'_>,
    ) -> Result<bool, SamplingError> {
        // If it has exited, there is nothing to list.
        let Ok(target) = ReadTarget::from_dir(process) else { return Ok(false) };
        let pid = target.pid.0;
        let program = profiler.executed_program(pid);
        match rules(&mut self.scope, process) {
            ListChange::None => return Ok(false),
            ListChange::Remove => profiler.unlist(pid),
            ListChange::Add => self.add_to_list(target, profiler)?,
            ListChange::AddProgram => {
                self.add_to_list(target, profiler)?;
                // Unless the process has executed another one meanwhile.
                if let Some(program) =
                    program.filter(|of| profiler.executed_program(pid).as_ref() == Some(of))
                {
                    profiler.list_program(&program);
                }
            }
            ListChange::RemoveProgram => {
                if let Some(program) = program {
                    profiler.unlist_program(&program);
                }
                // The programs list a process by its program, which may have had another path.
                if profiler.is_listed(pid) {
                    profiler.unlist(pid);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the child of a process out of scope from the programs' list. They list the children of processes that they have
    /// listed by their program, which may have been found to be out of scope meanwhile. A child that has executed a program since is
    /// evaluated for that.
    pub(crate) fn unlist_child(&self, child: Pid, profiler: &Profiler<'_>) {
        if self.scope.has_programs()
            && !self.scope.contains(child.0)
            && profiler.is_listed(child.0)
            && profiler.executed_program(child.0).is_none()
        {
            profiler.unlist(child.0);
        }
    }

    /// Whether a sample is of a process out of scope: one that the programs did not leave out yet, or that they listed by its program
    /// and that was not found to be in scope.
    pub(crate) fn leaves_out(&self, sample: &SampleRecord, processes: &ProcessTracker) -> bool {
        self.scope.excludes(sample.pid)
            || self.scope.has_programs()
                && !self.scope.contains(sample.pid)
                && processes.process_of(sample).is_none()
    }

    /// Adds a process to the programs' list.
    fn add_to_list(&mut self, process: ReadTarget, profiler: &Profiler<'_>) -> Result<(), SamplingError> {
        let pid = process.pid.0;
        let from = match self.scope.begins_at_exec(pid) {
            true => ListedFrom::NextExec,
            false => ListedFrom::Now,
        };
        profiler.list(pid, process.start_ns(), from)?;
        self.scope.mark_listed(pid, monotonic_ns());
        Ok(())
    }

    /// Adds the children that processes forked before the programs listed them.
    pub(crate) fn add_pending_to_list(&mut self, profiler: &Profiler<'_>) {
        for forked in self.scope.take_pending() {
            if let Ok(process) = ReadTarget::from_pid(Pid(forked.pid))
                && is_forked_process(forked, process, boot_time_ns().saturating_sub(monotonic_ns()))
            {
                // A full list is counted.
                let _ = self.add_to_list(process, profiler);
            }
        }
    }

    /// Warns if the programs' list was full for more processes since the last warning.
    pub(crate) fn warn_of_full_list(&mut self, profiler: &Profiler<'_>) {
        let lost = profiler.scope_list_full();
        if lost > self.list_full_count {
            self.list_full_count = lost;
            let cost = self.full_list_cost(profiler).unwrap_or_default();
            warn!(processes = lost, "degraded: the list of included or excluded processes is full: {cost}");
        }
    }

    /// What the user loses if the programs' list was full; `None` if it never was.
    pub(crate) fn full_list_cost(&self, profiler: &Profiler<'_>) -> Option<&'static str> {
        let cost = match self.scope.mode() {
            TaskFilter::Unlisted => {
                "processes that started after the profiler are not sampled until it is restarted"
            }
            TaskFilter::All | TaskFilter::Listed => {
                "some processes that included ones have started are not sampled"
            }
        };
        (profiler.scope_list_full() > 0).then_some(cost)
    }

    /// Opens the events of a new container of our pod that the programs reported.
    pub(crate) fn open_container(
        &mut self,
        new_container: Newcomer,
        processes: &mut ProcessTracker,
        profiler: &mut Profiler<'_>,
    ) {
        let Some(pod) = &self.pod else { return };
        let opened = pod
            .container(new_container.pid, &self.opener)
            .and_then(|container| profiler.add_container(container));
        match opened {
            Ok(is_new) => {
                if is_new {
                    info!(pid = new_container.pid, "a container of this pod has started");
                    self.evaluate_started(processes, profiler);
                }
                self.unopened_containers.remove(&new_container.container);
                profiler.acknowledge(&new_container);
                read_first_process(Pid(new_container.pid), processes);
            }
            // The process is gone; the programs report the next one that runs in that container.
            Err(_) if !pod::exists(new_container.pid) => {}
            Err(error) => {
                let (_, since) = *self
                    .unopened_containers
                    .entry(new_container.container)
                    .or_insert((new_container, Instant::now()));
                if since.elapsed() >= pod::OPEN_TIMEOUT {
                    self.open_every_task(&error, profiler);
                }
            }
        }
    }

    /// Evaluates processes that may have started before the events of their container were open.
    fn evaluate_started(&mut self, processes: &mut ProcessTracker, profiler: &Profiler<'_>) {
        if !self.scope.depends_on_exec() {
            return;
        }
        let evaluated = self.evaluate_all(processes, profiler);
        if let Err(error) =
            evaluated.and_then(|()| self.list_descendants(Duration::ZERO, processes, profiler))
        {
            warn!(
                "degraded: processes of a new container can't be added to the scope: {}",
                error_chain(&error)
            );
        }
    }

    /// Retries opening the events of containers for which it failed.
    pub(crate) fn retry_containers(&mut self, processes: &mut ProcessTracker, profiler: &mut Profiler<'_>) {
        self.unopened_containers.retain(|_, (new_container, _)| pod::exists(new_container.pid));
        let unopened: Vec<Newcomer> =
            self.unopened_containers.values().map(|(new_container, _)| *new_container).collect();
        for new_container in unopened {
            self.open_container(new_container, processes, profiler);
        }
    }

    /// Replaces the events of containers with those of every task.
    fn open_every_task(&mut self, reason: &EventError, profiler: &mut Profiler<'_>) {
        pod::warn_of_every_task(reason);
        self.unopened_containers.clear();
        if let Some(pod) = &self.pod {
            self.scope.restrict_to_pod(pod.bounds.clone());
        }
        if let Err(error) = profiler.widen() {
            warn!("degraded: a new container of this pod is not sampled: {}", error_chain(&error));
        }
    }
}

/// Reads the mappings and the description of a container's first process, which its children inherit. The children may be
/// too short-lived to be read themselves, and the first process may never be sampled.
fn read_first_process(pid: Pid, processes: &mut ProcessTracker) {
    // A process that can't be read has exited, or is counted.
    let _ = processes.scan(pid, FIRST_PROCESS_SCAN_TIMEOUT);
    let _ = processes.describe(pid);
}

/// The process, for reads.
fn target(RunningProcess { pid, start_ticks }: RunningProcess) -> ReadTarget {
    ReadTarget { pid, start_ticks }
}

/// Whether a process is the one that was forked, and not a later one with its PID: a process starts before its fork is reported.
/// `suspended_ns` is the time for which the machine has slept since boot: `CLOCK_BOOTTIME` less `CLOCK_MONOTONIC`.
fn is_forked_process(forked: ForkedProcess, process: ReadTarget, suspended_ns: u64) -> bool {
    process.start_ns().saturating_sub(suspended_ns) <= forked.forked_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_process_with_the_pid_of_a_child_is_not_the_child() {
        const SUSPENDED_NS: u64 = 5_000_000_000;
        let forked = ForkedProcess { pid: 7, forked_ns: 20_004_000_000 };
        let is_it =
            |start_ticks| is_forked_process(forked, ReadTarget { pid: Pid(7), start_ticks }, SUSPENDED_NS);
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        assert!(is_it(25 * ticks_per_second), "its start is rounded down");
        assert!(!is_it(25 * ticks_per_second + 1) && !is_it(26 * ticks_per_second));
    }
}
