//! What it costs a program that does nothing but touch new memory if its page faults are sampled: CPU time for each fault without
//! a profiler, with CPU time sampled, and with faults sampled at several periods.
//!
//! They take turns, and each figure is the median. The events are those of all tasks: those of a pod alone cost the same for each
//! fault of the pod, and nothing for others.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::FAULTS;
use sidewinder_e2e_support::{bench, requirement};

/// The events of `record -e`; none: without a profiler.
const EVENTS: [Option<&str>; 5] =
    [None, Some("cpu-clock"), Some("page-faults:1024"), Some("page-faults:64"), Some("page-faults:1")];
const TURNS: usize = 7;
/// Rounds, pages and pause of the workload: four faults a round and page.
const ARGUMENTS: [u32; 3] = [60, 1_000, 0];
const TIMEOUT: Duration = Duration::from_secs(60);

/// Nanoseconds of CPU time for each fault.
fn ns_per_fault(events: Option<&str>) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let program = FAULTS.command(&ARGUMENTS)?;
    let printed = match events {
        None => {
            String::from_utf8(Command::new(program.get_program()).args(program.get_args()).output()?.stdout)?
        }
        Some(events) => {
            let mut recorder = sidewinder::command()?;
            recorder.args(["record", "-q", "-e", events, "-o"]).arg(folder.path().join("out.folded"));
            recorder.arg("--").arg(program.get_program()).args(program.get_args());
            let ended = Running::start(recorder)?.wait(TIMEOUT)?;
            ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
            ended.log
        }
    };
    let line = |name: &str| {
        printed.lines().find_map(|line| line.strip_prefix(name)).with_context(|| printed.clone())
    };
    let faults = |name: &str| -> Result<f64> {
        let (minor, _) = line(name)?.trim().split_once(' ').context("no faults")?;
        Ok(minor.parse()?)
    };
    let cpu_ns: f64 = line("cpu_ns ")?.parse()?;
    Ok(cpu_ns / (faults("grow_small ")? + faults("grow_large ")?))
}

fn main() -> Result<()> {
    if bench::is_to_start_only() {
        return Ok(());
    }
    if !requirement::ebpf("benchmarks").context("benchmarks need eBPF")? {
        return Ok(());
    }
    let mut figures = EVENTS.map(|events| (events, Vec::new()));
    for _ in 0..TURNS {
        for (events, figures) in &mut figures {
            figures.push(ns_per_fault(*events)?);
        }
    }
    let figures = figures.map(|(events, figures)| (events.unwrap_or("none"), bench::median(figures)));
    let without = figures.iter().find(|(events, _)| *events == "none").map_or(f64::NAN, |(_, ns)| *ns);
    println!("{:<18} {:>9} {:>7}", "events", "ns/fault", "ratio");
    for (events, ns) in figures {
        println!("{events:<18} {ns:>9.0} {:>7.3}", ns / without);
    }
    Ok(())
}
