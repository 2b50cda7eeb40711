//! What Java frames cost: a sample of a program with 60 of them, compiled or interpreted, with and without that they are looked
//! for, and beside both one of a program in C++. Without, the stack ends where generated code begins. The loads take turns, and
//! each figure is the median of theirs. No method is put into another, so that each frame is one of the stack.
//!
//! Then async-profiler, which is an agent in the virtual machine, on the same program and on chains of calls: see
//! [`beside`].
#![forbid(unsafe_code)]

mod beside;

use std::path::Path;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::sample_cost::{SECONDS, SampleCosts, WARM_UP};
use sidewinder_e2e_support::{bench, java, requirement};

/// Of the Java program.
const FRAMES: &str = "60";
/// How methods are executed, and the options by which they are.
const MODES: [(&str, &str); 2] = [("compiled", NOT_INLINED), ("interpreted", "-Xint")];
const NOT_INLINED: &str = "-XX:-Inline";

fn measure(name: &str, home: &Path, classes: &Path) -> Result<()> {
    let program = |option| {
        let mut command = java::java(home, classes);
        command.args([option, "Deep", SECONDS, FRAMES]);
        command
    };
    let programs = MODES.map(|(_, option)| move || program(option));
    for ((mode, _), costs) in MODES.iter().zip(SampleCosts::measure_each(&programs, WARM_UP)?) {
        println!("{name:<24} {mode:<12} {FRAMES:>6} {}", costs.columns(FRAMES.parse()?));
    }
    Ok(())
}

/// Takes the versions that are named on the command line, as `17`; all JDKs that are here, where none is.
fn main() -> Result<()> {
    if bench::is_to_start_only() {
        return Ok(());
    }
    if !requirement::ebpf("benchmarks").context("benchmarks need eBPF")? {
        return Ok(());
    }
    let classes = java::compiled(&["Deep.java", "Chains.java"])?;
    let named = bench::named();
    let is_wanted = |name: &str| {
        named.is_empty() || named.iter().any(|version| name.split('-').any(|part| part == version))
    };
    let homes = java::homes(None).into_iter().filter_map(|home| {
        let name = home.file_name()?.to_string_lossy().into_owned();
        is_wanted(&name).then_some((name, home))
    });
    let homes: Vec<_> = homes.collect();
    let [head, units] = SampleCosts::heads();
    println!("{:<24} {:<12} {:>6} {head}", "HotSpot", "methods", "Java");
    println!("{:<24} {:<12} {:>6} {units}", "", "", "frames");
    for (name, home) in &homes {
        measure(name, home, classes.path())?;
    }
    let agent = match beside::agent() {
        Ok(agent) => agent,
        Err(error) => {
            println!("SKIPPED: async-profiler can't be had: {error:#}");
            return Ok(());
        }
    };
    println!(
        "\n{:<24} {:<20} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "HotSpot", "profiler", "Deep:", "right", "Chains:", "right", "us/sample"
    );
    println!(
        "{:<24} {:<20} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "", "", "samples", "%", "samples", "%", "of program"
    );
    for (name, home) in &homes {
        beside::measure(name, home, classes.path(), &agent)?;
    }
    Ok(())
}
