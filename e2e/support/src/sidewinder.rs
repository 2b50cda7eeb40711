//! Runs the profiler as a user does.

use std::ffi::OsStr;
use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use crate::cgroup::{self, MemoryLimit};
use crate::observe::{self, BpfStats};
use crate::paths;

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often to look for the programs of a profiler that starts.
const SEARCH_INTERVAL: Duration = Duration::from_millis(20);
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A command that runs the profiler, with nothing on its standard input.
///
/// # Errors
/// When the profiler is not built.
pub fn command() -> Result<Command> {
    let mut command = Command::new(paths::sidewinder()?);
    command.stdin(Stdio::null());
    // Whatever the tests run under, the profiler obeys its configuration alone.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// A command that runs the profiler in a cgroup that limits its memory, as a kubelet does.
///
/// # Errors
/// As [`command`].
pub fn command_within(limit: &MemoryLimit) -> Result<Command> {
    let profiler = command()?;
    let mut command = cgroup::command_in(&limit.procs(), profiler.get_program());
    command.stdin(Stdio::null());
    for (name, _) in profiler.get_envs() {
        command.env_remove(name);
    }
    Ok(command)
}

/// Runs the profiler to its end.
///
/// # Errors
/// When it is not built, cannot be started, or does not end within a minute.
pub fn run<A: AsRef<OsStr>>(arguments: &[A]) -> Result<Ended> {
    let mut command = command()?;
    command.args(arguments);
    Running::start(command)?.wait(RUN_TIMEOUT)
}

/// A profiler that runs until it is stopped.
#[derive(Debug)]
pub struct Running {
    process: Child,
    log: NamedTempFile,
}

impl Running {
    /// Starts the profiler; what it says goes to a file.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command) -> Result<Self> {
        let log = NamedTempFile::new()?;
        // One description: each writes behind what the other has written.
        let written = log.reopen()?;
        let process = command
            .stdout(written.try_clone()?)
            .stderr(written)
            .spawn()
            .with_context(|| format!("cannot run {:?}", command.get_program()))?;
        Ok(Self { process, log })
    }

    /// Starts the profiler and waits until its program has run for an interrupt: from then on none is lost.
    ///
    /// # Errors
    /// When it ends, or does not sample within half a minute; its log is part of the message.
    pub fn start_sampling(command: Command) -> Result<Self> {
        let _stats = BpfStats::enable()?;
        let mut running = Self::start(command)?;
        let pid = running.pid();
        let deadline = Instant::now() + START_TIMEOUT;
        let (mut programs, mut is_attached, mut searched_at) = (Vec::new(), false, None);
        let has_run = |program: &i32| observe::runs_of_interrupt_program(pid, *program) > Some(0);
        while !programs.iter().any(has_run) {
            if let Some(status) = running.process.try_wait()? {
                bail!("the profiler ended with {status}:\n{}", running.log());
            }
            if Instant::now() > deadline {
                bail!("the profiler took no sample within {START_TIMEOUT:?}:\n{}", running.log());
            }
            if searched_at.is_none_or(|at: Instant| at.elapsed() >= SEARCH_INTERVAL) {
                programs = observe::interrupt_programs(pid);
                is_attached = !programs.is_empty() && observe::is_attached_to_events(pid);
                searched_at = Some(Instant::now());
            }
            // Until it is attached others have the CPU. Then without a pause: on a machine that is idle there is no interrupt but
            // of this.
            if !is_attached {
                thread::sleep(SEARCH_INTERVAL);
            }
        }
        Ok(running)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it has said so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    /// Asks it to read its configuration again.
    ///
    /// # Errors
    /// When it has ended.
    pub fn hang_up(&self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.process.id())?);
        signal::kill(pid, Signal::SIGHUP).context("cannot signal the profiler")
    }

    /// Asks it to end as Ctrl-C does, and waits for it.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(self) -> Result<Ended> {
        self.stop_within(STOP_TIMEOUT)
    }

    /// The same with another time.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop_within(mut self, timeout: Duration) -> Result<Ended> {
        let pid = Pid::from_raw(i32::try_from(self.process.id())?);
        // It may have ended by itself, when its target did.
        let _ = signal::kill(pid, Signal::SIGINT);
        self.wait(timeout)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn wait(&mut self, timeout: Duration) -> Result<Ended> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(Ended { status, log: self.log() });
            }
            if Instant::now() > deadline {
                bail!("the profiler did not end within {timeout:?}:\n{}", self.log());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ends a profiler that a failing test left running; one that was stopped is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How the profiler ended and all that it said.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// Standard output and standard error, as they came.
    pub log: String,
}
