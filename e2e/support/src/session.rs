//! One session: the profiler in one of its two forms beside a workload, and what came of it.

mod settings;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::cgroup::MemoryLimit;
use crate::collector::Collector;
use crate::counts::Counts;
use crate::form::Form;
use crate::log;
use crate::observe;
use crate::rate::{Expected, StolenTime};
use crate::received::Received;
use crate::recording::{self, Recorder, Recording};
use crate::sidewinder::{self, Ended, Running};
use crate::workload::{Gated, Held, Report};
pub use settings::{Settings, Switch};

/// The memory that the chart lets a sidecar have, of which three quarters are its budget.
pub const SIDECAR_MEMORY_BYTES: u64 = 64 << 20;

/// A profiler that runs by a configuration file.
#[derive(Debug)]
pub struct Daemon {
    running: Running,
    memory: Option<MemoryLimit>,
    _folder: Option<TempDir>,
}

impl Daemon {
    /// Starts `sidewinder --config` and waits until it samples. Unless the settings state how much memory it may take, it has the
    /// limit of a sidecar.
    ///
    /// # Errors
    /// When it does not.
    pub fn start(settings: &Settings, endpoint: &str) -> Result<Self> {
        Self::start_in(settings, endpoint, &[])
    }

    /// As [`Daemon::start`], with variables in its environment.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_in(settings: &Settings, endpoint: &str, variables: &[(&str, String)]) -> Result<Self> {
        let states_memory = settings.more.iter().any(|line| line.starts_with("memory_limit_mib"));
        let memory = if states_memory { None } else { Some(memory_limit(SIDECAR_MEMORY_BYTES)?) };
        Self::start_written(memory, settings, endpoint, variables)
    }

    /// As [`Daemon::start`], with a limit of its memory.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_with_memory(settings: &Settings, endpoint: &str, bytes: u64) -> Result<Self> {
        Self::start_written(Some(memory_limit(bytes)?), settings, endpoint, &[])
    }

    /// Writes the settings to a file first.
    fn start_written(
        memory: Option<MemoryLimit>,
        settings: &Settings,
        endpoint: &str,
        variables: &[(&str, String)],
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("sidewinder.yaml");
        std::fs::write(&path, settings.yaml(endpoint))?;
        Self::start_within(memory, &path, variables, Some(folder))
    }

    fn start_within(
        memory: Option<MemoryLimit>,
        path: &Path,
        variables: &[(&str, String)],
        folder: Option<TempDir>,
    ) -> Result<Self> {
        let mut command = match &memory {
            Some(limit) => sidewinder::command_within(limit)?,
            None => sidewinder::command()?,
        };
        command
            .arg("--config")
            .arg(path)
            .arg(log::IN_JSON)
            .envs(variables.iter().map(|(name, value)| (*name, value)));
        Ok(Self { running: Running::start_sampling(command)?, memory, _folder: folder })
    }

    /// The most memory that it had at once, caches of files among it; `None` where it has no limit.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn peak_bytes(&self) -> Result<Option<u64>> {
        self.memory.as_ref().map(MemoryLimit::peak_bytes).transpose()
    }

    /// Starts `sidewinder --config` with a file of the caller's.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_from(path: &Path) -> Result<Self> {
        Self::start_within(None, path, &[], None)
    }

    /// The process.
    #[must_use]
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// The user-space stacks that it has walked so far.
    ///
    /// # Errors
    /// When its status can't be read.
    pub fn stacks(&self) -> Result<Stacks> {
        let receiver = self.receiver_status()?;
        let count = |outcome: &str| receiver["interrupts"][outcome].as_u64().unwrap_or_default();
        Ok(Stacks { complete: count("complete"), cut: CUT.into_iter().map(count).sum() })
    }

    /// What `sidewinder status --json` says of it.
    ///
    /// # Errors
    /// When its status can't be read.
    pub fn status(&self) -> Result<Value> {
        let said = sidewinder::run(&["status", "--json", "--pid", &self.running.pid().to_string()])?;
        serde_json::from_str(&said.log).context(said.log)
    }

    /// The same of its receiver.
    ///
    /// # Errors
    /// When its status can't be read.
    pub fn receiver_status(&self) -> Result<Value> {
        Ok(self.status()?["receivers"]["profiling"].take())
    }

    /// Whether it goes without a feature.
    ///
    /// # Errors
    /// When its status can't be read.
    pub fn is_degraded(&self, feature: &str) -> Result<bool> {
        Ok(is_degraded(&self.status()?, feature))
    }

    /// Waits up to 10 s until it has this many events. A stop leaves little time to read names from files that had no event
    /// before.
    ///
    /// # Errors
    /// When its status can't be read.
    pub fn wait_for_events(&self, count: u64) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.receiver_status()?["events"].as_u64() < Some(count) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Stops it, which sends what is left.
    ///
    /// # Errors
    /// When it does not end in time or with success.
    pub fn stop(self) -> Result<Ended> {
        let kills = self.memory.as_ref().map_or(Ok(0), MemoryLimit::kills)?;
        let ended = self.running.stop()?;
        if kills > 0 {
            bail!("the profiler took more memory than a sidecar may:\n{}", ended.log);
        }
        if !ended.status.success() {
            bail!("the profiler ended with {}:\n{}", ended.status, ended.log);
        }
        Ok(ended)
    }
}

