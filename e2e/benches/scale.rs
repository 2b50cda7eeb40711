//! What the number of processes, of execs and of mappings costs the profiler, beside `perf record`.
//!
//! The receiver's CPU time is to grow with change, not with the number of processes. Both sample the whole node at 97 Hz:
//! the service as it is without a key of its own, its reports going nowhere, and `perf record` by frame pointers. CPU
//! times are the kernel's, of all threads, without eBPF programs, in per cent of one CPU. `perf record` only copies what
//! it is told: it unwinds and names nothing.
#![forbid(unsafe_code)]

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::observe::{self, Cost};
use sidewinder_e2e_support::session::Daemon;
use sidewinder_e2e_support::sidewinder::Running;
use sidewinder_e2e_support::{bench, requirement, workload};

/// Until what is read once has been read: symbols of the kernel, names and lines of what programs begin with.
const PRIMED: (&str, u32, &str) = ("execs", 100, "8");
/// Until the load stands.
const WARM_UP: Duration = Duration::from_secs(8);
const MEASURED: Duration = Duration::from_secs(10);
/// Longer than it is looked at.
const LOAD_SECONDS: &str = "120";
/// Nobody listens there.
const CONFIGURATION: &str = "
receivers: { profiling: { samples_per_second: 97, scope: { mode: node } } }
exporters: { otlp_grpc: { endpoint: '127.0.0.1:9', tls: { insecure: true } } }
service: { pipelines: { profiles: { receivers: [profiling], exporters: [otlp_grpc] } } }
";

/// Modes of `crowd`, and how much.
const LOADS: [(&str, u32); 10] = [
    ("busy", 1),
    ("busy", 10),
    ("busy", 100),
    ("busy", 150),
    ("busy", 2_000),
    ("idle", 100),
    ("idle", 2_000),
    ("execs", 100),
    ("execs", 1_450),
    ("mappings", 20_000),
];

fn load((mode, count, seconds): (&str, u32, &str)) -> Result<Load> {
    let mut command = Command::new(workload::CROWD.compiled()?);
    command.args([mode, &count.to_string(), seconds]);
    Load::start(command)
}

/// CPU in per cent, and resident MiB, of a profiler beside a load.
fn measure(profiler: &Running, (mode, count): (&str, u32)) -> Result<Cost> {
    load(PRIMED)?.wait()?;
    let _load = load((mode, count, LOAD_SECONDS))?;
    thread::sleep(WARM_UP);
    observe::cost_over(profiler.pid(), MEASURED)
}

fn main() -> Result<()> {
    if bench::is_to_start_only() || !requirement::ebpf("scale")? {
        return Ok(());
    }
    let named = bench::named();
    let folder = tempfile::tempdir()?;
    let configuration = folder.path().join("sidewinder.yaml");
    std::fs::write(&configuration, CONFIGURATION)?;
    let perf = || {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "97", "-g", "-o"]);
        command.arg(folder.path().join("perf.data"));
        Running::start(command)
    };
    println!("{:<16} {:>10} {:>10} {:>12} {:>12}", "97 Hz", "sidewinder", "", "perf record", "");
    println!("{:<16} {:>10} {:>10} {:>12} {:>12}", "", "CPU %", "RSS MiB", "CPU %", "RSS MiB");
    for load @ (mode, count) in LOADS {
        let name = format!("{count} {mode}");
        if !named.is_empty() && !named.contains(&name) {
            continue;
        }
        let daemon = Daemon::start_from(&configuration)?;
        let Cost { cpu_percent, resident_mib } = measure(daemon.running(), load)?;
        daemon.stop()?;
        print!("{name:<16} {cpu_percent:>10.3} {resident_mib:>10.1}");
        let perf = perf()?;
        match measure(&perf, load) {
            Ok(Cost { cpu_percent, resident_mib }) => println!(" {cpu_percent:>12.3} {resident_mib:>12.1}"),
            Err(error) => println!(" {error:#}"),
        }
        perf.stop()?;
    }
    Ok(())
}
