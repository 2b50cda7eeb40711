//! What the sidecars of a node cost others on it: a program that only computes, one that switches, and one that forks.
//!
//! Each pod has an application that is idle for the most part, and a sidecar at 97 Hz. The loads are in no pod. What counts
//! is the ratio of what they do with sidecars to what they do alone, just before and just after. `sidewinder` in mode `node`
//! is what one profiler for the whole node costs instead.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};
use std::{array, fmt, thread};

use anyhow::Result;
use sidewinder_e2e::pod::{
    Container, ContainerSpec, Image, Mount, Pod, PodSpec, SecurityContext, Sidecar, SidecarSpec,
};
use sidewinder_e2e::session::{Daemon, Settings};
use sidewinder_e2e::workload::{self, Gated, Program};
use sidewinder_e2e::{observe, requirement};

const SIDECARS: usize = 50;
const SAMPLES_PER_SECOND: u32 = 97;
const USER: u32 = 10_001;
const MEASURED_SECONDS: &str = "2";
const TURNS: usize = 4;
const CYCLES: usize = 3;
/// Until the last sidecar that has started is as busy as it stays.
const SETTLE: Duration = Duration::from_secs(10);
/// Nobody listens there.
const NOWHERE: &str = "127.0.0.1:9";

/// Name, program and arguments.
type Load = (&'static str, Program, &'static [&'static str]);

const LOADS: [Load; 3] = [
    ("computes", workload::TENANT, &["neighbour", MEASURED_SECONDS]),
    ("switches", workload::PINGPONG, &[MEASURED_SECONDS]),
    ("forks", workload::TENANT, &["neighbour", MEASURED_SECONDS, "0.1"]),
];

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

    fn resident_bytes(&self) -> Result<u64> {
        observe::resident_bytes(self.sidecar.container().pid())
    }
}

/// Rounds of a load's work.
fn rounds((_, program, arguments): Load) -> Result<u64> {
    let mut load = Gated::start(program.command(arguments)?)?;
    load.open()?;
    Ok(load.finish()?.rounds)
}

/// What each load does, in several turns that take turns: the mean of all but the best and the worst.
fn measure() -> Result<[f64; LOADS.len()]> {
    let mut turns = [const { Vec::new() }; LOADS.len()];
    for _ in 0..TURNS {
        for (load, of_load) in LOADS.into_iter().zip(&mut turns) {
            of_load.push(rounds(load)?);
        }
    }
    Ok(turns.map(|mut all| {
        all.sort_unstable();
        all.iter().skip(1).take(TURNS - 2).sum::<u64>() as f64 / (TURNS - 2) as f64
    }))
}

/// What is on the node beside the loads.
#[derive(Clone, Copy)]
enum Beside {
    NodeProfiler,
    Sidecars(usize),
}

impl Beside {
    /// What each load does beside it, with what the sidecars cost as a remark.
    fn measure(self, image: &Image) -> Result<([f64; LOADS.len()], String)> {
        match self {
            Self::NodeProfiler => {
                let node = Settings { samples_per_second: SAMPLES_PER_SECOND, ..Settings::default() };
                let node = Daemon::start(&node, NOWHERE)?;
                thread::sleep(SETTLE);
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
                let resident = pods.iter().map(Profiled::resident_bytes).sum::<Result<u64>>()?;
                let remark = format!(
                    "each {:.3}% of a CPU, {:.1} MiB resident",
                    100.0 * spent_ns / count as f64,
                    resident as f64 / count as f64 / f64::from(1 << 20),
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

fn print(what: &str, ratios: [f64; LOADS.len()], remark: &str) {
    println!("{what:<28} {} {remark}", ratios.map(|ratio| format!("{ratio:>10.4}")).join(" "));
}

fn main() -> Result<()> {
    // `cargo test --benches` only asks whether it starts.
    if std::env::args().any(|argument| argument == "--test") || !requirement::pods("sidecars")? {
        return Ok(());
    }
    let image = Image::new()?;
    println!("{:<28} {}", "work done, alone is 1", LOADS.map(|(name, ..)| format!("{name:>10}")).join(" "));
    measure()?; // The machine has woken up after it.
    for cycle in 1..=CYCLES {
        println!("cycle {cycle} of {CYCLES}");
        let mut before = measure()?;
        for beside in [Beside::NodeProfiler, Beside::Sidecars(1), Beside::Sidecars(SIDECARS)] {
            let (measured, remark) = beside.measure(&image)?;
            let after = measure()?;
            let ratios = |of: [f64; LOADS.len()]| {
                array::from_fn(|load| of[load] / ((before[load] + after[load]) / 2.0))
            };
            print(&beside.to_string(), ratios(measured), &remark);
            // How far the machine itself went meanwhile: no ratio above is better than this.
            print("  alone, before and after", array::from_fn(|load| after[load] / before[load]), "");
            before = after;
        }
    }
    Ok(())
}