/// Whether a profiler with this status goes without a feature.
#[must_use]
pub fn is_degraded(status: &Value, feature: &str) -> bool {
    let features = status["degraded"].as_array();
    features.is_some_and(|features| features.iter().any(|degraded| degraded["feature"] == feature))
}

/// A limit of memory that no other test has.
fn memory_limit(bytes: u64) -> Result<MemoryLimit> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    MemoryLimit::new(&format!("sidewinder-{}-{number}", std::process::id()), bytes)
}

/// Outcomes of walks that ended before the outermost frame.
const CUT: [&str; 6] =
    ["no_table", "no_rule", "no_mapping", "snapshot_end", "register_lost", "unsupported_rule"];

/// How many user-space stacks were walked to their outermost frame, and how many were not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stacks {
    /// Walked to the outermost frame.
    pub complete: u64,
    /// Ended before.
    pub cut: u64,
}

impl Stacks {
    /// Those walked after `earlier` was read. A count that fell gives 0.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            complete: self.complete.saturating_sub(earlier.complete),
            cut: self.cut.saturating_sub(earlier.cut),
        }
    }

    /// The share of stacks that are complete, from 0 to 1; 0 of none.
    #[must_use]
    pub fn complete_share(self) -> f64 {
        self.complete as f64 / (self.complete + self.cut).max(1) as f64
    }
}

/// A profiler in one of the two forms.
#[derive(Debug)]
pub enum Profiler {
    /// The service, and the Collector that it sends to.
    Service(Daemon, Box<Collector>),
    /// The command `record`.
    Record(Recorder),
}

/// What a profiler brought.
#[derive(Debug)]
pub struct Profiled {
    /// The events.
    pub received: Received,
    /// What it counted.
    pub counts: Counts,
    /// What it said, and the program if it was started with the profiler.
    pub log: String,
}

impl Profiler {
    /// Starts it, and waits until it samples.
    ///
    /// # Errors
    /// When it does not, or `record` can't be told what the settings say.
    pub fn start(form: Form, settings: &Settings) -> Result<Self> {
        match form {
            Form::Service => {
                let collector = Collector::start()?;
                Ok(Self::Service(Daemon::start(settings, &collector.grpc_endpoint())?, Box::new(collector)))
            }
            Form::Record => Ok(Self::Record(Recorder::start(&settings.options()?, &settings.pids())?)),
        }
    }

    /// Stops it, which sends or writes what is left.
    ///
    /// # Errors
    /// When it does not end in time or with success, or breaks a rule of conformance.
    pub fn stop(self) -> Result<Profiled> {
        match self {
            Self::Service(daemon, collector) => {
                let log = daemon.stop()?.log;
                let counts = Counts::from_log(&log).with_context(|| format!("no counters: {log}"))?;
                Ok(Profiled { received: collector.stop()?, counts, log })
            }
            Self::Record(recorder) => Ok(recorder.stop()?.into()),
        }
    }
}

impl From<Recording> for Profiled {
    fn from(Recording { received, said, log }: Recording) -> Self {
        Self { received, counts: said.counts, log }
    }
}

/// What one session brought.
#[derive(Debug)]
pub struct Session {
    /// What the workload says of itself.
    pub report: Report,
    /// CPU time that this machine was denied meanwhile.
    pub stolen_ns: u64,
    /// The events.
    pub received: Received,
    /// What the profiler counted.
    pub counts: Counts,
    /// What the profiler said.
    pub log: String,
}

