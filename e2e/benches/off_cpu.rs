//! What off-CPU and wall time cost two processes that wake each other: without a profiler, beside the profiler of another process,
//! beside the sidecar of another pod, and profiled themselves, by `record` and by the sidecar of their pod; as fast as they can,
//! and with so much work between that they switch 100,000 times a second.
//!
//! A machine's speed changes by more in a minute than is to be measured here: so all take turns, each loss is that against the
//! figure without a profiler of the same turn, and the median of the turns counts. A second figure without a profiler tells how
//! much of a loss is noise. The scope of `record` is a process, for which the events are those of all tasks: the worst case for
//! others. In the scope of a pod they are the pod's own events, and others run no program at all, but the kernel looks at each
//! switch whether the next cgroup is another one. The cgroups of a pod cost them something, too: the loss beside the sidecar of
//! their pod is that against the figure in a pod without a sidecar.
//!
//! Beside it runs what bpftrace's `offcputime` and OpenTelemetry's profiler take, where this kernel has what they need.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_pod::application::{APP_USER, AS_THE_SAME_USER, NOWHERE, app, configuration, security};
use sidewinder_e2e_pod::{Cgroup, Container, Image, Pod, PodSpec, Sidecar, SidecarSpec};
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{PINGPONG, TENANT, report_in};
use sidewinder_e2e_support::{bench, observe, requirement};

const TURNS: usize = 9;
const SECONDS: u32 = 2;
/// Until a profiler has attached its programs.
const SETTLE: Duration = Duration::from_secs(3);
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
    /// `record` with an option.
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

/// The first is without a profiler, as is that in a pod.
const FASTEST: [Case; 15] = [
    ("no profiler", Profiler::Nobody, None),
    ("no profiler, again", Profiler::Nobody, None),
    ("CPU time, of others", Profiler::OfOthers("-F97"), None),
    ("--off-cpu, of others", Profiler::OfOthers("--off-cpu"), None),
    ("events of another cgroup", Profiler::EventsOfAnotherCgroup, None),
    ("sidecar of another pod", Profiler::OfAnotherPod, Some(1.0)),
    ("CPU time", Profiler::OfThemselves("-F97"), None),
    ("--off-cpu", Profiler::OfThemselves("--off-cpu"), None),
    ("--off-cpu=1", Profiler::OfThemselves("--off-cpu=1"), None),
    ("--wall", Profiler::OfThemselves("--wall"), None),
    ("no profiler, in a pod", Profiler::NobodyInPod, None),
    ("sidecar of their pod", Profiler::OfTheirPod, None),
    ("bpftrace offcputime", Profiler::Peer(Peer::OffCpuTime), None),
    ("bpftrace, stacks alone", Profiler::Peer(Peer::SwitchStacks), None),
    ("OpenTelemetry's", Profiler::Peer(Peer::OpenTelemetry), None),
];
const PACED: [Case; 10] = [
    ("no profiler", Profiler::Nobody, None),
    ("no profiler, again", Profiler::Nobody, None),
    ("events of another cgroup", Profiler::EventsOfAnotherCgroup, None),
    ("sidecar of another pod", Profiler::OfAnotherPod, Some(1.0)),
    ("CPU time", Profiler::OfThemselves("-F97"), None),
    ("--off-cpu", Profiler::OfThemselves("--off-cpu"), Some(3.0)),
    ("--off-cpu=1", Profiler::OfThemselves("--off-cpu=1"), None),
    ("no profiler, in a pod", Profiler::NobodyInPod, None),
    ("sidecar of their pod", Profiler::OfTheirPod, None),
    ("bpftrace, stacks alone", Profiler::Peer(Peer::SwitchStacks), None),
];

impl Profiler {
    /// Whose figure of the same turn its loss is against.
    fn baseline(self) -> Self {
        match self {
            Self::OfTheirPod => Self::NobodyInPod,
            _ => Self::Nobody,
        }
    }
}

