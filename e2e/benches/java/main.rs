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
/// Of the same with a deeper stack: what its samples cost more is the frames.
const MORE_FRAMES: &str = "240";
/// How methods are executed, and of what classes they are: the options of Java, and the program's last arguments.
const MODES: [(&str, &str, &[&str]); 4] = [
    ("compiled", NOT_INLINED, &[]),
    ("compiled, each of another class", NOT_INLINED, &[LINKED]),
    ("interpreted", INTERPRETED, &[]),
    ("interpreted, each of another class", INTERPRETED, &[LINKED]),
];
const NOT_INLINED: &str = "-XX:-Inline";
const INTERPRETED: &str = "-Xint";
const LINKED: &str = "linked";

fn measure(name: &str, home: &Path, classes: &Path) -> Result<()> {
    for (mode, option, of_methods) in MODES {
        let programs = [FRAMES, MORE_FRAMES].map(|frames| {
            move || {
                let mut command = java::java(home, classes);
                command.args([option, "Deep", SECONDS, frames]).args(of_methods);
                command
            }
        });
        let costs = SampleCosts::measure_each(&programs, WARM_UP)?;
        for (frames, costs) in [FRAMES, MORE_FRAMES].iter().zip(&costs) {
            println!("{name:<24} {mode:<34} {frames:>6} {}", costs.columns(frames.parse()?));
        }
        if let [fewer, more] = costs.as_slice() {
            let frames = MORE_FRAMES.parse::<f64>()? - FRAMES.parse::<f64>()?;
            let per_frame = (more.with_interpreters - fewer.with_interpreters) / frames;
            println!("{name:<24} {mode:<34} each further frame: {per_frame:.1} ns");
        }
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
    println!("{:<24} {:<34} {:>6} {head}", "HotSpot", "methods", "Java");
    println!("{:<24} {:<34} {:>6} {units}", "", "", "frames");
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
