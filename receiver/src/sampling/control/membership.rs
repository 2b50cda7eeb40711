//! Who is in scope, and whose events are open for that.

use std::time::{Duration, Instant};
use std::{io, thread};

use sidewinder_bpf::{
    Audience, Container, EventError, Newcomer, Opener, PodCgroup, ScopeMode, monotonic_ns, own_cgroups,
};
use sidewinder_process::{NoPod, Pid, PodBounds, ProcRoot, ProcessDir, ProcfsError};
use tracing::{info, warn};

use super::scans;
use super::scope::Verdict;
use crate::exit::chain;
use crate::sampling::{Sampler, SamplingError};

/// The first process of a PID namespace. In a pod it is that of the pause container, which does nothing.
const FIRST_PID: u32 = 1;

/// How long a container's events may not be had before those of every task are opened. A runtime's own process, on its way
/// into a container, is in that container's cgroup already and does not see it yet.
const NEWCOMER_PATIENCE: Duration = Duration::from_secs(2);
/// How often they are tried at the start.
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Our pod, as far as it can be told from others.
#[derive(Debug)]
pub(in crate::sampling) struct Pod {
    /// What the programs compare.
    pub(in crate::sampling) cgroup: PodCgroup,
    /// What we compare.
    pub(in crate::sampling) bounds: PodBounds,
    /// The ids of the pod's cgroup and of those above it.
    above: Vec<u64>,
}

impl Pod {
    /// The container of a process of the pod. A privileged one may see more than its own cgroup: the events of what it sees
    /// would be those of the node.
    fn container(&self, pid: u32, opener: &Opener) -> Result<Container, EventError> {
        let container = opener.container(pid).map_err(EventError::Opener)?;
        if self.above.contains(&container.id().0) {
            let reason = format!("process {pid} sees the cgroups of the whole pod or node on /sys/fs/cgroup");
            return Err(EventError::Opener(io::Error::other(reason)));
        }
        Ok(container)
    }
}

/// Finds the pod that we run in. `None`: nothing but the PID namespace tells it.
pub(in crate::sampling) fn find_pod() -> Result<Option<Pod>, SamplingError> {
    if sidewinder_bpf::is_in_initial_pid_namespace()? {
        return Err(NoPod::Node.into());
    }
    let own = own_cgroups()?;
    let cgroup_of = |pid| {
        let process = ProcessDir::open(&ProcRoot::default(), Pid(pid)).map_err(SamplingError::Scan)?;
        process.read("cgroup").map_err(SamplingError::Scan)
    };
    let (ours, first) = (cgroup_of(std::process::id())?, cgroup_of(FIRST_PID)?);
    let Some(bounds) = PodBounds::find(&ours, &first, own.len().saturating_sub(1))? else {
        warn!(
            "degraded: there are no cgroups of version 2: the pod is told by its PID namespace alone, which the node's \
             administrator can enter, and each interrupt of the node is looked at"
        );
        return Ok(None);
    };
    let above: Vec<u64> = own.into_iter().take(bounds.level() + 1).collect();
    let level = u32::try_from(bounds.level()).ok();
    Ok(level.zip(above.last().copied()).map(|(level, id)| Pod {
        cgroup: PodCgroup { level, id },
        bounds,
        above,
    }))
}

/// Whose events to open: those of the containers of our pod, where all of them can be had.
pub(in crate::sampling) fn audience(pod: Option<&Pod>, opener: &Opener) -> Audience {
    let Some(pod) = pod else { return Audience::EveryTask };
    let since = Instant::now();
    loop {
        match containers(pod, opener) {
            Ok(containers) => return Audience::Containers(containers),
            Err(_) if since.elapsed() < NEWCOMER_PATIENCE => thread::sleep(PAUSE_BETWEEN_TRIES),
            Err(error) => {
                warn_of_every_task(&error);
                return Audience::EveryTask;
            }
        }
    }
}

