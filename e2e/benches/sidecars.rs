//! What the sidecars of a node cost others on it: a program that only computes, one that switches, and one that forks.
//!
//! Each pod has an application that is idle for the most part, and a sidecar at 97 Hz. The loads are in no pod. What counts
//! is the ratio of what they get done with sidecars to what they get done alone, just before and just after. `sidewinder` in
//! mode `node` is what one profiler for the whole node costs instead.
//!
//! A shared machine's speed changes by more in a minute than is to be measured here. So of the program that computes it is
//! the CPU time that counts which it is left, and of the others what they do for each round that it does just before them.
//! On some machines not even these two can be compared. So `perf record` also tells how much of the forking program's CPU
//! time the kernel spends in code of perf events and eBPF; what perf itself adds to that is the same beside all.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::{Duration, Instant};
use std::{array, fmt, thread};

use anyhow::{Result, ensure};
use sidewinder_e2e_pod::{
    Container, ContainerSpec, Image, Mount, Pod, PodSpec, SecurityContext, Sidecar, SidecarSpec,
};
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::{self, Gated, Program, Report};
use sidewinder_e2e_support::{bench, observe};

const SIDECARS: usize = 50;
const SAMPLES_PER_SECOND: u32 = 97;
const USER: u32 = 10_001;
const TURN_SECONDS: &str = "0.25";
const TURN: Duration = Duration::from_millis(250);
const TURNS: usize = 40;
const CYCLES: usize = 3;
/// Until a sidecar has found the names of what its idle pod does, once, among them the kernel's.
const SETTLE: Duration = Duration::from_secs(60);
/// A profiler that hears of everything has found them sooner.
const SETTLE_OF_ONE: Duration = Duration::from_secs(10);
/// Nobody listens there.
const NOWHERE: &str = "127.0.0.1:9";

/// A program and its arguments.
type Load = (Program, &'static [&'static str]);

const COMPUTES: Load = (workload::TENANT, &["neighbour", TURN_SECONDS]);
const SWITCHES: Load = (workload::PINGPONG, &[TURN_SECONDS]);
const FORKS: Load = (workload::TENANT, &["neighbour", TURN_SECONDS, "0.1"]);

/// What is compared: of which load, of each.
const FIGURES: [&str; 3] = ["CPU time", "switches", "forks"];
type Figures = [f64; FIGURES.len()];

/// As [`FORKS`], for long enough to be sampled.
const FORKS_LONG: Load = (workload::TENANT, &["neighbour", "15", "0.1"]);
/// How functions begin that run because somebody listens.
const OF_EVENTS: [&str; 5] = ["perf_", "__perf_", "bpf_", "__bpf_", "ctx_"];

/// A pod with a sidecar.
struct Profiled {
    sidecar: Sidecar,
    _app: Container,
    _pod: Pod,
}

impl Profiled {
    fn start(image: &Image) -> Result<Self> {
        let pod = Pod::start(PodSpec::default())?;
        let program = workload::TENANT.compiled()?;
        let app = pod.run(&ContainerSpec {
            arguments: [&program.display().to_string(), "app", "3600", "idle"].map(str::to_owned).into(),
            environment: Vec::new(),
            mounts: vec![Mount::in_place(program)],
            security: SecurityContext::user(USER),
            cpu: None,
            memory_limit_bytes: None,
        })?;
        let configuration = format!(
            "receivers: {{ profiling: {{ samples_per_second: {SAMPLES_PER_SECOND}, scope: {{ mode: pod }} }} }}
exporters: {{ otlp_grpc: {{ endpoint: '{NOWHERE}', tls: {{ insecure: true }} }} }}
service: {{ pipelines: {{ profiles: {{ receivers: [profiling], exporters: [otlp_grpc] }} }} }}
"
        );
        let capabilities = vec!["CAP_BPF", "CAP_PERFMON"];
        let security = SecurityContext { capabilities, ..SecurityContext::user(USER) };
        let spec = SidecarSpec { configuration, security, memory_limit_bytes: None, collector: None };
        let mut sidecar = Sidecar::start(&pod, image, &spec)?;
        sidecar.wait_until_profiling()?;
        Ok(Self { sidecar, _app: app, _pod: pod })
    }

    fn cpu_ns(&self) -> Result<u64> {
        observe::cpu_ns(self.sidecar.container().pid())
    }

    fn private_bytes(&self) -> Result<u64> {
        observe::private_bytes(self.sidecar.container().pid())
    }
}

/// What was measured at one time.
struct Measured {
    figures: Figures,
    /// The share of the forking program's samples that are [`OF_EVENTS`].
    in_events: f64,
}

/// Runs a load on one CPU: that of a child that starts elsewhere has to wake up first, which takes its own time.
fn run((program, arguments): Load, mut by: Command) -> Result<Report> {
    by.args(["taskset", "-c", "0"]).arg(program.compiled()?).args(arguments);
    let mut load = Gated::start(by)?;
    load.open()?;
    load.finish()
}

