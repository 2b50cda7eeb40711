//! Profiling one program of the corpus.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, killpg};
use nix::sys::time::TimeValLike as _;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use sidewinder_e2e_support::counts::Counts;
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::rate::{Expected, StolenTime};
use sidewinder_e2e_support::session::{Profiled, Profiler, Settings, Switch};
use sidewinder_e2e_support::{paths, workload};
use tempfile::TempDir;

use super::programs::{Language, Subject};
use super::registry::Registry;
use super::samples::Samples;

/// A program that ends by itself may take this much longer than it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// Of a program that says when it has started.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A program behind a gate, in a process group of its own. Its first process is a shell, which becomes the program.
#[derive(Debug)]
pub struct Gated {
    shell: Child,
    folder: TempDir,
}

impl Gated {
    /// Starts the shell, which waits.
    ///
    /// # Errors
    /// When the program can't be prepared, or the shell not be run.
    pub fn start(subject: &Subject, seconds: u32) -> Result<Self> {
        subject.prepare()?;
        // Processes that lose their parent become children of ours.
        set_child_subreaper(true)?;
        let folder = tempfile::tempdir()?;
        let scratch = folder.path().join("scratch");
        fs::create_dir(&scratch)?;
        let output = File::create(folder.path().join("output"))?;
        let registries: Vec<(&str, PathBuf)> = Registry::ALL
            .into_iter()
            .map(|registry| Ok((registry.variable(), registry.folder()?)))
            .collect::<Result<_>>()?;
        let shell = Command::new("sh")
            .args(["-c", &format!("read -r _; {}", in_place(subject.command))])
            .env("SECONDS", seconds.to_string())
            .env("COMPILED", paths::compiled()?)
            .env("SOURCES", paths::e2e().join("workloads"))
            .env("SCRATCH", &scratch)
            // What a program writes where it runs is gone with it.
            .current_dir(&scratch)
            .env("TEXT", workload::text()?)
            .env("TOOLS", paths::tools()?)
            .envs(subject.collector()?.map(|collector| ("COLLECTOR", collector)))
            .envs(registries)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run sh")?;
        Ok(Self { shell, folder })
    }

    /// The process id of the shell, and then of the program.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.shell.id()
    }

    /// Opens the gate.
    ///
    /// # Errors
    /// When it is open already, or the shell is gone.
    pub fn open(&mut self) -> Result<()> {
        let mut gate = self.shell.stdin.take().context("the gate is open already")?;
        gate.write_all(b"\n").context("the shell is gone")
    }

    /// Waits until it says that it has started.
    ///
    /// # Errors
    /// When it ends, or takes too long.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let ready = self.folder.path().join("scratch/ready");
        let deadline = Instant::now() + START_TIMEOUT;
        while !ready.exists() {
            ensure!(!self.has_ended()?, "the program has ended before it was ready");
            ensure!(Instant::now() < deadline, "the program is not ready within {START_TIMEOUT:?}");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether its first process has ended.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.shell.try_wait()?.is_some())
    }

    /// Waits for its end, or brings it about, until none of its processes is left. Returns what it said of itself, if
    /// it did.
    fn finish(&mut self, deadline: Instant) -> Result<Option<workload::Report>> {
        while !self.has_ended()? && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        self.kill();
        let said = fs::read(self.folder.path().join("output"))?;
        Ok(workload::report_in(&String::from_utf8_lossy(&said)).ok())
    }

    /// Ends all of its processes, so that we account for their CPU time.
    fn kill(&self) {
        let Ok(group) = i32::try_from(self.shell.id()) else { return };
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        while waitpid(Pid::from_raw(-group), None).is_ok() {}
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A simple command takes the place of the shell.
fn in_place(command: &str) -> String {
    let is_simple = !command.contains([';', '{', '&']);
    if is_simple { format!("exec {command}") } else { command.to_owned() }
}

/// Profiles one program for about `seconds`, and judges every sample.
///
/// # Errors
/// When the program or the profiler cannot be run, or interrupts are not accounted for.
pub fn profile(form: Form, subject: &Subject, seconds: u32, samples_per_second: u32) -> Result<Samples> {
    let mut program = Gated::start(subject, seconds)?;
    let is_python = subject.language == Some(Language::Python);
    let switches = if is_python { &[Switch::VmInternals][..] } else { &[] };
    let settings = Settings::at(samples_per_second).of(&[program.pid()]).with(switches);
    let profiler = Profiler::start(form, &settings)?;

    let (cpu_before_ns, stolen) = (children_cpu_ns()?, StolenTime::start());
    program.open()?;
    let report = program.finish(Instant::now() + Duration::from_secs(seconds.into()) + GRACE)?;
    let cpu_ns = children_cpu_ns()? - cpu_before_ns;
    let stolen_ns = stolen.elapsed_ns();
    let Profiled { received, counts: Counts { summary, .. }, .. } = profiler.stop()?;
    let cpus = thread::available_parallelism()?.get() as u64;
    summary.check(received.events().count() as u64, cpus)?;
    let expected = Expected::of(samples_per_second, cpu_ns, stolen_ns);
    let chain = report.zip(subject.chain).map(|(report, chain)| chain(report.chain));
    Ok(Samples::judged(expected, &received, &summary, chain, subject.language))
}

/// CPU time of all children that have ended, and of theirs.
fn children_cpu_ns() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let ns = usage.user_time().num_nanoseconds() + usage.system_time().num_nanoseconds();
    Ok(u64::try_from(ns)?)
}
