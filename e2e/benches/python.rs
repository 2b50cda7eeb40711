//! What Python frames cost: a sample of a program with 40 of them in one and in 12 activations of the interpreter's loop, with
//! and without that they are looked for, and beside both one of a program in C++. An activation has the loop's native frame,
//! and those of the functions in C that called it.
//!
//! The loads take turns, and each figure is the median of theirs. Up to 3.10 each frame has an activation of its own.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sidewinder_e2e_judge::python::Expected;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::sample_cost::{SECONDS, SampleCosts, WARM_UP};
use sidewinder_e2e_support::{bench, requirement};

/// Calls from C in the Python program's stack: each is an activation more.
const CALLS_FROM_C: [&str; 2] = ["0", "11"];

/// What the program says of its one chain: its frames, and the calls of them from C.
fn frames_and_calls_from_c(program: &PythonProgram, arguments: &[&str]) -> Result<(usize, usize)> {
    let chain = Expected::of_program(program, arguments)?.chains.pop().context("no chain")?;
    Ok((chain.frames.len(), chain.frames.iter().filter(|frame| frame.is_called_from_c).count()))
}

fn measure(name: &str, interpreter: &Path) -> Result<()> {
    let program = PythonProgram::new(interpreter, "activations.py");
    let load = |calls_from_c| {
        let program = &program;
        move || program.command(&[SECONDS, "--calls-from-c", calls_from_c])
    };
    let costs = SampleCosts::measure_each(&CALLS_FROM_C.map(load), WARM_UP)?;
    for (costs, calls_from_c) in costs.iter().zip(CALLS_FROM_C) {
        let (frames, calls_from_c) = frames_and_calls_from_c(&program, &["--calls-from-c", calls_from_c])?;
        println!("{name:<10} {frames:>6} {:>7} {}", calls_from_c + 1, costs.columns(frames as f64));
    }
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
    let [head, units] = SampleCosts::heads();
    println!("{:<10} {:>6} {:>7} {head}", "CPython", "Python", "acti-");
    println!("{:<10} {:>6} {:>7} {units}", "", "frames", "vations");
    for (name, interpreter) in of_pyenv.chain([system]) {
        if named.is_empty() || named.contains(&name) {
            measure(&name, &interpreter)?;
        }
    }
    Ok(())
}
