//! What frames of JavaScript cost: a sample of a Node.js program with a hundred of them, interpreted, compiled and inlined, with
//! and without that they are looked for, and beside both one of a program in C++.
//!
//! A frame that is looked for takes the place of one that frame pointers lead to, so the difference is what its function costs.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e_support::sample_cost::SampleCosts;
use sidewinder_e2e_support::{bench, paths, requirement};

/// Until the unwind table of `node` is built.
const WARM_UP: Duration = Duration::from_secs(4);
/// Calls of the JavaScript program.
const FRAMES: &str = "100";

/// How functions are executed, and the options by which they are.
const MODES: [(&str, &[&str]); 3] = [
    ("interpreted", &["--no-opt", "--no-sparkplug"]),
    ("compiled", &["--no-turbo-inlining"]),
    ("inlined", &[]),
];

/// Takes the modes that are named on the command line; all, where none is.
fn main() -> Result<()> {
    if bench::is_to_start_only() {
        return Ok(());
    }
    let what = "benchmarks of Node.js";
    if !requirement::ebpf(what)? || !requirement::program(what, "node")? {
        return Ok(());
    }
    let program = |options: &[&str]| {
        let mut command = Command::new("node");
        command.args(options).arg(paths::e2e().join("workloads/recursion.js")).arg(FRAMES);
        command
    };
    let [head, units] = SampleCosts::heads();
    println!("{:<12} {:>6} {head}", "Node.js", "JS");
    println!("{:<12} {:>6} {units}", "", "frames");
    let named = bench::named();
    let is_wanted = |mode: &str| named.is_empty() || named.iter().any(|wanted| wanted == mode);
    let modes: Vec<_> = MODES.into_iter().filter(|(mode, _)| is_wanted(mode)).collect();
    let programs: Vec<_> = modes.iter().map(|(_, options)| || program(options)).collect();
    for ((mode, _), costs) in modes.iter().zip(SampleCosts::measure_each(&programs, WARM_UP)?) {
        println!("{mode:<12} {FRAMES:>6} {}", costs.columns(FRAMES.parse()?));
    }
    Ok(())
}
