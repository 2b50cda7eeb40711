//! Control groups: directories of version 2, and limits of memory in whichever version has the controller here.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// How long processes that were killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// A command that runs `program` in a cgroup, given by its [`Cgroup::procs`], from its first instruction on.
#[must_use]
pub fn command_in(procs: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo 0 > \"$0\" && exec \"$@\""]).arg(procs).arg(program);
    command
}

/// A directory of cgroup v2. When it goes, so does every process in it.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// The directory `below` the root of the hierarchy, created with its parents.
    ///
    /// # Errors
    /// When there is no cgroup v2 here, or it can't be written.
    pub fn create(below: &str) -> Result<Self> {
        let path = root()?.join(below);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path })
    }

    /// A new directory in this one.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn child(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path })
    }

    /// The file to which a process writes its number in order to be in here.
    #[must_use]
    pub fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // From Linux 5.14; those that came to an end by themselves need none of it.
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        let deadline = Instant::now() + PATIENCE;
        while fs::remove_dir(&self.path).is_err() && self.path.exists() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Where cgroup v2 is mounted, as the only hierarchy or beside version 1.
///
/// # Errors
/// When it is not.
pub fn root() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    let path = mounts
        .find_map(|mut fields| Some((fields.nth(1)?, fields.next()?)).filter(|(_, kind)| *kind == "cgroup2"));
    Ok(PathBuf::from(path.context("cgroup v2 is not mounted")?.0))
}

/// The file to which a process writes its number in order to be where we are.
///
/// # Errors
/// When cgroup v2 is not mounted.
pub fn own_procs() -> Result<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).context("no cgroup v2")?;
    Ok(root()?.join(path).join("cgroup.procs"))
}

/// A limit of memory for processes, kernel memory with eBPF maps among it.
#[derive(Debug)]
pub struct MemoryLimit {
    cgroup: Cgroup,
    files: &'static MemoryFiles,
}

#[derive(Debug)]
struct MemoryFiles {
    limit: &'static str,
    peak: &'static str,
    /// Has a line `oom_kill N`.
    kills: &'static str,
}

const VERSION_1: MemoryFiles = MemoryFiles {
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    kills: "memory.oom_control",
};
const VERSION_2: MemoryFiles =
    MemoryFiles { limit: "memory.max", peak: "memory.peak", kills: "memory.events" };
/// Where version 1 has the controller, as everybody mounts it.
const CONTROLLER_1: &str = "/sys/fs/cgroup/memory";

impl MemoryLimit {
    /// A limit of `bytes` for processes that go where [`Self::procs`] says.
    ///
    /// # Errors
    /// When neither version has the controller here, or it can't be written.
    pub fn new(name: &str, bytes: u64) -> Result<Self> {
        let hierarchy = root()?;
        let is_version_2 = fs::read_to_string(hierarchy.join("cgroup.controllers"))?.contains("memory");
        let (hierarchy, files) = match is_version_2 {
            true => {
                fs::write(hierarchy.join("cgroup.subtree_control"), "+memory")
                    .context("cannot have the memory controller")?;
                (hierarchy, &VERSION_2)
            }
            false => (PathBuf::from(CONTROLLER_1), &VERSION_1),
        };
        let path = hierarchy.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let limit = Self { cgroup: Cgroup { path }, files };
        fs::write(limit.file(files.limit), bytes.to_string()).context("cannot limit memory")?;
        Ok(limit)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.cgroup.path.join(name)
    }

    /// As [`Cgroup::procs`].
    #[must_use]
    pub fn procs(&self) -> PathBuf {
        self.cgroup.procs()
    }

    /// The most that was in use at once, caches among it.
    ///
    /// # Errors
    /// When the kernel is older than what tells so (5.19 with version 2).
    pub fn peak_bytes(&self) -> Result<u64> {
        Ok(fs::read_to_string(self.file(self.files.peak))?.trim().parse()?)
    }

    /// How many processes were killed because of the limit.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn kills(&self) -> Result<u64> {
        let text = fs::read_to_string(self.file(self.files.kills))?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(line.context("no line oom_kill")?.trim().parse()?)
    }
}
