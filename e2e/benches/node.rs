//! What frames of JavaScript cost: a sample of a Node.js program with hundreds of them, interpreted, compiled and inlined, with
//! and without that they are looked for.
//!
//! Times are the kernel's (`kernel.bpf_stats_enabled`), of all eBPF programs of the profiler, per busy sample, as in `python.rs`.
//! A frame that is looked for takes the place of one that frame pointers lead to, so the difference is what its function costs.
#![forbid(unsafe_code)]

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::observe::{self, BpfStats};
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::{bench, requirement};

/// The switch of `record` by which no interpreter is looked for.
const WITHOUT_INTERPRETERS: &str = "--no-interpreters";

const SAMPLES_PER_SECOND: u32 = 997;
const TURNS: usize = 5;
/// Until the program is compiled, and the unwind table of `node` is built.
const WARM_UP: Duration = Duration::from_secs(4);
const WINDOWS: usize = 10;
const WINDOW: Duration = Duration::from_millis(250);
/// A call that all samples have in common, this many times.
const FRAMES: u32 = 100;

/// How a program is run.
const SETS: [(&str, &[&str]); 3] = [
    ("interpreted", &["--no-opt", "--no-sparkplug"]),
    ("compiled", &["--no-turbo-inlining"]),
    ("inlined", &[]),
];

struct Node(Child);

impl Node {
    fn start(options: &[&str]) -> Result<Self> {
        let program = format!(
            "function work(n) {{ let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) % 1000003; return s }}
             function recurse(n) {{ return n > 0 ? recurse(n - 1) + 1 : work(100000) }}
             for (;;) recurse({FRAMES})"
        );
        let mut command = Command::new("node");
        command.args(options).args(["-e", &program]).stdout(Stdio::null());
        Ok(Self(command.spawn().context("cannot start node")?))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nanoseconds of eBPF for each busy sample: those of the cheapest window, since other programs only add to them.
fn ns_per_sample(node: &[&str], options: &[&str]) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let _stats = BpfStats::enable()?;
    let load = Node::start(node)?;
    let pid = load.0.id();
    let mut recorder = sidewinder::command()?;
    recorder.args(["record", "-F", &SAMPLES_PER_SECOND.to_string(), "-p", &pid.to_string(), "-o"]);
    recorder.arg(folder.path().join("out.otlp")).args(options);
    let recorder = Running::start_sampling(recorder)?;
    thread::sleep(WARM_UP);
    let look = || -> Result<_> { Ok((observe::program_runs(recorder.pid()).time_ns, observe::cpu_ns(pid)?)) };
    let (mut cheapest, mut before) = (f64::INFINITY, look()?);
    for _ in 0..WINDOWS {
        thread::sleep(WINDOW);
        let after = look()?;
        let samples = f64::from(SAMPLES_PER_SECOND) * (after.1 - before.1) as f64 / 1e9;
        // Of a window in which the load hardly ran, most is the programs that ran for other reasons.
        if samples > 25.0 {
            cheapest = cheapest.min((after.0 - before.0) as f64 / samples);
        }
        before = after;
    }
    recorder.stop()?;
    ensure!(cheapest.is_finite(), "the load hardly ran");
    Ok(cheapest)
}

fn main() -> Result<()> {
    if bench::is_to_start_only() {
        return Ok(());
    }
    let what = "benchmarks of Node.js";
    if !requirement::ebpf(what)? || !requirement::program(what, "node")? {
        return Ok(());
    }
    println!("{:<12} {:>6} {:>10} {:>10} {:>10}", "Node.js", "frames", "with", "without", "ns/frame");
    for (name, options) in SETS {
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            on.push(ns_per_sample(options, &[])?);
            off.push(ns_per_sample(options, &[WITHOUT_INTERPRETERS])?);
        }
        let (on, off) = (bench::median(on), bench::median(off));
        println!("{name:<12} {FRAMES:>6} {on:>10.0} {off:>10.0} {:>10.1}", (on - off) / f64::from(FRAMES));
    }
    Ok(())
}
