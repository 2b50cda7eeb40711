//! What off-CPU and wall time cost two processes that wake each other: beside the profiler of another process, beside the sidecar
//! of another pod, and profiled themselves, by `record` and by the sidecar of their pod; as fast as they can, and with so much work
//! between that they switch 100,000 times a second.
//!
//! A figure is the median round trip of batches of a millisecond, which tells some 0.1% on a machine that is otherwise idle. What
//! the profiler takes besides, on any CPU, is in the column of its CPU time. A machine's speed changes by more in a minute than is to
//! be measured here: so each loss is that against the mean of the figures without a profiler just before and after it, and the
//! median of the turns counts, beside the least and the largest of them. `no profiler` is measured like the others: its loss is
//! noise.
//!
//! The scope of `record` is a process, for which the events of a switch are those of all tasks: the worst case for others. In the
//! scope of a pod they are the pod's own events, and others run no program at all. But with any event that is bound to a cgroup or a
//! task (`perf_sched_events` in kernel/events/core.c) the kernel calls functions of its own at each switch of the machine: what
//! these take is in the row of `perf stat`, which has no program, next to that of a program that does nothing at each switch. The
//! loss beside the sidecar of their own pod is that against the figure in a pod without a sidecar.
//!
//! `-- NAME...` measures these rows alone.
//!
//! Beside it runs what bpftrace's `offcputime` and OpenTelemetry's profiler take, where this kernel has what they need.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::ObjectBuilder;
use serde_json::Value;
use sidewinder_e2e_pod::application::{APP_USER, AS_THE_SAME_USER, NOWHERE, app, configuration, security};
use sidewinder_e2e_pod::{Cgroup, Container, Image, Pod, PodSpec, Sidecar, SidecarSpec};
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{AT_SWITCH, PINGPONG, TENANT};
use sidewinder_e2e_support::{bench, observe, requirement};

const TURNS: usize = 5;
const SECONDS: u32 = 2;
/// Until a profiler has attached its programs.
const SETTLE: Duration = Duration::from_secs(3);
/// How long another profiler may take until all of them are loaded.
const PROGRAMS_TIMEOUT: Duration = Duration::from_secs(120);
/// Until the kernel's switches are as without perf events again: it waits for a second after the last one is closed.
const RESTORE: Duration = Duration::from_millis(1_500);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const EMPTY_CGROUP: &str = "sidewinder-without-processes";
const SWITCHES_PER_SECOND: f64 = 100_000.0;
/// Enough to take much longer than a switch.
const ROUNDS_TO_CALIBRATE: u64 = 100_000;

