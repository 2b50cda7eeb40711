//! What the sidecars of a node cost others on it: a program that only computes, one that switches, and one that forks.
//!
//! Each pod has an application that is idle for the most part, and a sidecar at 97 Hz. The loads are in no pod. Each runs
//! once without sidecars and once with them, in turns, in this one run: what counts is the ratio. `sidewinder` in mode
//! `node` is what one profiler for the whole node costs instead.
#![forbid(unsafe_code)]

use std::thread;
use std::time::Duration;

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
const MEASURED_SECONDS: &str = "5";
const TURNS: usize = 4;
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
}

/// Rounds of a load's work.
fn rounds((_, program, arguments): Load) -> Result<u64> {
    let mut load = Gated::start(program.command(arguments)?)?;
    load.open()?;
    Ok(load.finish()?.rounds)
}

/// The median of what a load does in several turns.
fn measure(load: Load) -> Result<f64> {
    let mut all = (0..TURNS).map(|_| rounds(load)).collect::<Result<Vec<_>>>()?;
    all.sort_unstable();
    Ok(all.iter().skip(1).take(TURNS - 2).sum::<u64>() as f64 / (TURNS - 2) as f64)
}

fn measure_all() -> Result<Vec<f64>> {
    LOADS.into_iter().map(measure).collect()
}

fn print(what: &str, measured: &[f64], alone: &[f64]) {
    let ratios: Vec<String> =
        measured.iter().zip(alone).map(|(rounds, alone)| format!("{:>10.4}", rounds / alone)).collect();
    println!("{what:<28} {}", ratios.join(" "));
}

fn main() -> Result<()> {
    // `cargo test --benches` only asks whether it starts.
    if std::env::args().any(|argument| argument == "--test") || !requirement::pods("sidecars")? {
        return Ok(());
    }
    println!("{:<28} {}", "", LOADS.map(|(name, ..)| format!("{name:>10}")).join(" "));
    let alone = measure_all()?;
    println!(
        "{:<28} {}",
        "rounds alone",
        alone.iter().map(|rounds| format!("{rounds:>10.0}")).collect::<Vec<_>>().join(" ")
    );

    let node = Settings { samples_per_second: SAMPLES_PER_SECOND, ..Settings::default() };
    let node = Daemon::start(&node, NOWHERE)?;
    print("one profiler of the node", &measure_all()?, &alone);
    node.stop()?;

    let image = Image::new()?;
    let pods = (0..SIDECARS).map(|_| Profiled::start(&image)).collect::<Result<Vec<_>>>()?;
    thread::sleep(SETTLE);
    let cpu_ns =
        || -> Result<u64> { pods.iter().map(|pod| observe::cpu_ns(pod.sidecar.container().pid())).sum() };
    let before_ns = cpu_ns()?;
    let started = std::time::Instant::now();
    print(&format!("{SIDECARS} sidecars"), &measure_all()?, &alone);
    let spent_ns = cpu_ns()? - before_ns;
    let resident: u64 =
        pods.iter().map(|pod| observe::resident_bytes(pod.sidecar.container().pid())).sum::<Result<u64>>()?;
    println!(
        "each of them: {:.3}% of a CPU, {:.1} MiB resident",
        100.0 * spent_ns as f64 / started.elapsed().as_nanos() as f64 / SIDECARS as f64,
        resident as f64 / SIDECARS as f64 / f64::from(1 << 20),
    );
    drop(pods);
    // What has changed meanwhile is not theirs.
    print("alone again", &measure_all()?, &alone);
    Ok(())
}
