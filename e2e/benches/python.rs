//! What Python frames cost: a sample of a program with 40 of them in one and in 12 activations of the interpreter's loop, with
//! and without that they are looked for, and beside both one of a program in C++. An activation has the loop's native frame,
//! and those of the functions in C that called it.
//!
//! Times are the kernel's (`kernel.bpf_stats_enabled`), of all eBPF programs of the profiler, per busy sample: rate times CPU
//! time of the load. Other programs on the machine only add to them, so of each run the cheapest window counts. The loads take
//! turns, and each figure is the median of theirs. Up to 3.10 each frame has an activation of its own.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_judge::python::Expected;
use sidewinder_e2e_support::observe::{self, BpfStats};
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{self, Gated};
use sidewinder_e2e_support::{bench, requirement};

/// The switch of `record` by which no interpreter is looked for.
const WITHOUT_INTERPRETERS: &str = "--no-interpreters";

const SAMPLES_PER_SECOND: u32 = 997;
const TURNS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(1_500);
const WINDOWS: usize = 10;
const WINDOW: Duration = Duration::from_millis(250);
/// Longer than it is measured: the load is ended from outside.
const SECONDS: &str = "60";
/// Calls from C in the Python program's stack: each is an activation more.
const CALLS_FROM_C: [&str; 2] = ["0", "11"];
/// Of the C++ program.
const RUNGS: &str = "30";

/// Nanoseconds of eBPF for each busy sample.
fn ns_per_sample(command: Command, options: &[&str]) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let _stats = BpfStats::enable()?;
    let mut load = Gated::start(command)?;
    let mut recorder = sidewinder::command()?;
    recorder.args(["record", "-F", &SAMPLES_PER_SECOND.to_string(), "-p", &load.pid().to_string(), "-o"]);
    recorder.arg(folder.path().join("out.otlp")).args(options);
    let recorder = Running::start_sampling(recorder)?;
    load.open()?;
    thread::sleep(WARM_UP);
    let look =
        || -> Result<_> { Ok((observe::program_runs(recorder.pid()).time_ns, observe::cpu_ns(load.pid())?)) };
    let (mut cheapest, mut samples_in_all) = (f64::INFINITY, 0.0);
    let mut before = look()?;
    for _ in 0..WINDOWS {
        thread::sleep(WINDOW);
        let after = look()?;
        let samples = f64::from(SAMPLES_PER_SECOND) * (after.1 - before.1) as f64 / 1e9;
        // Of a window in which the load hardly ran, most is the programs that ran for other reasons.
        if samples > 25.0 {
            cheapest = cheapest.min((after.0 - before.0) as f64 / samples);
        }
        samples_in_all += samples;
        before = after;
    }
    recorder.stop()?;
    ensure!(samples_in_all > 100.0 && cheapest.is_finite(), "the load ran for {samples_in_all} samples only");
    Ok(cheapest)
}

/// What the program says of its one chain: its frames, and the calls of them from C.
fn frames_and_calls_from_c(program: &PythonProgram, arguments: &[&str]) -> Result<(usize, usize)> {
    let chain = Expected::of_program(program, arguments)?.chains.pop().context("no chain")?;
    Ok((chain.frames.len(), chain.frames.iter().filter(|frame| frame.is_called_from_c).count()))
}

fn measure(name: &str, interpreter: &Path, calls_from_c: &str) -> Result<()> {
    let program = PythonProgram::new(interpreter, "activations.py");
    let shape = ["--calls-from-c", calls_from_c];
    let arguments = [SECONDS, shape[0], shape[1]];
    let (frames, calls_from_c) = frames_and_calls_from_c(&program, &shape)?;
    let (mut on, mut off, mut native) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        on.push(ns_per_sample(program.command(&arguments), &[])?);
        off.push(ns_per_sample(program.command(&arguments), &[WITHOUT_INTERPRETERS])?);
        native.push(ns_per_sample(workload::LADDER.command(&[SECONDS, RUNGS])?, &[])?);
    }
    let (on, off, native) = (bench::median(on), bench::median(off), bench::median(native));
    let per_frame = (on - off) / frames as f64;
    println!(
        "{name:<10} {frames:>6} {:>6} {on:>9.0} {off:>9.0} {per_frame:>9.1} {native:>9.0}",
        calls_from_c + 1
    );
    Ok(())
}

/// Takes the versions that are named on the command line, as `3.13`, or `system`; all that are here, where none is.
fn main() -> Result<()> {
    if bench::is_to_start_only() {
        return Ok(());
    }
    if !requirement::ebpf("benchmarks").context("benchmarks need eBPF")? {
        return Ok(());
    }
    let of_pyenv = (8..=14).filter_map(|minor| Some((format!("3.{minor}"), python::of_pyenv(minor)?)));
    let system = ("system".to_owned(), PathBuf::from(python::SYSTEM));
    let named = bench::named();
    println!(
        "{:<10} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "CPython", "Python", "acti-", "with", "without", "ns/Python", "C++"
    );
    println!(
        "{:<10} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "", "frames", "vations", "ns/sample", "ns/sample", "frame", "ns/sample"
    );
    for (name, interpreter) in of_pyenv.chain([system]) {
        if named.is_empty() || named.contains(&name) {
            for calls_from_c in CALLS_FROM_C {
                measure(&name, &interpreter, calls_from_c)?;
            }
        }
    }
    Ok(())
}
