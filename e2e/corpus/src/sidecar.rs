//! Profiling a program as a sidecar does: the service, with the memory that the chart gives it.

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::observe;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::{Daemon, Settings};

use super::outcome::is_user_stack;
use super::programs::Subject;
use super::run::Gated;
use super::symbols::Symbols;

/// How long the programs run before the profiler starts.
const BEFORE: Duration = Duration::from_secs(3);
/// While the profiler reads what is running.
const FIRST: Duration = Duration::from_secs(10);

/// How often the profiler is started until all processes of a program are there when it looks at them.
const TRIES_MAX: u32 = 5;

/// How the names of code begin that a JVM has for itself, such as its interpreter.
const JVM_CODE: &str = "[jvm: ";

const SHORT_LIFE: Duration = Duration::from_millis(200);

/// How a program is profiled.
#[derive(Clone, Copy, Debug)]
pub struct SidecarRun {
    /// Interrupts per second and CPU.
    pub samples_per_second: u32,
    /// How long the profiler runs: more than its first ten seconds.
    pub duration: Duration,
    /// The limit of its memory.
    pub memory_bytes: u64,
    /// Whether the whole node is profiled.
    pub is_of_node: bool,
}

/// What a sidecar made of a program, and what it took.
#[derive(Clone, Copy, Debug)]
pub struct SidecarResult {
    /// All samples.
    pub events: u64,
    /// Those with a whole user stack, or with none because their process executed another program or ended.
    pub complete: u64,
    /// Those that were walked later, from a copy.
    pub walked_late: u64,
    /// Frames of all stacks, but for those without a name in stripped files.
    pub frames: u64,
    /// Those with the name of a function.
    pub named: u64,
    /// Look-ups of names for which there was no room.
    pub names_left_out: u64,
    /// CPU time of the profiler in its first ten seconds.
    pub first_cpu: Duration,
    /// In per cent of one CPU, after that.
    pub cpu_percent: f64,
    /// Of the profiler, at the end.
    pub resident_bytes: u64,
    /// The most that its cgroup had, caches of files among it.
    pub peak_bytes: u64,
}

impl SidecarResult {
    /// The share of complete samples.
    #[must_use]
    pub fn complete_share(&self) -> f64 {
        self.complete as f64 / self.events.max(1) as f64
    }

    /// The share of samples that were walked later.
    #[must_use]
    pub fn late_share(&self) -> f64 {
        self.walked_late as f64 / self.events.max(1) as f64
    }

    /// The share of these frames that have a name.
    #[must_use]
    pub fn named_share(&self) -> f64 {
        self.named as f64 / self.frames.max(1) as f64
    }

    /// The heads of the columns that it prints.
    #[must_use]
    pub fn heads() -> String {
        format!(
            "{:>7} {:>9} {:>7} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7}",
            "samples", "complete", "late", "named", "left out", "first s", "CPU %", "RSS", "peak"
        )
    }
}

impl fmt::Display for SidecarResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{:>7} {:>8.2}% {:>6.2}% {:>7.2}% {:>8} {:>8.2} {:>7.2} {:>7.1} {:>7.1}",
            self.events,
            100.0 * self.complete_share(),
            100.0 * self.late_share(),
            100.0 * self.named_share(),
            self.names_left_out,
            self.first_cpu.as_secs_f64(),
            self.cpu_percent,
            mib(self.resident_bytes),
            mib(self.peak_bytes)
        )
    }
}

/// Profiles programs that have been running for a few seconds.
///
/// # Errors
/// When a program, the profiler or the Collector can't be run.
pub fn profile_beside(subjects: &[&Subject], run: SidecarRun) -> Result<SidecarResult> {
    let starts_late = subjects.iter().any(|subject| subject.says_ready);
    let spare = Duration::from_secs(if starts_late { 120 } else { 30 });
    let seconds = u32::try_from((BEFORE + run.duration + spare).as_secs())?;
    let collector = Collector::start()?;
    let mut programs: Vec<Gated> =
        subjects.iter().map(|subject| Gated::start(subject, seconds)).collect::<Result<_>>()?;
    programs.iter_mut().try_for_each(Gated::open)?;
    for (program, _) in programs.iter_mut().zip(subjects).filter(|(_, subject)| subject.says_ready) {
        program.wait_until_ready()?;
    }
    thread::sleep(BEFORE);
    let mut tries = 0;
    let (started, daemon) = loop {
        let started = Instant::now();
        let mut pids = processes_of(&programs).into_iter();
        let settings = Settings {
            samples_per_second: run.samples_per_second,
            pid: if run.is_of_node { None } else { pids.next() },
            other_pids: if run.is_of_node { Vec::new() } else { pids.collect() },
            reports_at_default_interval: true,
            ..Settings::default()
        };
        tries += 1;
        match Daemon::start_with_memory(&settings, &collector.grpc_endpoint(), run.memory_bytes) {
            Ok(daemon) => break (started, daemon),
            // Processes of compilers are short, and one may end before the profiler looks at it.
            Err(_) if tries < TRIES_MAX => {}
            Err(error) => return Err(error),
        }
    };
    let pid = daemon.running().pid();
    thread::sleep(FIRST.saturating_sub(started.elapsed()));
    let (first_cpu, first_end) = (Duration::from_nanos(observe::cpu_ns(pid)?), Instant::now());
    thread::sleep(run.duration.saturating_sub(started.elapsed()));
    let later = Duration::from_nanos(observe::cpu_ns(pid)?).saturating_sub(first_cpu);
    let cpu_percent = 100.0 * later.as_secs_f64() / first_end.elapsed().as_secs_f64();
    let (resident_bytes, status) = (observe::resident_bytes(pid)?, daemon.receiver_status()?);
    let peak_bytes = daemon.peak_bytes()?.context("it has no limit of memory")?;
    daemon.stop()?;
    drop(programs);
    let received = collector.stop()?;
    let count = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
    let mut result = SidecarResult {
        events: 0,
        complete: 0,
        walked_late: count(&status["counters"]["walked_late"]),
        frames: 0,
        named: 0,
        names_left_out: count(&status["names_left_out"]),
        first_cpu,
        cpu_percent,
        resident_bytes,
        peak_bytes,
    };
    result.add(&received);
    Ok(result)
}

/// The processes of programs, but for those that have just begun, and may soon end. The profiler follows what they fork.
fn processes_of(programs: &[Gated]) -> Vec<u32> {
    let now = || programs.iter().flat_map(|program| observe::processes_of_group(program.pid()));
    let before: Vec<u32> = now().collect();
    thread::sleep(SHORT_LIFE);
    now().filter(|pid| before.contains(pid)).collect()
}

impl SidecarResult {
    fn add(&mut self, received: &Received) {
        let mut symbols = Symbols::default();
        for event in received.events() {
            let outcome = event.sample.outcome();
            self.events += 1;
            self.complete += u64::from(outcome.is_none() || !is_user_stack(outcome));
            // The outermost frame of a stack that isn't complete is a marker, which says why.
            let markers = usize::from(outcome.is_some());
            for frame in event.sample.stack.iter().rev().skip(markers) {
                let name = frame.function();
                let is_marker = frame.is_marker() == Some(true);
                let is_named = name.is_some_and(|name| !is_marker || name.starts_with(JVM_CODE));
                let file = frame.mapping.as_ref().map(|mapping| Path::new(&*mapping.filename));
                if is_named || file.is_none_or(|file| symbols.are_in(file)) {
                    self.frames += 1;
                    self.named += u64::from(is_named);
                }
            }
        }
    }
}
