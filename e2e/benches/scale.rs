//! What the number of processes, of execs and of mappings costs the profiler, beside `perf record`.
//!
//! The receiver's CPU time is to grow with change, not with the number of processes. Each profiler starts the load and
//! samples all of it at 97 Hz by frame pointers or tables as it can; CPU times are the kernel's, of all of its threads,
//! without eBPF programs, in per cent of one CPU. `perf record` only copies what it is told, and unwinds nothing.
#![forbid(unsafe_code)]

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e::observe;
use sidewinder_e2e::sidewinder::Running;
use sidewinder_e2e::{paths, requirement, workload};

/// Until the load stands.
const WARM_UP: Duration = Duration::from_secs(8);
const MEASURED: Duration = Duration::from_secs(10);
/// Over soon after: beside thousands of busy processes a profiler has hardly a share of a CPU left to end with.
const LOAD_SECONDS: &str = "20";

/// Modes of `crowd`, and how much.
const LOADS: [(&str, u32); 9] = [
    ("busy", 1),
    ("busy", 10),
    ("busy", 100),
    ("busy", 2_000),
    ("idle", 100),
    ("idle", 2_000),
    ("execs", 100),
    ("execs", 1_450),
    ("mappings", 20_000),
];

fn measure(mut profiler: Command, (mode, count): (&str, u32)) -> Result<(f64, f64)> {
    profiler.arg("--").arg(workload::CROWD.compiled()?).args([mode, &count.to_string(), LOAD_SECONDS]);
    let running = Running::start(profiler)?;
    thread::sleep(WARM_UP);
    let before_ns = observe::cpu_ns(running.pid())?;
    thread::sleep(MEASURED);
    let cpu_ns = observe::cpu_ns(running.pid())? - before_ns;
    let resident_mib = observe::resident_bytes(running.pid())? as f64 / f64::from(1 << 20);
    running.stop()?;
    Ok((100.0 * cpu_ns as f64 / MEASURED.as_nanos() as f64, resident_mib))
}

fn main() -> Result<()> {
    // `cargo test --benches` only asks whether it starts.
    if std::env::args().any(|argument| argument == "--test") || !requirement::ebpf("scale")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let sidewinder = || -> Result<Command> {
        let mut command = Command::new(paths::sidewinder()?);
        command.args(["record", "-q", "-F", "97", "-o"]).arg(folder.path().join("out.otlp"));
        Ok(command)
    };
    let perf = || -> Result<Command> {
        let mut command = Command::new("perf");
        command
            .args(["record", "-q", "-e", "cpu-clock", "-F", "97", "-g", "-o"])
            .arg(folder.path().join("perf.data"));
        Ok(command)
    };
    println!("{:<16} {:>10} {:>10} {:>12} {:>12}", "97 Hz", "sidewinder", "", "perf record", "");
    println!("{:<16} {:>10} {:>10} {:>12} {:>12}", "", "CPU %", "RSS MiB", "CPU %", "RSS MiB");
    for load @ (mode, count) in LOADS {
        let (cpu, resident) = measure(sidewinder()?, load)?;
        print!("{:<16} {cpu:>10.3} {resident:>10.1}", format!("{count} {mode}"));
        match measure(perf()?, load) {
            Ok((cpu, resident)) => println!(" {cpu:>12.3} {resident:>12.1}"),
            Err(error) => println!(" {error:#}"),
        }
    }
    Ok(())
}
