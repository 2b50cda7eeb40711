//! The profiler as a sidecar: its image, the securityContext that the chart gives it, and what it says of itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sidewinder_e2e_support::{lock, log, paths};
use tempfile::TempDir;

use super::{Container, ContainerSpec, Mount, Pod, SecurityContext};

/// What the image gives to its program. Permitted only: the program raises what the container's bounding set left of it.
const FILE_CAPABILITIES: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog=p";
/// Its entry point.
pub const ENTRY_POINT: &str = "/sidewinder";
const CONFIGURATION: &str = "/etc/sidewinder";
/// Where its container has the Collector's socket.
const COLLECTOR: &str = "/run/collector.sock";
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// What the sidecar's container holds.
#[derive(Clone, Debug)]
pub struct Image {
    mounts: Vec<Mount>,
}

impl Image {
    /// The profiler under test with its file capabilities.
    ///
    /// # Errors
    /// When it is not built, `strip` can't be run, or file capabilities can't be set.
    pub fn new() -> Result<Self> {
        let built = paths::sidewinder()?;
        let program = paths::compiled()?.join("sidewinder-with-capabilities");
        let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
        let built_at = modified(&built)?;
        let _lock = lock::exclusive(&program)?;
        // A copy has the time of what it was made from.
        if !modified(&program).is_ok_and(|copied_at| copied_at == built_at) {
            let partial = program.with_extension(std::process::id().to_string());
            // As in the image, where it has no symbols by which sidecars would name their own samples.
            strip(&built, &partial)?;
            fs::File::options().write(true).open(&partial)?.set_modified(built_at)?;
            give_file_capabilities(&partial)?;
            fs::rename(partial, &program)?;
        }
        Self::of(program)
    }

    /// A program that has its file capabilities, and the libraries that it needs, where it needs any.
    ///
    /// # Errors
    /// When `ldd` can't be run.
    pub fn of(program: PathBuf) -> Result<Self> {
        let mut mounts = Mount::libraries_of(&program)?;
        mounts.push(Mount { source: program, destination: ENTRY_POINT.into() });
        Ok(Self { mounts })
    }

    /// A container of this image, with the entry point's arguments.
    #[must_use]
    pub fn container(&self, arguments: &[&str], security: &SecurityContext) -> ContainerSpec {
        let arguments = [ENTRY_POINT].into_iter().chain(arguments.iter().copied());
        ContainerSpec {
            arguments: arguments.map(str::to_owned).collect(),
            environment: Vec::new(),
            mounts: self.mounts.clone(),
            security: security.clone(),
            cpu: None,
            memory_limit_bytes: None,
        }
    }
}

fn strip(program: &Path, to: &Path) -> Result<()> {
    let status = Command::new("strip").arg("-o").arg(to).arg(program).status();
    let status = status.context("cannot run strip")?;
    ensure!(status.success(), "strip ended with {status}");
    Ok(())
}

/// Gives a program what the image gives it.
///
/// # Errors
/// When `setcap` refuses.
pub fn give_file_capabilities(program: &Path) -> Result<()> {
    let status = Command::new("setcap").arg(FILE_CAPABILITIES).arg(program).status();
    let status = status.context("cannot run setcap")?;
    ensure!(status.success(), "setcap ended with {status}");
    Ok(())
}

/// How a sidecar is deployed.
#[derive(Clone, Debug)]
pub struct SidecarSpec {
    /// Its configuration, as a ConfigMap holds it.
    pub configuration: String,
    /// What it may.
    pub security: SecurityContext,
    /// The limit of its memory in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// The Unix socket of a Collector, which is at [`SidecarSpec::COLLECTOR_ENDPOINT`] there.
    pub collector: Option<PathBuf>,
}

impl SidecarSpec {
    /// The `endpoint` of a Collector whose socket it has.
    pub const COLLECTOR_ENDPOINT: &str = "unix:///run/collector.sock";
}

/// The profiler in a container of a pod.
#[derive(Debug)]
pub struct Sidecar {
    container: Container,
    user: u32,
    has_user_namespace: bool,
    _configuration: TempDir,
}

impl Sidecar {
    /// Starts it.
    ///
    /// # Errors
    /// When the runtime refuses.
    pub fn start(pod: &Pod, image: &Image, spec: &SidecarSpec) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("relay.yaml"), &spec.configuration)?;
        readable_by_all(folder.path())?;
        let configuration = Mount { source: folder.path().to_owned(), destination: CONFIGURATION.into() };
        let mut container =
            image.container(&[&format!("--config={CONFIGURATION}/relay.yaml"), log::IN_JSON], &spec.security);
        container.mounts.push(configuration);
        let socket = |path: &PathBuf| Mount { source: path.clone(), destination: COLLECTOR.into() };
        container.mounts.extend(spec.collector.iter().map(socket));
        container.memory_limit_bytes = spec.memory_limit_bytes;
        let container = pod.run(&container)?;
        let (user, has_user_namespace) = (spec.security.user, pod.has_user_namespace());
        Ok(Self { container, user, has_user_namespace, _configuration: folder })
    }

    /// Its container.
    #[must_use]
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// Its container, to wait for.
    pub fn container_mut(&mut self) -> &mut Container {
        &mut self.container
    }

    /// Runs the entry point with these arguments where `kubectl exec` runs it, as the sidecar's user.
    ///
    /// # Errors
    /// When `nsenter` can't be run.
    pub fn execute(&self, arguments: &[&str]) -> Result<Output> {
        let (pid, user) = (self.container.pid().to_string(), self.user.to_string());
        Command::new("nsenter")
            .args(["--target", &pid, "--mount", "--pid", "--net", "--root", "--wd=/"])
            .args(self.has_user_namespace.then_some("--user"))
            .args(["--setgid", &user, "--setuid", &user, "--", ENTRY_POINT])
            .args(arguments)
            .output()
            .context("cannot run nsenter")
    }

    /// What `sidewinder status --json` tells of it; `None` while nobody answers.
    ///
    /// # Errors
    /// When the command can't be run, or what it prints is no JSON.
    pub fn status(&self) -> Result<Option<Value>> {
        let output = self.execute(&["status", "--json"])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let Some(line) = text.lines().next() else { return Ok(None) };
        Ok(Some(serde_json::from_str(line).with_context(|| line.to_owned())?))
    }

    /// What its receiver does at the moment, and why it does not do better; empty while nobody answers.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn activity(&self) -> Result<(String, String)> {
        let Some(status) = self.status()? else { return Ok(Default::default()) };
        let word = |key: &str| {
            let word = status.pointer(&format!("/receivers/profiling/{key}"));
            word.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        Ok((word("activity"), word("reason")))
    }

    /// Waits until it samples, for half a minute at the longest.
    ///
    /// # Errors
    /// As [`Self::wait_until_profiling_within`].
    pub fn wait_until_profiling(&mut self) -> Result<()> {
        self.wait_until_profiling_within(START_TIMEOUT)
    }

    /// Waits until it samples.
    ///
    /// # Errors
    /// When it ends, or does not sample within `timeout`; its log is part of the message.
    pub fn wait_until_profiling_within(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.container.ended()? {
                bail!("the sidecar ended with {status}:\n{}", self.container.log());
            }
            let (activity, reason) = self.activity()?;
            if activity == "profiling" {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{activity}: {reason}\n{}", self.container.log());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn readable_by_all(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?)
}
