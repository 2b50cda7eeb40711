//! Pods without a cluster: containers with one PID namespace, each with a cgroup and a root of its own.
//!
//! What a kubelet and its runtime make of a pod's specification, as far as a process can tell: cgroups of version 2 at
//! `kubepods/burstable/pod<uid>/<container>`, a first process that only holds the namespaces, and containers that
//! [`crun`](Container) starts. A container that is started again has another id and another cgroup.
#![forbid(unsafe_code)]

pub mod application;
mod bundle;
mod container;
mod seccomp;
mod sidecar;

use std::process::{Child, Command};
use std::{fs, thread};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sched::CloneFlags;
use serde_json::{Value, json};
use sidewinder_e2e_support::{requirement, workload};
use tempfile::TempDir;

pub use bundle::{ContainerSpec, Mount, SecurityContext};
pub use container::Container;
pub use seccomp::Seccomp;
pub use sidecar::{ENTRY_POINT, Image, Sidecar, SidecarSpec, give_file_capabilities};
pub use sidewinder_e2e_support::cgroup::{Cgroup, MemoryLimit, root as cgroup_root};

/// Whether the profiler can be run in pods here; if not, `test` is recorded as skipped.
///
/// # Errors
/// When something for that is missing and `CI=true`, or when the profiler is not built.
pub fn are_possible(test: &str) -> Result<bool> {
    for needed in ["crun", "unshare", "nsenter", "setcap"] {
        if !requirement::program(test, needed)? {
            return Ok(false);
        }
    }
    if let Err(reason) = cgroup_root() {
        requirement::skip(test, &reason.to_string())?;
        return Ok(false);
    }
    requirement::ebpf(test)
}

/// User id of the process that holds a pod's namespaces.
const NOBODY: u32 = 65_535;

/// How a pod differs from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PodSpec {
    /// `shareProcessNamespace`.
    pub shares_processes: bool,
    /// `hostUsers`: whether its user ids are this machine's.
    pub has_host_users: bool,
}

impl Default for PodSpec {
    fn default() -> Self {
        Self { shares_processes: true, has_host_users: true }
    }
}

/// A pod. Its containers must be gone before it is.
#[derive(Debug)]
pub struct Pod {
    spec: PodSpec,
    pause: Container,
    cgroup: Cgroup,
    state: TempDir,
}

impl Pod {
    /// A pod without containers.
    ///
    /// # Errors
    /// When the runtime can't make one.
    pub fn start(spec: PodSpec) -> Result<Self> {
        let uid = uuid(rand::random());
        let cgroup = Cgroup::create(&format!("kubepods/burstable/pod{uid}"))?;
        let state = tempfile::tempdir()?;
        let pause = workload::PAUSE.compiled()?;
        let container = ContainerSpec {
            arguments: vec![pause.display().to_string()],
            environment: Vec::new(),
            mounts: vec![Mount::in_place(pause)],
            security: SecurityContext::user(NOBODY),
            cpu: None,
            memory_limit_bytes: None,
        };
        let shared = ["pid", "network", "ipc", "uts"].into_iter();
        let users = (!spec.has_host_users).then_some("user");
        let namespaces: Vec<Value> =
            shared.chain(OWN_NAMESPACES).chain(users).map(|kind| json!({ "type": kind })).collect();
        let place = container::Place {
            cgroup: &cgroup,
            state: state.path(),
            namespaces: &namespaces,
            is_in_user_namespace: !spec.has_host_users,
        };
        let pause = Container::start(place, &container)?;
        Ok(Self { spec, pause, cgroup, state })
    }

    /// Starts a container.
    ///
    /// # Errors
    /// When the runtime refuses.
    pub fn run(&self, spec: &ContainerSpec) -> Result<Container> {
        let namespaces = self.namespaces();
        let place = container::Place {
            cgroup: &self.cgroup,
            state: self.state.path(),
            namespaces: &namespaces,
            is_in_user_namespace: !self.spec.has_host_users,
        };
        Container::start(place, spec)
    }

    /// Of a container: those that it has of its own, and those of the pod.
    fn namespaces(&self) -> Vec<Value> {
        let own = OWN_NAMESPACES.into_iter().chain((!self.spec.shares_processes).then_some("pid"));
        let pods = [
            self.spec.shares_processes.then_some(("pid", "pid")),
            Some(("network", "net")),
            Some(("ipc", "ipc")),
            Some(("uts", "uts")),
            (!self.spec.has_host_users).then_some(("user", "user")),
        ];
        let path = |file: &str| format!("/proc/{}/ns/{file}", self.pause.pid());
        let pods = pods.into_iter().flatten().map(|(kind, file)| json!({ "type": kind, "path": path(file) }));
        own.map(|kind| json!({ "type": kind })).chain(pods).collect()
    }

    /// The process that holds its namespaces, as this machine numbers it.
    #[must_use]
    pub fn pause(&self) -> &Container {
        &self.pause
    }

    /// Whether its user ids are its own.
    #[must_use]
    pub fn has_user_namespace(&self) -> bool {
        !self.spec.has_host_users
    }

    /// Starts a command whose process has a process id of the pod, in the cgroup of whoever starts it, and is our child: an
    /// orphan that nobody waits for would keep the pod's first process from ending.
    ///
    /// # Errors
    /// When the pod can't be entered, or the command can't be run.
    pub fn spawn_among_its_processes(&self, command: &mut Command) -> Result<Child> {
        let processes = fs::File::open(format!("/proc/{}/ns/pid", self.pause.pid()))?;
        // Of the calling thread alone, and for the processes that it will start.
        let spawn = || {
            nix::sched::setns(processes, CloneFlags::CLONE_NEWPID).context("cannot enter a pod")?;
            command.spawn().with_context(|| format!("cannot run {command:?}"))
        };
        let spawned = thread::scope(|threads| threads.spawn(spawn).join());
        spawned.map_err(|_| anyhow!("the thread that enters the pod has panicked"))?
    }

    /// Has the kernel use its process ids again as soon as can be. Does nothing where there is but one limit for the whole
    /// machine (before Linux 6.14), and returns whether there is one for the pod.
    ///
    /// # Errors
    /// When the limit can't be written.
    pub fn reuse_process_ids(&self) -> Result<bool> {
        if release() < (6, 14) {
            return Ok(false);
        }
        let mut command = Command::new("sh");
        command.args(["-c", "echo $0 > /proc/sys/kernel/pid_max", PROCESS_IDS]);
        let status = self.spawn_among_its_processes(&mut command)?.wait()?;
        ensure!(status.success(), "cannot limit the process ids of a pod: {status}");
        Ok(true)
    }
}

/// `pid_max` of such a pod. Ids below 300 are given once only.
const PROCESS_IDS: &str = "400";

/// The version of the kernel that runs; 0 for what can't be read.
fn release() -> (u32, u32) {
    let name = rustix::system::uname();
    let mut numbers =
        name.release().to_str().unwrap_or_default().split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Of each container alone.
const OWN_NAMESPACES: [&str; 2] = ["mount", "cgroup"];

/// The usual form of 128 bits.
fn uuid(bits: u128) -> String {
    let digits = format!("{bits:032x}");
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits.get(range).unwrap_or_default()).join("-")
}