/// Who profiles, and whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profiler {
    Nobody,
    /// Nobody, while they run in a pod.
    NobodyInPod,
    /// A program that does nothing at each switch of the machine.
    EmptyProgram,
    /// `record` of another process, with an option.
    OfOthers(&'static str),
    /// `perf stat`, of the events that a sidecar samples, in a cgroup without processes: what the kernel takes for them, without
    /// any program.
    EventsOfAnotherCgroup,
    /// The sidecar of another pod, with the default of `record --off-cpu`.
    OfAnotherPod,
    /// The sidecar of their pod, with the same.
    OfTheirPod,
    /// `record` with an option.
    OfThemselves(&'static str),
    /// Another profiler, of all tasks.
    Peer(Peer),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// As bpftrace's own tool: each switch, with the time until the thread runs again.
    OffCpuTime,
    /// The part of it that needs no probe of a function of the kernel: a stack at each switch.
    SwitchStacks,
    OpenTelemetry,
}

/// A name, who profiles, and the goal for the loss in percent, if there is one.
type Case = (&'static str, Profiler, Option<f64>);

const FASTEST: [Case; 15] = [
    ("no profiler", Profiler::Nobody, None),
    ("CPU time, of others", Profiler::OfOthers("-F97"), None),
    ("off-CPU time, of others", Profiler::OfOthers("--off-cpu"), None),
    ("perf stat, other cgroup", Profiler::EventsOfAnotherCgroup, None),
    ("empty program", Profiler::EmptyProgram, None),
    ("sidecar of another pod", Profiler::OfAnotherPod, Some(1.0)),
    ("CPU time", Profiler::OfThemselves("-F97"), None),
    ("off-CPU time", Profiler::OfThemselves("--off-cpu"), None),
    ("off-CPU time, each wait", Profiler::OfThemselves("--off-cpu=1"), None),
    ("wall time", Profiler::OfThemselves("--wall"), None),
    ("no profiler, in a pod", Profiler::NobodyInPod, None),
    ("sidecar of their pod", Profiler::OfTheirPod, None),
    ("bpftrace offcputime", Profiler::Peer(Peer::OffCpuTime), None),
    ("bpftrace, stacks alone", Profiler::Peer(Peer::SwitchStacks), None),
    ("OpenTelemetry's", Profiler::Peer(Peer::OpenTelemetry), None),
];
const PACED: [Case; 10] = [
    ("no profiler", Profiler::Nobody, None),
    ("perf stat, other cgroup", Profiler::EventsOfAnotherCgroup, None),
    ("empty program", Profiler::EmptyProgram, None),
    ("sidecar of another pod", Profiler::OfAnotherPod, Some(1.0)),
    ("CPU time", Profiler::OfThemselves("-F97"), None),
    ("off-CPU time", Profiler::OfThemselves("--off-cpu"), Some(3.0)),
    ("off-CPU time, each wait", Profiler::OfThemselves("--off-cpu=1"), None),
    ("no profiler, in a pod", Profiler::NobodyInPod, None),
    ("sidecar of their pod", Profiler::OfTheirPod, None),
    ("bpftrace, stacks alone", Profiler::Peer(Peer::SwitchStacks), None),
];

impl Profiler {
    /// What its loss is against.
    fn baseline(self) -> Self {
        match self {
            Self::NobodyInPod | Self::OfTheirPod => Self::NobodyInPod,
            _ => Self::Nobody,
        }
    }
}

impl Peer {
    /// `receiver`: where it sends what it finds, if it does.
    fn command(self, receiver: &str) -> Command {
        let program = match self {
            Self::OffCpuTime => {
                "kprobe:finish_task_switch {
                    $prev = (struct task_struct *)arg0;
                    @start[$prev->pid] = nsecs;
                    $last = @start[tid];
                    if ($last != 0) { @[kstack, ustack, comm] = sum(nsecs - $last); delete(@start[tid]); }
                }"
            }
            Self::SwitchStacks => "software:context-switches:1 { @[kstack, ustack, comm] = count(); }",
            Self::OpenTelemetry => {
                let mut command = Command::new("ebpf-profiler");
                command.args(["-collection-agent", receiver, "-disable-tls", "-off-cpu-threshold", "0.01"]);
                return command;
            }
        };
        let mut command = Command::new("bpftrace");
        command.args(["-e", program]);
        command
    }

    /// What this kernel lacks for it.
    fn obstacle(self) -> Option<&'static str> {
        let is_there = |path| Path::new(path).exists();
        let has_kprobes = is_there("/sys/bus/event_source/devices/kprobe");
        let has_tracefs = is_there("/sys/kernel/tracing/events/sched/sched_switch");
        match self {
            Self::OffCpuTime if !has_kprobes => {
                Some("it probes the kernel's finish_task_switch, and this kernel has no kprobes")
            }
            Self::OpenTelemetry if !(has_kprobes && has_tracefs) => Some(
                "it probes the kernel's finish_task_switch, and finds sched_switch through tracefs; this kernel lacks one of these",
            ),
            _ => None,
        }
    }

    /// Why it can't be measured; prints nothing by itself.
    fn absence(self) -> Option<String> {
        let command = self.command(NOWHERE);
        let program = command.get_program().to_string_lossy();
        let is_missing =
            || (!requirement::is_installed(&program)).then(|| format!("{program} is not installed"));
        self.obstacle().map(str::to_owned).or_else(is_missing)
    }
}

#[derive(Clone, Copy)]
struct PingPong {
    /// Additions in each turn.
    work: u64,
}

