//! What off-CPU and wall time cost two processes that do nothing but wake each other: round trips a second without a profiler, and
//! beside `record` of another process, and of themselves.
//!
//! They take turns, and each figure is the median. The scope is a process, for which the events are those of all tasks: the worst
//! case for others. In the scope of a pod they are the pod's own events, and others run no program at all.
#![forbid(unsafe_code)]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{PINGPONG, report_in};
use sidewinder_e2e_support::{bench, observe, requirement};

const TURNS: usize = 5;
const SECONDS: u32 = 2;

/// Whom `record` profiles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Others,
    Themselves,
}

/// A name, the option of `record`, and whom it profiles; the first is without a profiler.
const CASES: [(&str, Option<(&str, Target)>); 7] = [
    ("no profiler", None),
    ("CPU time, of others", Some(("-F97", Target::Others))),
    ("--off-cpu, of others", Some(("--off-cpu", Target::Others))),
    ("CPU time", Some(("-F97", Target::Themselves))),
    ("--off-cpu", Some(("--off-cpu", Target::Themselves))),
    ("--off-cpu=1", Some(("--off-cpu=1", Target::Themselves))),
    ("--wall", Some(("--wall", Target::Themselves))),
];

/// The most programs that a process has loaded at a time, until it has ended.
fn most_programs(pid: u32, has_ended: &AtomicBool) -> usize {
    let mut most = 0;
    while !has_ended.load(Ordering::Relaxed) {
        most = most.max(observe::program_count(pid));
        thread::sleep(Duration::from_millis(100));
    }
    most
}

/// Round trips a second, each of which is two switches, and the number of programs that the profiler has loaded.
fn measure(case: Option<(&str, Target)>) -> Result<(f64, usize)> {
    let folder = tempfile::tempdir()?;
    let mut sleep = Command::new("sleep");
    sleep.arg("60");
    let (other, program) = (Load::start(sleep)?, PINGPONG.command(&[SECONDS])?);
    let recorder = |option: &str| -> Result<Command> {
        let mut command = sidewinder::command()?;
        command.args(["record", "-q", option, "-o"]).arg(folder.path().join("out.otlp"));
        Ok(command)
    };
    let run = || Command::new(program.get_program()).args(program.get_args()).output();
    let (printed, programs) = match case {
        None => (String::from_utf8(run()?.stdout)?, 0),
        Some((option, Target::Others)) => {
            let mut command = recorder(option)?;
            command.arg("-p").arg(other.pid().to_string());
            let running = Running::start(command)?;
            // It has attached its programs by then.
            thread::sleep(Duration::from_secs(2));
            let programs = observe::program_count(running.pid());
            let printed = String::from_utf8(run()?.stdout)?;
            running.stop()?;
            (printed, programs)
        }
        Some((option, Target::Themselves)) => {
            let mut command = recorder(option)?;
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
            (ended.log, programs)
        }
    };
    Ok((report_in(&printed)?.rounds as f64 / f64::from(SECONDS), programs))
}

fn main() -> Result<()> {
    if bench::is_to_start_only() {
        return Ok(());
    }
    if !requirement::ebpf("benchmarks").context("benchmarks need eBPF")? {
        return Ok(());
    }
    let mut figures = CASES.map(|(name, case)| (name, case, Vec::new(), 0));
    for _ in 0..TURNS {
        for (_, case, figures, loaded) in &mut figures {
            let (rate, programs) = measure(*case)?;
            figures.push(rate);
            *loaded = programs;
        }
    }
    let figures = figures.map(|(name, _, figures, programs)| (name, bench::median(figures), programs));
    let without = figures.first().map_or(f64::NAN, |(_, rate, _)| *rate);
    println!("{:<22} {:>12} {:>10} {:>7} {:>9}", "", "switches/s", "ns/switch", "loss", "programs");
    for (name, rate, programs) in figures {
        let (switches, loss) = (2.0 * rate, 100.0 * (1.0 - rate / without));
        println!("{name:<22} {switches:>12.0} {:>10.0} {loss:>6.1}% {programs:>9}", 1e9 / switches);
    }
    Ok(())
}
