//! Sidewinder beside its peers: what each costs for the same load at the same rate.
//!
//! One workload keeps one CPU busy; the profiler samples it for a while; the kernel is asked what the profiler's
//! eBPF programs, its process and its maps took. Profilers take turns, so that a machine that is slow for a minute is so
//! for all of them, and each figure is the median of the turns. Everything is per busy sample: rate times CPU time of
//! the workload. Times of eBPF programs are the kernel's (`kernel.bpf_stats_enabled`), idle CPUs' interrupts and all
//! programs of the profiler included. `perf record` only copies stacks: what it costs to unwind them later is
//! not in its figures.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::env;
use std::fmt::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use libbpf_rs::ObjectBuilder;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use perf_event::Builder;
use perf_event::events::Software;
use sidewinder_e2e_support::observe::{self, BpfStats};
use sidewinder_e2e_support::workload::{self, Gated};
use sidewinder_e2e_support::{bench, paths, requirement};
use tempfile::TempDir;

const SAMPLES_PER_SECOND: u32 = 997;
const TURNS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(1_500);
const MEASURED: Duration = Duration::from_secs(2);
const WORKLOAD_SECONDS: &str = "4";
const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// What is profiled.
struct Load {
    name: &'static str,
    /// For so many seconds, behind a gate.
    command: fn(&str) -> Result<Command>,
    /// Frames of its stacks at the depth where it spends its time, those of the C library included; on average, where
    /// they differ.
    frames: u32,
    has_frame_pointers: bool,
    /// Most of its samples are.
    is_in_kernel: bool,
}

impl Load {
    const fn new(name: &'static str, command: fn(&str) -> Result<Command>, frames: u32) -> Self {
        Self { name, command, frames, has_frame_pointers: false, is_in_kernel: false }
    }
}

const LOADS: [Load; 10] = [
    Load::new("rec 36", |seconds| workload::REC.command(&[seconds, "36"]), 41),
    Load {
        has_frame_pointers: true,
        ..Load::new("rec-fp 36", |seconds| workload::REC_FP.command(&[seconds, "36"]), 41)
    },
    Load::new("div 512", |seconds| workload::DIV.command(&[seconds, "30"]), 35),
    Load::new("rec 500", |seconds| workload::REC.command(&[seconds, "500"]), 505),
    // Cut after as many frames as are walked by default.
    Load::new("rec 9,000", |seconds| workload::REC.command(&[seconds, "9000"]), 8192),
    // The same, and each frame so large that it takes a read of its own: no stack costs more.
    Load::new("frames 9,000", large_frames, 8192),
    Load::new("20,000 stacks", |seconds| workload::DISTINCT.command(&[seconds, "20000"]), 21),
    Load::new("CPython", |seconds| workload::python(seconds.parse()?), PYTHON_FRAMES),
    Load {
        is_in_kernel: true,
        ..Load::new("4 KiB reads", |seconds| workload::READS.command(&[seconds, "4096"]), 10)
    },
    Load { is_in_kernel: true, ..Load::new("getpid", |seconds| workload::READS.command(&[seconds, "0"]), 9) },
];

/// What `recursive.py` has on average.
const PYTHON_FRAMES: u32 = 44;

/// 9,000 frames of 40 kB, on a stack that has room for them.
fn large_frames(seconds: &str) -> Result<Command> {
    let mut command = Command::new("prlimit");
    command.arg("--stack=400000000").arg(workload::FRAMES.compiled()?).args([seconds, "9000"]);
    Ok(command)
}

/// The name of what this bench itself runs, as a process of its own.
const GET_STACK: &str = "bpf_get_stack";

/// Who profiles, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profiler {
    Sidewinder { whole_node: bool },
    ProfileBee { dwarf: bool },
    Perf { dwarf: bool },
    GetStack,
}

const PROFILERS: [Profiler; 7] = [
    Profiler::Sidewinder { whole_node: false },
    Profiler::Sidewinder { whole_node: true },
    Profiler::GetStack,
    Profiler::ProfileBee { dwarf: true },
    Profiler::ProfileBee { dwarf: false },
    Profiler::Perf { dwarf: true },
    Profiler::Perf { dwarf: false },
];