impl PingPong {
    /// In no pod.
    fn command(self) -> Result<Command> {
        PINGPONG.command(&[u64::from(SECONDS), self.work])
    }

    /// The nanoseconds of a round trip, which is two switches, in a pod.
    fn round_trip_ns_in_pod(self, pod: &Pod) -> Result<f64> {
        let arguments = [SECONDS.to_string(), self.work.to_string()];
        let mut container = pod.run(&app(PINGPONG, &[&arguments[0], &arguments[1]], None)?)?;
        let status = container.wait(Duration::from_secs(60))?;
        ensure!(status.success(), "{status}: {}", container.log());
        round_trip_ns_in(&container.log())
    }

    fn round_trip_ns(self) -> Result<f64> {
        round_trip_ns_in(&String::from_utf8(self.command()?.output()?.stdout)?)
    }

    /// One that switches so often.
    fn with_rate(switches_per_second: f64) -> Result<Self> {
        let turn_ns = |work| Ok::<f64, anyhow::Error>(Self { work }.round_trip_ns()? / 2.0);
        let (switch_ns, long_ns) = (turn_ns(0)?, turn_ns(ROUNDS_TO_CALIBRATE)?);
        let round_ns = (long_ns - switch_ns) / ROUNDS_TO_CALIBRATE as f64;
        let work = (1e9 / switches_per_second - switch_ns) / round_ns;
        ensure!(work > 0.0, "this machine can't switch {switches_per_second} times a second");
        Ok(Self { work: work as u64 })
    }
}

fn round_trip_ns_in(printed: &str) -> Result<f64> {
    printed
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?.get("round_trip_ns")?.as_f64())
        .next()
        .with_context(|| format!("pingpong did not say how long a round trip takes: {printed}"))
}

/// A pod with an application that sleeps.
struct IdlePod {
    _app: Container,
    pod: Pod,
}

impl IdlePod {
    fn start() -> Result<Self> {
        let pod = Pod::start(PodSpec::default())?;
        Ok(Self { _app: pod.run(&app(TENANT, &["app", "3600", "idle"], None)?)?, pod })
    }
}

/// One with a sidecar that profiles off-CPU time.
struct ProfiledPod {
    sidecar: Sidecar,
    idle: IdlePod,
}

impl ProfiledPod {
    fn start(image: &Image) -> Result<Self> {
        let idle = IdlePod::start()?;
        let configuration = configuration(97, "propagate", NOWHERE)
            .replace("    scope:", "    off_cpu_threshold: 0.01\n    scope:");
        let security = security(APP_USER, &AS_THE_SAME_USER);
        let spec = SidecarSpec { configuration, security, memory_limit_bytes: None, collector: None };
        let mut sidecar = Sidecar::start(&idle.pod, image, &spec)?;
        sidecar.wait_until_profiling()?;
        thread::sleep(SETTLE);
        Ok(Self { sidecar, idle })
    }

    fn pid(&self) -> u32 {
        self.sidecar.container().pid()
    }
}

/// What was seen of a profiler while the load ran.
#[derive(Clone, Copy, Default)]
struct Observed {
    /// The most eBPF programs that it had at a time.
    programs: usize,
    /// CPU time over the last second of the load, in percent of one CPU.
    cpu_percent: f64,
}

/// Runs the load, and observes a profiler until it has ended.
fn observed<T>(pid: u32, load: impl FnOnce() -> Result<T>) -> Result<(T, Observed)> {
    let has_ended = AtomicBool::new(false);
    let observe = || {
        let (mut programs, mut cpu_times) = (0, Vec::new());
        while !has_ended.load(Ordering::Relaxed) {
            programs = programs.max(observe::program_count(pid));
            // One that ends with its load has no time any more.
            if let Ok(cpu_ns) = observe::cpu_ns(pid)
                && cpu_times.last().is_none_or(|(_, last_ns)| cpu_ns >= *last_ns)
            {
                cpu_times.push((Instant::now(), cpu_ns));
            }
            thread::sleep(POLL_INTERVAL);
        }
        let over_last_second = || {
            let (end, last_ns) = cpu_times.last()?;
            let within = |(time, _): &&(Instant, u64)| end.duration_since(*time) <= Duration::from_secs(1);
            let (begin, first_ns) = cpu_times.iter().find(within)?;
            Some(100.0 * (last_ns - first_ns) as f64 / end.duration_since(*begin).as_nanos() as f64)
        };
        Observed { programs, cpu_percent: over_last_second().unwrap_or(f64::NAN) }
    };
    thread::scope(|threads| {
        let observer = threads.spawn(observe);
        let figure = load();
        has_ended.store(true, Ordering::Relaxed);
        let seen = observer.join().ok().context("observing the profiler has panicked")?;
        Ok((figure?, seen))
    })
}