impl Session {
    /// How many events there should be of what the workload accounts for.
    #[must_use]
    pub fn expected(&self, samples_per_second: u32) -> Expected {
        let expected = Expected::of(samples_per_second, self.report.cpu_ns, self.stolen_ns);
        expected.but_for_missed(&self.counts.summary)
    }
}

/// Profiles a workload from its gate to its end, in the form of this run.
///
/// # Errors
/// When the workload or the profiler fails.
pub fn profile(command: Command, samples_per_second: u32) -> Result<Session> {
    profile_by(Form::of_this_run()?, Settings::at(samples_per_second), command)
}

/// As [`profile`], in this form and with these settings.
///
/// # Errors
/// As [`profile`].
pub fn profile_by(form: Form, settings: Settings, command: Command) -> Result<Session> {
    let mut workload = Gated::start(command)?;
    let profiler = Profiler::start(form, &settings.of(&[workload.pid()]))?;
    let stolen = StolenTime::start();
    workload.open()?;
    let report = workload.finish()?;
    let stolen_ns = stolen.elapsed_ns();
    let Profiled { received, counts, log } = profiler.stop()?;
    Ok(Session { report, stolen_ns, received, counts, log })
}

/// Profiles any program with its children from its first instruction on, in the form of this run: to its end, or for a time, after
/// which it is ended.
///
/// # Errors
/// When the program or the profiler fails.
pub fn launch(settings: Settings, program: &Command, duration: Option<Duration>) -> Result<Profiled> {
    match Form::of_this_run()? {
        Form::Service => {
            let mut program = Held::start(program)?;
            let profiler = Profiler::start(Form::Service, &settings.of(&[program.pid()]))?;
            program.open()?;
            let (profiled, printed) = match duration {
                Some(duration) => {
                    thread::sleep(duration);
                    (profiler.stop()?, program.finish(Some(Duration::ZERO))?)
                }
                None => {
                    let printed = program.finish(None)?;
                    (profiler.stop()?, printed)
                }
            };
            Ok(Profiled { log: printed + &profiled.log, ..profiled })
        }
        Form::Record => {
            let duration = duration.map(|duration| format!("--duration={}ms", duration.as_millis()));
            let options: Vec<_> = settings.options()?.into_iter().chain(duration).collect();
            Ok(recording::record(&options, program)?.into())
        }
    }
}

/// Profiles running processes for a time, in the form of this run.
///
/// # Errors
/// When the profiler fails.
pub fn profile_processes(settings: Settings, pids: &[u32], duration: Duration) -> Result<Profiled> {
    let profiler = Profiler::start(Form::of_this_run()?, &settings.of(pids))?;
    thread::sleep(duration);
    profiler.stop()
}

/// How many times longer than asked for a program is profiled at the most, until it has had its CPU time.
const LONGER_MAX: u32 = 10;

/// Waits for `duration`, and until a process has had nine tenths of it in CPU time: beside others it gets a part of a CPU.
pub fn wait_for_cpu_time(pid: u32, duration: Duration) {
    let cpu_time = || observe::cpu_ns(pid).map(Duration::from_nanos);
    let Ok(before) = cpu_time() else { return };
    let deadline = Instant::now() + LONGER_MAX * duration;
    thread::sleep(duration);
    while cpu_time().is_ok_and(|now| now < before + duration * 9 / 10) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
    }
}

/// Profiles a program that has no gate in the form of this run, and ends it: for `duration`, and until it has computed for so long.
///
/// # Errors
/// When the program or the profiler fails.
pub fn profile_running(command: Command, duration: Duration) -> Result<(u32, Received)> {
    profile_running_by(Form::of_this_run()?, Settings::at(997), command, duration)
}

/// As [`profile_running`], in this form and with these settings.
///
/// # Errors
/// As [`profile_running`].
pub fn profile_running_by(
    form: Form,
    settings: Settings,
    mut command: Command,
    duration: Duration,
) -> Result<(u32, Received)> {
    let mut program = command.spawn()?;
    let pid = program.id();
    let profiled = Profiler::start(form, &settings.of(&[pid])).and_then(|profiler| {
        wait_for_cpu_time(pid, duration);
        profiler.stop()
    });
    program.kill()?;
    program.wait()?;
    Ok((pid, profiled?.received))
}