impl Profiler {
    fn name(self) -> &'static str {
        match self {
            Self::Sidewinder { .. } => "sidewinder",
            Self::ProfileBee { .. } => "profile-bee",
            Self::Perf { .. } => "perf record",
            Self::GetStack => GET_STACK,
        }
    }

    fn scope(self) -> &'static str {
        match self {
            Self::Sidewinder { whole_node: true } => "node",
            _ => "process",
        }
    }

    fn stack(self, load: &Load) -> &'static str {
        match self {
            Self::Sidewinder { .. } if load.has_frame_pointers => "hybrid",
            Self::Sidewinder { .. } => "tables",
            Self::ProfileBee { dwarf: true } | Self::Perf { dwarf: true } => "dwarf",
            Self::ProfileBee { dwarf: false } | Self::Perf { dwarf: false } => "fp",
            Self::GetStack => "kernel",
        }
    }

    /// Frame pointers alone tell nothing of a program without them.
    fn fits(self, load: &Load) -> bool {
        match self {
            Self::Sidewinder { .. } => true,
            Self::ProfileBee { dwarf } | Self::Perf { dwarf } => dwarf != load.has_frame_pointers,
            Self::GetStack => load.is_in_kernel,
        }
    }

    fn uses_ebpf(self) -> bool {
        !matches!(self, Self::Perf { .. })
    }

    /// Whether its process samples, as far as it can be told while the load stands at its gate.
    fn is_ready(self, agent: u32) -> bool {
        match self {
            Self::Sidewinder { .. } | Self::ProfileBee { .. } => observe::program_runs(agent).interrupts > 0,
            // An event of the load's alone.
            Self::GetStack => !observe::interrupt_programs(agent).is_empty(),
            Self::Perf { .. } => true,
        }
    }

    fn command(self, program: &Path, pid: u32, folder: &Path) -> Command {
        let mut command = Command::new(program);
        let (rate, pid) = (SAMPLES_PER_SECOND.to_string(), pid.to_string());
        match self {
            Self::Sidewinder { whole_node } => {
                command.args(["record", "-F", &rate, "-d", "600s", "-o"]).arg(folder.join("out.otlp"));
                if whole_node {
                    command.arg("-a")
                } else {
                    command.args(["-p", &pid])
                };
            }
            Self::ProfileBee { dwarf } => {
                command.args(["-f", &rate, "-p", &pid, "-t", "600000", "-o"]).arg(folder.join("out.folded"));
                command.args(["--dwarf", if dwarf { "true" } else { "false" }]);
            }
            Self::Perf { dwarf } => {
                command.args(["record", "-q", "-e", "cpu-clock", "-F", &rate, "-p", &pid, "--call-graph"]);
                command.arg(if dwarf { "dwarf" } else { "fp" }).arg("-o").arg(folder.join("perf.data"));
            }
            Self::GetStack => {
                command.args([GET_STACK, &rate, &pid]);
            }
        }
        command
    }

    /// The program, installed on demand where it can be; `None` where it can't, which has been said.
    fn program(self) -> Result<Option<PathBuf>> {
        match self {
            Self::Sidewinder { .. } => paths::sidewinder().map(Some),
            Self::ProfileBee { .. } => profile_bee(),
            Self::Perf { .. } => Ok(requirement::program("perf record", "perf")?.then(|| "perf".into())),
            Self::GetStack => Ok(Some(env::current_exe()?)),
        }
    }
}

/// Profile-bee wants tracefs, which not every machine has mounted.
fn mount_tracefs() -> Result<()> {
    if Path::new("/sys/kernel/tracing/events").is_dir() {
        return Ok(());
    }
    let status = Command::new("mount").args(["-t", "tracefs", "nodev", "/sys/kernel/tracing"]).status()?;
    if !status.success() {
        bail!("cannot mount tracefs: mount ended with {status}");
    }
    Ok(())
}

fn profile_bee() -> Result<Option<PathBuf>> {
    mount_tracefs()?;
    let root = paths::target()?.join("peers");
    let program = root.join("bin/probee");
    if !program.is_file() {
        eprintln!("installing profile-bee 0.3 ...");
        let status = Command::new("cargo")
            .args(["install", "--quiet", "--locked", "--no-default-features", "--version", "^0.3", "--root"])
            .arg(&root)
            .arg("profile-bee")
            .status()?;
        if !status.success() {
            requirement::skip("profile-bee", &format!("cargo install ended with {status}"))?;
            return Ok(None);
        }
    }
    Ok(Some(program))
}