/// The nanoseconds of a round trip.
fn measure(load: PingPong, profiler: Profiler, image: Option<&Image>) -> Result<(f64, Observed)> {
    let folder = tempfile::tempdir()?;
    let recorder = |option: &str| -> Result<Command> {
        let mut command = sidewinder::command()?;
        command.args(["record", "-q", option, "-o"]).arg(folder.path().join("out.otlp"));
        Ok(command)
    };
    match profiler {
        Profiler::Nobody => Ok((load.round_trip_ns()?, Observed::default())),
        Profiler::NobodyInPod => {
            Ok((load.round_trip_ns_in_pod(&IdlePod::start()?.pod)?, Observed::default()))
        }
        Profiler::EmptyProgram => {
            let object = ObjectBuilder::default().open_file(AT_SWITCH.compiled()?)?.load()?;
            let attach = |program: libbpf_rs::ProgramMut<'_>| program.attach();
            let links = object.progs_mut().map(attach).collect::<libbpf_rs::Result<Vec<_>>>()?;
            Ok((load.round_trip_ns()?, Observed { programs: links.len(), ..Observed::default() }))
        }
        Profiler::OfOthers(option) => {
            let mut sleep = Command::new("sleep");
            sleep.arg("60");
            let other = Load::start(sleep)?;
            let mut command = recorder(option)?;
            command.arg("-p").arg(other.pid().to_string());
            let running = Running::start(command)?;
            thread::sleep(SETTLE);
            let measured = observed(running.pid(), || load.round_trip_ns())?;
            running.stop()?;
            Ok(measured)
        }
        Profiler::EventsOfAnotherCgroup => {
            let _empty = Cgroup::create(EMPTY_CGROUP)?;
            let mut command = Command::new("perf");
            command.args([
                "stat",
                "-a",
                "-e",
                "cpu-clock,context-switches",
                "-G",
                &[EMPTY_CGROUP; 2].join(","),
            ]);
            let running = Load::start(command)?;
            thread::sleep(SETTLE);
            observed(running.pid(), || load.round_trip_ns())
        }
        Profiler::OfAnotherPod => {
            let pod = ProfiledPod::start(image.context("no image of a sidecar")?)?;
            observed(pod.pid(), || load.round_trip_ns())
        }
        Profiler::OfTheirPod => {
            let pod = ProfiledPod::start(image.context("no image of a sidecar")?)?;
            observed(pod.pid(), || load.round_trip_ns_in_pod(&pod.idle.pod))
        }
        Profiler::OfThemselves(option) => {
            let (mut command, program) = (recorder(option)?, load.command()?);
            command.arg("--").arg(program.get_program()).args(program.get_args());
            let mut running = Running::start(command)?;
            let (ended, seen) = observed(running.pid(), || running.wait(Duration::from_secs(60)))?;
            ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
            Ok((round_trip_ns_in(&ended.log)?, seen))
        }
        Profiler::Peer(peer) => {
            // At its end it would name all functions, which takes minutes: so it is killed.
            // OpenTelemetry's begins once its receiver answers.
            let collector = (peer == Peer::OpenTelemetry).then(Collector::start).transpose()?;
            let receiver = collector.as_ref().map_or_else(|| NOWHERE.to_owned(), Collector::grpc_endpoint);
            let command = peer.command(&receiver);
            let description = format!("{command:?}");
            let running = Load::start(command)?;
            settle(running.pid()).with_context(|| format!("run {description}"))?;
            observed(running.pid(), || load.round_trip_ns())
        }
    }
}

