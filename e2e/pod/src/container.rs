//! A container that `crun` runs.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sched::CloneFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use sidewinder_e2e_support::cgroup::{self, Cgroup, MemoryLimit};
use tempfile::{NamedTempFile, TempDir};

use super::bundle::{self, ContainerSpec};

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the kernel and the runtime may take to end one.
const KILLED_WITHIN: Duration = Duration::from_secs(20);

/// Joins the directories of `$CGROUPS`, and runs the runtime where these are all that there is of cgroups: on hosts that
/// have both versions it would take the container for one of version 1. It makes no cgroup itself.
const IN_CGROUPS: &str = r#"
for procs in $CGROUPS; do echo $$ > "$procs" || exit 125; done
mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec crun --cgroup-manager=disabled "$@""#;

/// A container that runs. It is gone, with all of its processes, when this is.
#[derive(Debug)]
pub struct Container {
    id: String,
    runtime: Child,
    pid: u32,
    first_process: OwnedFd,
    output: NamedTempFile,
    cgroup: Cgroup,
    memory: Option<MemoryLimit>,
    _bundle: TempDir,
}

/// What a pod gives to each of its containers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Of the pod.
    pub(super) cgroup: &'a Cgroup,
    /// Where the runtime keeps what it knows of containers.
    pub(super) state: &'a Path,
    pub(super) namespaces: &'a [Value],
    pub(super) is_in_user_namespace: bool,
}

impl Container {
    pub(super) fn start(place: Place<'_>, spec: &ContainerSpec) -> Result<Self> {
        let id = new_id();
        let folder = tempfile::tempdir()?;
        bundle::write(folder.path(), spec, place.namespaces, place.is_in_user_namespace)?;
        let cgroup = place.cgroup.child(&id)?;
        let memory = spec.memory_limit_bytes.map(|bytes| MemoryLimit::new(&id, bytes)).transpose()?;
        let joined = [Some(cgroup.procs()), memory.as_ref().map(MemoryLimit::procs)];
        let joined: Vec<String> =
            joined.into_iter().flatten().map(|path| path.display().to_string()).collect();
        let (output, pid_file) = (NamedTempFile::new()?, folder.path().join("pid"));

        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", IN_CGROUPS, "sh", "--root"]).arg(place.state);
        command.args(["run", "--bundle"]).arg(folder.path()).arg("--pid-file").arg(&pid_file).arg(&id);
        let runtime = command
            .env("CGROUPS", joined.join(" "))
            // Closed when we are gone, however that comes.
            .stdin(Stdio::piped())
            .stdout(output.reopen()?)
            .stderr(output.reopen()?)
            .spawn()
            .context("cannot run unshare")?;
        let mut starting = Starting { runtime, output };
        let pid = starting.wait_for_pid(&pid_file)?;
        let Starting { runtime, output } = starting;
        let first_process = pidfd(pid).with_context(|| {
            format!(
                "the container is gone already:\n{}",
                fs::read_to_string(output.path()).unwrap_or_default()
            )
        })?;
        // It has no business among the container's processes, whose parent it stays.
        fs::write(cgroup::own_procs()?, runtime.id().to_string())?;
        let container = Self { id, runtime, pid, first_process, output, cgroup, memory, _bundle: folder };
        if let Some(cpu) = spec.cpu {
            container.bind_to(cpu)?;
        }
        Ok(container)
    }

    fn bind_to(&self, cpu: u32) -> Result<()> {
        let mut cpus = nix::sched::CpuSet::new();
        cpus.set(cpu as usize)?;
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(self.pid.cast_signed()), &cpus)
            .context("cannot bind a container to a CPU")
    }

    /// The id, which a runtime makes for each container.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its first process, as this machine numbers it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Where its processes are.
    #[must_use]
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// The limit of its memory, where it has one.
    #[must_use]
    pub fn memory(&self) -> Option<&MemoryLimit> {
        self.memory.as_ref()
    }

    /// What it has written so far, on standard output and standard error.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.output.path()).unwrap_or_default()
    }

    /// Sends a signal to its first process.
    ///
    /// # Errors
    /// When that has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        pidfd_send_signal(&self.first_process, signal).context("the container has ended")
    }

    /// Takes a mount away that hides something from it.
    ///
    /// # Errors
    /// When there is none.
    pub fn unmask(&self, path: &str) -> Result<()> {
        let mounts = fs::File::open(format!("/proc/{}/ns/mnt", self.pid))?;
        // A thread may be in another mount namespace than its process, once it shares no directories with it.
        let unmount = || -> nix::Result<()> {
            nix::sched::unshare(CloneFlags::CLONE_FS)?;
            nix::sched::setns(mounts, CloneFlags::CLONE_NEWNS)?;
            nix::mount::umount(path)
        };
        let unmounted = thread::scope(|threads| threads.spawn(unmount).join());
        unmounted
            .map_err(|_| anyhow!("the thread that unmounts has panicked"))?
            .with_context(|| format!("cannot unmount {path}"))
    }

    /// How it ended, if it did: as its first process, or, where a signal ended that, with 128 more than its number.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.runtime.try_wait()?)
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// When it does not within `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "a container did not end within {timeout:?}:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It may have ended, and the runtime with it.
        let _ = self.signal(Signal::KILL);
        if let Err(error) = self.wait(KILLED_WITHIN) {
            eprintln!("container {} could not be removed: {error}", self.id);
            let _ = self.runtime.kill();
            let _ = self.runtime.wait();
        }
    }
}

/// A runtime whose container does not run yet.
struct Starting {
    runtime: Child,
    output: NamedTempFile,
}

impl Starting {
    /// The first process's number, once the runtime has written it down.
    fn wait_for_pid(&mut self, file: &Path) -> Result<u32> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(pid) = fs::read_to_string(file).unwrap_or_default().trim().parse() {
                return Ok(pid);
            }
            let log = || fs::read_to_string(self.output.path()).unwrap_or_default();
            if let Some(status) = self.runtime.try_wait()? {
                bail!("the container's runtime ended with {status}:\n{}", log());
            }
            if Instant::now() > deadline {
                self.runtime.kill()?;
                self.runtime.wait()?;
                bail!("no container within {START_TIMEOUT:?}:\n{}", log());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn pidfd(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()
}

/// 64 hexadecimal digits.
fn new_id() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}