/// Runs the program that calls `bpf_get_stack` alone so many times a second that a process runs, until it is ended.
fn get_stack(samples_per_second: u64, pid: i32) -> Result<()> {
    let object = ObjectBuilder::default().open_file(workload::GET_STACK.compiled()?)?.load()?;
    let program = object.progs().next().context("no program in it")?;
    let mut event = Builder::new(Software::CPU_CLOCK)
        .observe_pid(pid)
        .sample_frequency(samples_per_second)
        .include_kernel()
        .build()?;
    event.set_bpf(program.as_fd().as_raw_fd())?;
    event.enable()?;
    loop {
        thread::park();
    }
}

/// A profiler that is running beside a load.
struct Attached {
    process: Child,
    folder: TempDir,
}

impl Attached {
    fn start(profiler: Profiler, program: &Path, pid: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = profiler.command(program, pid, folder.path());
        let log = std::fs::File::create(folder.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut attached = Self { process: command.spawn()?, folder };
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            thread::sleep(Duration::from_millis(50));
            attached.check_alive()?;
            if profiler.is_ready(attached.process.id()) {
                return Ok(attached);
            }
            if Instant::now() > deadline {
                bail!("{} does not begin to sample", profiler.name());
            }
        }
    }

    fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.process.try_wait()? {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            bail!("it ended with {status}: {}", log.lines().last().unwrap_or_default());
        }
        Ok(())
    }

    fn stop(mut self) -> Result<()> {
        signal::kill(Pid::from_raw(i32::try_from(self.process.id())?), Signal::SIGINT)?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.process.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("it did not stop within {STOP_TIMEOUT:?}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What one profiler took for one load, in one turn or in the median of some.
#[derive(Clone, Copy)]
struct Cost {
    samples: f64,
    ebpf_ns: f64,
    agent_ns: f64,
    resident_bytes: u64,
    map_bytes: u64,
    slowdown: f64,
}

impl Cost {
    fn median(turns: &[Self]) -> Self {
        Self {
            samples: median(turns, |cost| cost.samples),
            ebpf_ns: median(turns, |cost| cost.ebpf_ns),
            agent_ns: median(turns, |cost| cost.agent_ns),
            resident_bytes: median(turns, |cost| cost.resident_bytes),
            map_bytes: median(turns, |cost| cost.map_bytes),
            slowdown: median(turns, |cost| cost.slowdown),
        }
    }
}

/// The value in the middle.
fn median<T: PartialOrd + Copy>(turns: &[Cost], figure: fn(&Cost) -> T) -> T {
    let mut figures: Vec<T> = turns.iter().map(figure).collect();
    figures.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    figures[figures.len() / 2]
}

fn rounds_alone(load: &Load) -> Result<u64> {
    let mut workload = Gated::start((load.command)(WORKLOAD_SECONDS)?)?;
    workload.open()?;
    Ok(workload.finish()?.rounds)
}

/// One turn.
fn measure(load: &Load, profiler: Profiler, program: &Path, rounds_alone: u64) -> Result<Cost> {
    let _stats = BpfStats::enable()?;
    let mut workload = Gated::start((load.command)(WORKLOAD_SECONDS)?)?;
    let mut attached = Attached::start(profiler, program, workload.pid())?;
    let agent = attached.process.id();
    workload.open()?;
    thread::sleep(WARM_UP);
    let look = || -> Result<_> {
        Ok((observe::program_runs(agent).time_ns, observe::cpu_ns(agent)?, observe::cpu_ns(workload.pid())?))
    };
    let before = look()?;
    thread::sleep(MEASURED);
    let after = look()?;
    attached.check_alive()?;
    let (resident_bytes, map_bytes) = (observe::resident_bytes(agent)?, observe::map_bytes(agent));
    let rounds = workload.finish()?.rounds;
    attached.stop()?;
    let samples = f64::from(SAMPLES_PER_SECOND) * (after.2 - before.2) as f64 / 1e9;
    Ok(Cost {
        samples,
        ebpf_ns: (after.0 - before.0) as f64 / samples,
        agent_ns: (after.1 - before.1) as f64 / samples,
        resident_bytes,
        map_bytes,
        slowdown: 1.0 - rounds as f64 / rounds_alone as f64,
    })
}

fn row(load: &Load, profiler: Profiler, cost: &Cost) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut row = format!(
        "{:<14} {:<12} {:>4} {:<8} {:<7} {:>8.0}",
        load.name,
        profiler.name(),
        SAMPLES_PER_SECOND,
        profiler.scope(),
        profiler.stack(load),
        cost.samples
    );
    // Writing to a string does not fail.
    let _ = match profiler.uses_ebpf() {
        true => write!(row, " {:>9.0} {:>8.1}", cost.ebpf_ns, cost.ebpf_ns / f64::from(load.frames)),
        false => write!(row, " {:>9} {:>8}", "-", "-"),
    };
    let _ = write!(
        row,
        " {:>9.2} {:>7.1} {:>7.1} {:>7.2}",
        cost.agent_ns / 1e3,
        mib(cost.resident_bytes),
        mib(cost.map_bytes),
        100.0 * cost.slowdown
    );
    row
}

/// Lets the profilers take turns at a load. What each took, or what kept it from that.
fn take_turns(load: &Load, profilers: &[(Profiler, PathBuf)]) -> Result<Vec<Result<Cost>>> {
    let mut costs: Vec<Result<Vec<Cost>>> = profilers.iter().map(|_| Ok(Vec::new())).collect();
    for turn in 1..=TURNS {
        eprint!("\r{}, turn {turn} of {TURNS} ", load.name);
        let rounds_alone = rounds_alone(load)?;
        for ((profiler, program), costs) in profilers.iter().zip(&mut costs) {
            let Ok(turns) = costs else { continue };
            match measure(load, *profiler, program, rounds_alone) {
                Ok(cost) => turns.push(cost),
                Err(error) => *costs = Err(error),
            }
        }
    }
    eprint!("\r{:40}\r", "");
    Ok(costs.into_iter().map(|turns| Ok(Cost::median(&turns?))).collect())
}

/// Takes the loads and the profilers that are named on the command line; all loads, or all profilers, where none is.
fn side_by_side() -> Result<()> {
    let named = bench::named();
    let names_any = |all: &[&str]| named.iter().any(|name| all.contains(&name.as_str()));
    let names_loads = names_any(&LOADS.map(|load| load.name));
    let names_profilers = names_any(&PROFILERS.map(Profiler::name));
    let is_wanted = |load: &&Load| !names_loads || names_any(&[load.name]);
    let is_asked = |profiler: &Profiler| !names_profilers || names_any(&[profiler.name()]);
    println!(
        "{:<14} {:<12} {:>4} {:<8} {:<7} {:>8} {:>9} {:>8} {:>9} {:>7} {:>7} {:>7}",
        "load",
        "profiler",
        "Hz",
        "scope",
        "stack",
        "samples",
        "eBPF",
        "eBPF",
        "agent",
        "RSS",
        "maps",
        "slow-"
    );
    println!(
        "{:<14} {:<12} {:>4} {:<8} {:<7} {:>8} {:>9} {:>8} {:>9} {:>7} {:>7} {:>7}",
        "", "", "", "", "", "", "ns/sample", "ns/frame", "us/sample", "MiB", "MiB", "down %"
    );
    for load in LOADS.iter().filter(is_wanted) {
        let mut profilers = Vec::new();
        for profiler in PROFILERS.into_iter().filter(|profiler| profiler.fits(load)).filter(is_asked) {
            profilers.extend(profiler.program()?.map(|program| (profiler, program)));
        }
        for ((profiler, _), cost) in profilers.iter().zip(take_turns(load, &profilers)?) {
            match cost {
                Ok(cost) => println!("{}", row(load, *profiler, &cost)),
                Err(error) => println!("{:<14} {:<12} failed: {error:#}", load.name, profiler.name()),
            }
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    if bench::is_to_start_only() {
        return Ok(());
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [name, rate, pid] = arguments.as_slice()
        && name == GET_STACK
    {
        return get_stack(rate.parse()?, pid.parse()?);
    }
    if !requirement::ebpf("benchmarks").context("benchmarks need eBPF")? {
        return Ok(());
    }
    side_by_side()
}
