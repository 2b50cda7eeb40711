//! The pod that the profiler runs in, and its containers whose events can be opened.

use std::time::{Duration, Instant};
use std::{io, thread};

use sidewinder_base::causes::error_chain;
use sidewinder_bpf::{Container, EventError, EventScope, Opener, PodCgroup, own_cgroups};
use sidewinder_process::{Pid, PodBounds, PodBoundsError, ProcRoot, ProcessDir};
use tracing::warn;

use crate::SamplingError;

/// The first process of a PID namespace. In a pod it is that of the pause container, which is always idle.
const FIRST_PID: u32 = 1;

/// How long opening the events of a container may fail before the events of every task are opened instead. Retrying is
/// needed because a container runtime's process that enters a container joins its cgroup before it sees that cgroup mounted.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause between attempts at startup.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// What distinguishes the profiler's own pod from others.
#[derive(Debug)]
pub(crate) struct Pod {
    /// For the eBPF programs.
    pub(crate) cgroup: PodCgroup,
    /// For user space.
    pub(super) bounds: PodBounds,
    /// The IDs of the pod's cgroup and of its ancestors.
    ancestors: Vec<u64>,
}

impl Pod {
    /// Finds the pod that the profiler runs in. `None`: only the PID namespace distinguishes it from the rest of the node.
    pub(crate) fn find() -> Result<Option<Self>, SamplingError> {
        if sidewinder_bpf::is_in_initial_pid_namespace()? {
            return Err(PodBoundsError::Node.into());
        }
        let own = own_cgroups()?;
        let cgroup_of = |pid| {
            let process = ProcessDir::open(&ProcRoot::default(), Pid(pid)).map_err(SamplingError::Scan)?;
            process.read("cgroup").map_err(SamplingError::Scan)
        };
        let (ours, first) = (cgroup_of(std::process::id())?, cgroup_of(FIRST_PID)?);
        let Some(bounds) = PodBounds::find(&ours, &first, own.len().saturating_sub(1))? else {
            warn!(
                "degraded: there is no cgroup v2: the pod is identified by its PID namespace alone, which the node's \
                 administrator can enter, and every interrupt of the node is inspected"
            );
            return Ok(None);
        };
        let ancestors: Vec<u64> = own.into_iter().take(bounds.level() + 1).collect();
        let level = u32::try_from(bounds.level()).ok();
        Ok(level.zip(ancestors.last().copied()).map(|(level, id)| Self {
            cgroup: PodCgroup { level, id },
            bounds,
            ancestors,
        }))
    }

    /// The container of a process of the pod.
    ///
    /// # Errors
    /// Fails for a process that sees more than its own cgroup, as a privileged one may: its events would be those of the
    /// whole pod or node.
    pub(super) fn container(&self, pid: u32, opener: &Opener) -> Result<Container, EventError> {
        let container = opener.container(pid).map_err(EventError::Opener)?;
        if self.ancestors.contains(&container.id().0) {
            let reason = format!("process {pid} sees the cgroups of the whole pod or node on /sys/fs/cgroup");
            return Err(EventError::Opener(io::Error::other(reason)));
        }
        Ok(container)
    }

    fn containers(&self, opener: &Opener) -> Result<Vec<Container>, EventError> {
        let own = std::process::id();
        let mut containers: Vec<Container> = Vec::new();
        let others = ProcRoot::default().pids().unwrap_or_default().into_iter().map(|pid| pid.0);
        for pid in std::iter::once(own).chain(others.filter(|pid| *pid != own)) {
            let process =
                ProcessDir::open(&ProcRoot::default(), Pid(pid)).and_then(|process| process.read("cgroup"));
            if !process.is_ok_and(|cgroup| self.bounds.contain(&cgroup))
                || containers.iter().any(|known| known.contains_process(pid))
            {
                continue;
            }
            match self.container(pid, opener) {
                Ok(container) => containers.push(container),
                // The pause container may run as another user, whose processes we can't open.
                Err(_) if pid == FIRST_PID => {}
                Err(_) if !exists(pid) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(containers)
    }
}

/// Which events to open: those of our pod's containers if all of them can be opened, else those of every task.
pub(super) fn audience(pod: Option<&Pod>, opener: &Opener) -> EventScope {
    let Some(pod) = pod else { return EventScope::EveryTask };
    let since = Instant::now();
    loop {
        match pod.containers(opener) {
            Ok(containers) => return EventScope::Containers(containers),
            Err(_) if since.elapsed() < OPEN_TIMEOUT => thread::sleep(RETRY_INTERVAL),
            Err(error) => {
                warn_of_every_task(&error);
                return EventScope::EveryTask;
            }
        }
    }
}

/// Whether a process exists.
pub(super) fn exists(pid: u32) -> bool {
    ProcessDir::open(&ProcRoot::default(), Pid(pid)).and_then(|process| process.state()).is_ok()
}

/// Warns that the events of every task are opened, and why.
pub(super) fn warn_of_every_task(error: &EventError) {
    warn!(
        "degraded: every interrupt on the node is examined, and ignored if it is not this pod's, because the events of \
         a container can't be opened: {}",
        error_chain(error)
    );
}
