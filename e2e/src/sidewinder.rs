//! Runs the profiler as a user does, and looks at it from outside while it runs.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use crate::paths;

const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

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

/// Runs the profiler to its end.
///
/// # Errors
/// When it is not built or cannot be started.
pub fn run<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Result<Output> {
    command()?.args(arguments).output().context("cannot run the profiler")
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
        let process = command
            .stdout(log.reopen()?)
            .stderr(log.reopen()?)
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
        let deadline = Instant::now() + START_TIMEOUT;
        while running.program_runs()?.count == 0 {
            if let Some(status) = running.process.try_wait()? {
                bail!("the profiler ended with {status}:\n{}", running.log());
            }
            if Instant::now() > deadline {
                bail!("the profiler took no sample within {START_TIMEOUT:?}:\n{}", running.log());
            }
            thread::sleep(Duration::from_millis(20));
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

    /// Asks it to end as Ctrl-C does, and waits for it.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(mut self) -> Result<Ended> {
        let pid = Pid::from_raw(i32::try_from(self.process.id())?);
        // It may have ended by itself, when its target did.
        let _ = signal::kill(pid, Signal::SIGINT);
        self.wait(STOP_TIMEOUT)
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

    /// How often its perf event program has run, and for how long, as the kernel counts.
    ///
    /// Counts only while [`BpfStats`] are enabled.
    ///
    /// # Errors
    /// When its descriptors cannot be read.
    pub fn program_runs(&self) -> Result<ProgramRuns> {
        let mut runs = ProgramRuns::default();
        for fdinfo in fdinfos(self.pid())? {
            if field(&fdinfo, "prog_type") == Some(PERF_EVENT_PROGRAM) {
                runs.count = runs.count.max(field(&fdinfo, "run_cnt").unwrap_or_default());
                runs.time_ns = runs.time_ns.max(field(&fdinfo, "run_time_ns").unwrap_or_default());
            }
        }
        Ok(runs)
    }

    /// Bytes of kernel memory that its maps take, each map counted once.
    ///
    /// # Errors
    /// When its descriptors cannot be read.
    pub fn map_bytes(&self) -> Result<u64> {
        let maps = fdinfos(self.pid())?;
        let by_id: std::collections::BTreeMap<u64, u64> = maps
            .iter()
            .filter_map(|fdinfo| Some((field(fdinfo, "map_id")?, field(fdinfo, "memlock")?)))
            .collect();
        Ok(by_id.values().sum())
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

/// Runs of a program as the kernel counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramRuns {
    /// How many.
    pub count: u64,
    /// How long all of them took together.
    pub time_ns: u64,
}

/// `BPF_PROG_TYPE_PERF_EVENT`.
const PERF_EVENT_PROGRAM: u64 = 7;

fn fdinfos(pid: u32) -> Result<Vec<String>> {
    let folder = format!("/proc/{pid}/fdinfo");
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    Ok(texts.collect())
}

fn field(fdinfo: &str, name: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
}

/// While it lives, the kernel counts the runs of eBPF programs and their time.
#[derive(Debug)]
pub struct BpfStats {
    before: String,
}

impl BpfStats {
    /// Switches the counting on.
    ///
    /// # Errors
    /// Without the privilege to.
    pub fn enable() -> Result<Self> {
        let before = fs::read_to_string(BPF_STATS).with_context(|| format!("cannot read {BPF_STATS}"))?;
        fs::write(BPF_STATS, "1").with_context(|| format!("cannot write {BPF_STATS}"))?;
        Ok(Self { before })
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        let _ = fs::write(BPF_STATS, &self.before);
    }
}

/// CPU time of a process so far, user and system, in clock ticks of a hundredth of a second.
///
/// # Errors
/// When the process is gone.
pub fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))?;
    // The name may hold spaces and brackets: the fields start behind the last bracket, with the third.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.collect::<Result<Vec<_>, _>>()?.iter().sum())
}
