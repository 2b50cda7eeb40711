//! A node with many large binaries under the default memory limit: how complete its stacks are, and what that costs.
//!
//! 40 copies of Node.js, each with a build ID of its own, run jobs with pauses; all their unwind tables take more than the memory limit. Beside the profiler, `perf record` by frame pointers; it only copies, and neither unwinds by tables nor
//! names anything. CPU times are the kernel's, of all threads, in per cent of one CPU. The first minute includes reading
//! the files and waiting for functions to be met; the second is what a long-running service costs.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::observe::{self, Cost};
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::sidewinder::Running;
use sidewinder_e2e_support::{bench, collector, paths, programs, requirement};

const PROGRAMS: u8 = 40;
const MEMORY_LIMIT_MIB: u32 = 48;
/// The receiver's default.
const SAMPLES_PER_SECOND: u32 = 20;
/// Between jobs, so that all programs together leave some of the CPUs idle.
const PAUSE_MS: &str = "800";
const MINUTES: u32 = 2;
const MINUTE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    const NAME: &str = "large_files";
    if bench::is_to_start_only() || !requirement::ebpf(NAME)? || !requirement::program(NAME, "node")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let script = paths::e2e().join("workloads/jobs.js");
    let start = |program: &String| {
        let mut command = Command::new(program);
        command.arg(&script).arg(PAUSE_MS);
        Load::start(command)
    };
    let programs = programs::copies_of_node(folder.path(), PROGRAMS)?;
    let _loads: Vec<Load> = programs.iter().map(start).collect::<Result<_>>()?;

    println!("{PROGRAMS} copies of Node.js, {SAMPLES_PER_SECOND} Hz, memory limit {MEMORY_LIMIT_MIB} MiB");
    println!("{:<12} {:>6} {:>8} {:>8} {:>10} {:>8}", "", "minute", "CPU %", "RSS MiB", "complete", "cut");
    let [dead] = collector::free_ports()?;
    let settings = Settings {
        samples_per_second: SAMPLES_PER_SECOND,
        more: vec![format!("memory_limit_mib: {MEMORY_LIMIT_MIB}"), "monitor_interval: 1s".to_owned()],
        ..Settings::default()
    };
    let daemon = Daemon::start(&settings, &format!("127.0.0.1:{dead}"))?;
    let mut before = daemon.stacks()?;
    for number in 1..=MINUTES {
        let Cost { cpu_percent, resident_mib } = observe::cost_over(daemon.running().pid(), MINUTE)?;
        let stacks = daemon.stacks()?;
        let here = stacks.since(before);
        println!(
            "{:<12} {number:>6} {cpu_percent:>8.2} {resident_mib:>8.1} {:>9.2}% {:>8}",
            "sidewinder",
            100.0 * here.complete_share(),
            here.cut
        );
        before = stacks;
    }
    daemon.stop()?;

    let mut command = Command::new("perf");
    let rate = SAMPLES_PER_SECOND.to_string();
    command.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", &*rate, "-g", "-o"]);
    command.arg(folder.path().join("perf.data"));
    let perf = Running::start(command)?;
    for number in 1..=MINUTES {
        let Cost { cpu_percent, resident_mib } = observe::cost_over(perf.pid(), MINUTE)?;
        println!("{:<12} {number:>6} {cpu_percent:>8.2} {resident_mib:>8.1}", "perf record");
    }
    perf.stop()?;
    Ok(())
}