fn containers(pod: &Pod, opener: &Opener) -> Result<Vec<Container>, EventError> {
    let own = std::process::id();
    let mut containers: Vec<Container> = Vec::new();
    let others = ProcRoot::default().pids().unwrap_or_default().into_iter().map(|pid| pid.0);
    for pid in std::iter::once(own).chain(others.filter(|pid| *pid != own)) {
        let process =
            ProcessDir::open(&ProcRoot::default(), Pid(pid)).and_then(|process| process.read("cgroup"));
        if !process.is_ok_and(|cgroup| pod.bounds.hold(&cgroup))
            || containers.iter().any(|known| known.holds(pid))
        {
            continue;
        }
        match pod.container(pid, opener) {
            Ok(container) => containers.push(container),
            // It belongs to a user of its own, into whose processes we may not look.
            Err(_) if pid == FIRST_PID => {}
            Err(_) if !is_there(pid) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(containers)
}

fn is_there(pid: u32) -> bool {
    ProcessDir::open(&ProcRoot::default(), Pid(pid)).and_then(|process| process.state()).is_ok()
}

fn warn_of_every_task(error: &EventError) {
    warn!(
        "degraded: all interrupts of the node are looked at, and left if they are not this pod's, as a container's own \
         can't be had: {}",
        chain(error)
    );
}

impl Sampler<'_> {
    /// Learns who is in scope of what already runs.
    pub(in crate::sampling) fn learn_scope(&mut self) -> Result<(), SamplingError> {
        for pid in self.options.scope.pids() {
            self.scan(Pid(pid), scans::START_PATIENCE).map_err(|error| match error {
                ProcfsError::Gone { .. } => SamplingError::NoProcess(pid),
                other => SamplingError::Scan(other),
            })?;
            self.judge(Pid(pid))?;
        }
        if self.options.scope.mode() != ScopeMode::Listed {
            self.registry.follow_all();
            for pid in ProcRoot::default().pids().map_err(SamplingError::Scan)? {
                // Where reading fails, the process has gone or is counted.
                let _ = self.scan(pid, scans::EACH_PATIENCE);
            }
        }
        if self.options.scope.changes_by_exec() {
            self.judge_all()?;
        }
        Ok(())
    }

    /// Judges all processes that there are. One that brings its container into scope may come behind others of it.
    fn judge_all(&mut self) -> Result<(), SamplingError> {
        loop {
            let containers = self.options.scope.containers();
            for pid in ProcRoot::default().pids().map_err(SamplingError::Scan)? {
                self.judge(pid)?;
            }
            if containers == self.options.scope.containers() {
                return Ok(());
            }
        }
    }

    /// Judges what runs in a container whose events have just been opened.
    fn judge_newcomers(&mut self) {
        if self.options.scope.changes_by_exec()
            && let Err(error) = self.judge_all()
        {
            warn!("degraded: processes of a new container can't be taken into scope: {}", chain(&error));
        }
    }

    /// Judges a process that has become another program.
    pub(in crate::sampling) fn judge_anew(&mut self, pid: Pid) {
        let containers = self.options.scope.containers();
        let judged = self.judge(pid).and_then(|()| match containers == self.options.scope.containers() {
            true => Ok(()),
            false => self.judge_all(),
        });
        if let Err(error) = judged {
            warn!(%pid, "degraded: a process can't be taken into scope: {}", chain(&error));
        }
    }

    fn judge(&mut self, pid: Pid) -> Result<(), SamplingError> {
        match self.options.scope.judge(pid.0) {
            Verdict::Stays => return Ok(()),
            Verdict::Unlist => self.profiler.unlist(pid.0),
            Verdict::List => self.list(pid)?,
        }
        if self.options.scope.holds(pid.0) {
            // Where it can't be read it has ended, or is counted.
            let _ = self.scan(pid, Duration::ZERO);
        }
        Ok(())
    }

    /// Has the programs list a process, unless it has ended.
    fn list(&mut self, pid: Pid) -> Result<(), SamplingError> {
        if let Some(start_ns) = start_ns(pid) {
            self.profiler.list(pid.0, start_ns)?;
            self.options.scope.told(pid.0, monotonic_ns());
        }
        Ok(())
    }

    /// Has the programs list what was forked by a process before that was listed.
    pub(in crate::sampling) fn list_untold(&mut self) {
        for pid in self.options.scope.take_untold() {
            // Where there is no room it is counted.
            let _ = self.list(Pid(pid));
        }
    }

    /// Says that the list of processes was full, when that has happened again.
    pub(in crate::sampling) fn warn_of_full_list(&mut self) {
        let lost = self.profiler.scope_full();
        if lost > self.list_was_full {
            self.list_was_full = lost;
            let cost = self.scope_full_cost().unwrap_or_default();
            warn!(processes = lost, "degraded: the list of included or excluded processes is full: {cost}");
        }
    }

    /// What it costs that the list of processes was full, if it was.
    pub(crate) fn scope_full_cost(&self) -> Option<&'static str> {
        let cost = match self.options.scope.mode() {
            ScopeMode::Unlisted => {
                "processes that started after the profiler are not sampled until it is restarted"
            }
            ScopeMode::All | ScopeMode::Listed => {
                "some processes that included ones have started are not sampled"
            }
        };
        (self.profiler.scope_full() > 0).then_some(cost)
    }

    /// Opens the events of a container of our pod of which the programs tell.
    pub(in crate::sampling) fn welcome(&mut self, newcomer: Newcomer) {
        let Some(pod) = &self.pod else { return };
        let opened = pod
            .container(newcomer.pid, &self.opener)
            .and_then(|container| self.profiler.add_container(container));
        match opened {
            Ok(is_new) => {
                if is_new {
                    info!(pid = newcomer.pid, "a container of this pod has started");
                    // Nobody heard of what was run there before.
                    self.judge_newcomers();
                }
                self.newcomers.remove(&newcomer.container);
                self.profiler.acknowledge(&newcomer);
                self.meet_first_process(Pid(newcomer.pid));
            }
            // The next one to run in that container will be told of.
            Err(_) if !is_there(newcomer.pid) => {}
            Err(error) => {
                let (_, since) =
                    *self.newcomers.entry(newcomer.container).or_insert((newcomer, Instant::now()));
                if since.elapsed() >= NEWCOMER_PATIENCE {
                    self.widen(&error);
                }
            }
        }
    }

    /// Learns of a container's first process what its children inherit. They may live too shortly to be read themselves, and
    /// it may never be sampled.
    fn meet_first_process(&mut self, pid: Pid) {
        // Where it can't be read it has ended, or is counted.
        let _ = self.scan(pid, scans::FIRST_PROCESS_PATIENCE);
        let _ = self.environments.describe(pid, &mut self.registry);
    }

    /// Tries again what went wrong with new containers.
    pub(in crate::sampling) fn welcome_again(&mut self) {
        self.newcomers.retain(|_, (newcomer, _)| is_there(newcomer.pid));
        let waiting: Vec<Newcomer> = self.newcomers.values().map(|(newcomer, _)| *newcomer).collect();
        waiting.into_iter().for_each(|newcomer| self.welcome(newcomer));
    }

    /// Goes over to the events of every task.
    fn widen(&mut self, reason: &EventError) {
        warn_of_every_task(reason);
        self.newcomers.clear();
        if let Some(pod) = &self.pod {
            self.options.scope.stay_within(pod.bounds.clone());
        }
        if let Err(error) = self.profiler.widen() {
            warn!("degraded: a new container of this pod is not sampled: {}", chain(&error));
        }
    }
}

/// When a process started, by `CLOCK_BOOTTIME`, as exactly as /proc tells.
fn start_ns(pid: Pid) -> Option<u64> {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let state = ProcessDir::open(&ProcRoot::default(), pid).and_then(|process| process.state());
    Some(state.ok()?.start_ticks * tick_ns)
}