impl Peer {
    fn command(self) -> Command {
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
                command.args(["-collection-agent", NOWHERE, "-disable-tls", "-off-cpu-threshold", "0.01"]);
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
        let command = self.command();
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

    /// The number of round trips a second in a pod.
    fn rate_in_pod(self, pod: &Pod) -> Result<f64> {
        let arguments = [SECONDS.to_string(), self.work.to_string()];
        let mut container = pod.run(&app(PINGPONG, &[&arguments[0], &arguments[1]], None)?)?;
        let status = container.wait(Duration::from_secs(60))?;
        ensure!(status.success(), "{status}: {}", container.log());
        rate_in(&container.log())
    }

    /// The number of round trips a second, each of which is two switches.
    fn rate(self) -> Result<f64> {
        rate_in(&String::from_utf8(self.command()?.output()?.stdout)?)
    }

    /// One that switches so often.
    fn with_rate(switches_per_second: f64) -> Result<Self> {
        let turn_s = |work| Ok::<f64, anyhow::Error>(0.5 / Self { work }.rate()?);
        let (switch_s, long_s) = (turn_s(0)?, turn_s(ROUNDS_TO_CALIBRATE)?);
        let round_s = (long_s - switch_s) / ROUNDS_TO_CALIBRATE as f64;
        let work = (1.0 / switches_per_second - switch_s) / round_s;
        ensure!(work > 0.0, "this machine can't switch {switches_per_second} times a second");
        Ok(Self { work: work as u64 })
    }
}

fn rate_in(printed: &str) -> Result<f64> {
    Ok(report_in(printed)?.rounds as f64 / f64::from(SECONDS))
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

    fn program_count(&self) -> usize {
        observe::program_count(self.sidecar.container().pid())
    }
}

/// The most programs that a process has loaded at a time, until it has ended.
fn most_programs(pid: u32, has_ended: &AtomicBool) -> usize {
    let mut most = 0;
    while !has_ended.load(Ordering::Relaxed) {
        most = most.max(observe::program_count(pid));
        thread::sleep(Duration::from_millis(100));
    }
    most
}

/// Round trips a second, and the number of programs that the profiler has loaded.
fn measure(load: PingPong, profiler: Profiler, image: Option<&Image>) -> Result<(f64, usize)> {
    let folder = tempfile::tempdir()?;
    let recorder = |option: &str| -> Result<Command> {
        let mut command = sidewinder::command()?;
        command.args(["record", "-q", option, "-o"]).arg(folder.path().join("out.otlp"));
        Ok(command)
    };
    match profiler {
        Profiler::Nobody => Ok((load.rate()?, 0)),
        Profiler::NobodyInPod => Ok((load.rate_in_pod(&IdlePod::start()?.pod)?, 0)),
        Profiler::OfOthers(option) => {
            let mut sleep = Command::new("sleep");
            sleep.arg("60");
            let other = Load::start(sleep)?;
            let mut command = recorder(option)?;
            command.arg("-p").arg(other.pid().to_string());
            let running = Running::start(command)?;
            thread::sleep(SETTLE);
            let measured = (load.rate()?, observe::program_count(running.pid()));
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
            let _running = Load::start(command)?;
            thread::sleep(SETTLE);
            Ok((load.rate()?, 0))
        }
        Profiler::OfAnotherPod => {
            let pod = ProfiledPod::start(image.context("no image of a sidecar")?)?;
            Ok((load.rate()?, pod.program_count()))
        }
        Profiler::OfTheirPod => {
            let pod = ProfiledPod::start(image.context("no image of a sidecar")?)?;
            Ok((load.rate_in_pod(&pod.idle.pod)?, pod.program_count()))
        }
        Profiler::OfThemselves(option) => {
            let (mut command, program) = (recorder(option)?, load.command()?);
            command.arg("--").arg(program.get_program()).args(program.get_args());
            let mut running = Running::start(command)?;
            let (pid, has_ended) = (running.pid(), AtomicBool::new(false));
            let (ended, programs) = thread::scope(|threads| {
                let programs = threads.spawn(|| most_programs(pid, &has_ended));
                let ended = running.wait(Duration::from_secs(60));
                has_ended.store(true, Ordering::Relaxed);
                (ended, programs.join())
            });
            let (ended, programs) = (ended?, programs.ok().context("counting programs has panicked")?);
            ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
            Ok((rate_in(&ended.log)?, programs))
        }
        Profiler::Peer(peer) => beside_peer(load, peer),
    }
}

fn beside_peer(load: PingPong, peer: Peer) -> Result<(f64, usize)> {
    // At its end it would name all functions, which takes minutes: so it is killed.
    let running = Load::start(peer.command())?;
    thread::sleep(SETTLE);
    let measured = (load.rate()?, observe::program_count(running.pid()));
    ensure!(measured.1 > 0, "it has no program: run {:?}", peer.command());
    Ok(measured)
}

/// Measures all that can be measured here, and prints a table.
fn compare(load: PingPong, cases: &[Case], image: Option<&Image>) -> Result<()> {
    let is_possible = |profiler: Profiler| match profiler {
        Profiler::NobodyInPod | Profiler::OfAnotherPod | Profiler::OfTheirPod => image.is_some(),
        Profiler::EventsOfAnotherCgroup => image.is_some() && requirement::is_installed("perf"),
        Profiler::Peer(peer) => peer.absence().is_none(),
        _ => true,
    };
    let cases: Vec<&Case> = cases.iter().filter(|(_, profiler, _)| is_possible(*profiler)).collect();
    let mut figures = vec![(Vec::new(), Vec::new(), 0); cases.len()];
    for turn in 1..=TURNS {
        eprintln!("turn {turn} of {TURNS}");
        let mut rates_of_turn = Vec::new();
        for ((name, profiler, _), (rates, losses, loaded)) in cases.iter().zip(&mut figures) {
            let (rate, programs) =
                measure(load, *profiler, image).with_context(|| format!("measuring {name}"))?;
            rates_of_turn.push((*profiler, rate));
            let baseline = rates_of_turn.iter().find(|(of, _)| *of == profiler.baseline());
            let (_, baseline) = baseline.context("no figure to compare with")?;
            losses.push(100.0 * (1.0 - rate / baseline));
            rates.push(rate);
            *loaded = programs;
        }
    }
    println!(
        "{:<24} {:>12} {:>10} {:>7} {:>6} {:>9}",
        "", "switches/s", "ns/switch", "loss", "goal", "programs"
    );
    for ((name, _, goal), (rates, losses, programs)) in cases.into_iter().zip(figures) {
        let (switches, loss) = (2.0 * bench::median(rates), bench::median(losses));
        let goal = goal.map_or_else(String::new, |goal| format!("{goal:.0}%"));
        println!("{name:<24} {switches:>12.0} {:>10.0} {loss:>6.1}% {goal:>6} {programs:>9}", 1e9 / switches);
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