/// Waits until a profiler has loaded all of its eBPF programs.
fn settle(pid: u32) -> Result<()> {
    let deadline = Instant::now() + PROGRAMS_TIMEOUT;
    let mut programs = 0;
    loop {
        thread::sleep(SETTLE);
        let now = observe::program_count(pid);
        if now > 0 && now == programs {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "it has {now} programs, and had {programs} {SETTLE:?} before");
        programs = now;
    }
}

#[derive(Default)]
struct Figures {
    round_trips_ns: Vec<f64>,
    losses: Vec<f64>,
    cpu_percents: Vec<f64>,
    programs: usize,
}

/// Measures all that can be measured here, and prints a table.
fn compare(load: PingPong, cases: &[Case], image: Option<&Image>) -> Result<()> {
    let is_possible = |profiler: Profiler| match profiler {
        Profiler::NobodyInPod | Profiler::OfAnotherPod | Profiler::OfTheirPod => image.is_some(),
        Profiler::EventsOfAnotherCgroup => image.is_some() && requirement::is_installed("perf"),
        Profiler::Peer(peer) => peer.absence().is_none(),
        _ => true,
    };
    let named = bench::named();
    let is_chosen = |name: &str| named.is_empty() || named.iter().any(|chosen| chosen == name);
    let cases: Vec<&Case> =
        cases.iter().filter(|(name, profiler, _)| is_chosen(name) && is_possible(*profiler)).collect();
    let mut figures: Vec<Figures> = cases.iter().map(|_| Figures::default()).collect();
    for turn in 1..=TURNS {
        eprintln!("turn {turn} of {TURNS}");
        for ((name, profiler, _), figures) in cases.iter().zip(&mut figures) {
            let figure = |profiler| {
                thread::sleep(RESTORE);
                measure(load, profiler, image).with_context(|| format!("measuring {name}"))
            };
            let (before_ns, _) = figure(profiler.baseline())?;
            let (round_trip_ns, seen) = figure(*profiler)?;
            let (after_ns, _) = figure(profiler.baseline())?;
            let baseline_ns = f64::midpoint(before_ns, after_ns);
            figures.round_trips_ns.push(round_trip_ns);
            figures.losses.push(100.0 * (1.0 - baseline_ns / round_trip_ns));
            figures.cpu_percents.push(seen.cpu_percent);
            figures.programs = seen.programs;
        }
    }
    println!(
        "{:<24} {:>10} {:>7} {:>16} {:>6} {:>9} {:>13}",
        "", "ns/switch", "loss", "of all turns", "goal", "programs", "profiler's CPU"
    );
    for ((name, _, goal), figures) in cases.into_iter().zip(figures) {
        let least = figures.losses.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = figures.losses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let switch_ns = bench::median(figures.round_trips_ns) / 2.0;
        let loss = bench::median(figures.losses);
        let goal = goal.map_or_else(String::new, |goal| format!("{goal:.0}%"));
        println!(
            "{name:<24} {switch_ns:>10.0} {loss:>6.1}% {least:>6.1}% to {largest:>4.1}% {goal:>6} {:>9} {:>12.1}%",
            figures.programs,
            bench::median(figures.cpu_percents)
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    if bench::is_to_start_only() {
        return Ok(());
    }
    if !requirement::ebpf("benchmarks").context("benchmarks need eBPF")? {
        return Ok(());
    }
    let are_pods_possible = sidewinder_e2e_pod::are_possible("off-CPU time of another pod")?;
    let image = are_pods_possible.then(Image::new).transpose()?;
    for (name, profiler, _) in FASTEST {
        if let Profiler::Peer(peer) = profiler
            && let Some(reason) = peer.absence()
        {
            println!("SKIPPED: {name}: {reason}");
        }
    }
    println!("as fast as they can");
    compare(PingPong { work: 0 }, &FASTEST, image.as_ref())?;
    println!("with work between, about {SWITCHES_PER_SECOND} switches a second");
    compare(PingPong::with_rate(SWITCHES_PER_SECOND)?, &PACED, image.as_ref())
}