/// The median of each figure over many turns.
fn measure() -> Result<Measured> {
    let mut turns: [Vec<f64>; FIGURES.len()] = array::from_fn(|_| Vec::new());
    let alone = || Command::new("env");
    for _ in 0..TURNS {
        let (computed, switched, forked) =
            (run(COMPUTES, alone())?, run(SWITCHES, alone())?, run(FORKS, alone())?);
        let for_each_round = |rounds: u64| rounds as f64 / computed.rounds as f64;
        turns[0].push(computed.cpu_ns as f64 / TURN.as_nanos() as f64);
        turns[1].push(for_each_round(switched.rounds));
        turns[2].push(for_each_round(forked.rounds));
    }
    let figures = turns.map(|mut of_figure| {
        of_figure.sort_unstable_by(f64::total_cmp);
        of_figure[TURNS / 2]
    });
    Ok(Measured { figures, in_events: share_in_events()? })
}

fn share_in_events() -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("perf.data");
    let mut perf = Command::new("perf");
    // Of the CPU, not of the program: each forked task has a clock of its own.
    perf.args(["record", "-q", "-a", "-C", "0", "-e", "cpu-clock", "-F", "1997", "-o"]).arg(&data).arg("--");
    run(FORKS_LONG, perf)?;
    let mut script = Command::new("perf");
    script.args(["script", "--comms", "tenant", "-F", "ip,sym", "-i"]).arg(&data);
    let script = script.output()?;
    let functions = String::from_utf8(script.stdout)?;
    let functions = functions.lines().filter_map(|line| line.split_ascii_whitespace().nth(1));
    let (all, of_events) = functions.fold((0_u32, 0_u32), |(all, of_events), function| {
        let is_of_events = OF_EVENTS.iter().any(|prefix| function.starts_with(prefix));
        (all + 1, of_events + u32::from(is_of_events))
    });
    ensure!(all > 10_000, "perf has {all} samples: {}", String::from_utf8_lossy(&script.stderr));
    Ok(f64::from(of_events) / f64::from(all))
}

/// What is on the node beside the loads.
#[derive(Clone, Copy)]
enum Beside {
    NodeProfiler,
    Sidecars(usize),
}

impl Beside {
    /// The figures beside it, with what the sidecars cost as a remark.
    fn measure(self, image: &Image) -> Result<(Measured, String)> {
        match self {
            Self::NodeProfiler => {
                let node = Settings { samples_per_second: SAMPLES_PER_SECOND, ..Settings::default() };
                let node = Daemon::start(&node, NOWHERE)?;
                thread::sleep(SETTLE_OF_ONE);
                let measured = measure()?;
                node.stop()?;
                Ok((measured, String::new()))
            }
            Self::Sidecars(count) => {
                let pods = (0..count).map(|_| Profiled::start(image)).collect::<Result<Vec<_>>>()?;
                thread::sleep(SETTLE);
                let cpu_ns = || pods.iter().map(Profiled::cpu_ns).sum::<Result<u64>>();
                let (before_ns, started) = (cpu_ns()?, Instant::now());
                let measured = measure()?;
                let spent_ns = (cpu_ns()? - before_ns) as f64 / started.elapsed().as_nanos() as f64;
                let private = pods.iter().map(Profiled::private_bytes).sum::<Result<u64>>()?;
                let remark = format!(
                    "each {:.3}% of a CPU, {:.1} MiB of its own",
                    100.0 * spent_ns / count as f64,
                    private as f64 / count as f64 / f64::from(1 << 20),
                );
                Ok((measured, remark))
            }
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeProfiler => f.write_str("one profiler of the node"),
            Self::Sidecars(1) => f.write_str("1 sidecar"),
            Self::Sidecars(count) => write!(f, "{count} sidecars"),
        }
    }
}

fn print(what: &str, ratios: Figures, in_events: f64, remark: &str) {
    let ratios = ratios.map(|ratio| format!("{ratio:>10.4}")).join(" ");
    println!("{what:<28} {ratios} {:>9.2}% {remark}", 100.0 * in_events);
}

fn main() -> Result<()> {
    if bench::is_to_start_only() || !sidewinder_e2e_pod::are_possible("sidecars")? {
        return Ok(());
    }
    let image = Image::new()?;
    println!(
        "{:<28} {} {:>10}",
        "alone is 1",
        FIGURES.map(|name| format!("{name:>10}")).join(" "),
        "in events"
    );
    measure()?; // The machine has woken up after it.
    for cycle in 1..=CYCLES {
        println!("cycle {cycle} of {CYCLES}");
        let mut before = measure()?;
        for beside in [Beside::NodeProfiler, Beside::Sidecars(1), Beside::Sidecars(SIDECARS)] {
            let (measured, remark) = beside.measure(&image)?;
            let after = measure()?;
            let (was, is) = (before.figures, after.figures);
            let alone: Figures = array::from_fn(|figure| (was[figure] + is[figure]) / 2.0);
            let ratios = array::from_fn(|figure| measured.figures[figure] / alone[figure]);
            print(&beside.to_string(), ratios, measured.in_events, &remark);
            // How far the machine itself went meanwhile: no ratio above is better than this.
            let ratios = array::from_fn(|figure| is[figure] / was[figure]);
            print("  alone, before and after", ratios, after.in_events, "");
            before = after;
        }
    }
    Ok(())
}
