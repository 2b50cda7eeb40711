//! What a sample of a program costs.
//!
//! Times are the kernel's (`kernel.bpf_stats_enabled`), of all eBPF programs of the profiler, per busy sample: rate times CPU
//! time of the load. Other programs on the machine only add to them, so of each run the cheapest window counts.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::observe::{self, BpfStats};
use crate::sidewinder::{self, Running};
use crate::workload::Gated;

/// The switch of `record` by which no interpreter is looked for.
pub const WITHOUT_INTERPRETERS: &str = "--no-interpreters";
/// For how long a load has to run, as an argument: longer than it is measured, it is ended from outside.
pub const SECONDS: &str = "60";

/// Until the unwind tables of most programs are built.
pub const WARM_UP: Duration = Duration::from_millis(1_500);

const SAMPLES_PER_SECOND: u32 = 997;
const WINDOWS: usize = 10;
const WINDOW: Duration = Duration::from_millis(250);

/// Nanoseconds of eBPF for each busy sample of a workload, which `record` takes with the given options; those of the first time
/// don't count.
///
/// # Errors
/// When one of the two does not start, or the load hardly runs.
pub fn ns_per_sample(command: Command, options: &[&str], warm_up: Duration) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let _stats = BpfStats::enable()?;
    let mut load = Gated::start(command)?;
    let mut recorder = sidewinder::command()?;
    recorder.args(["record", "-F", &SAMPLES_PER_SECOND.to_string(), "-p", &load.pid().to_string(), "-o"]);
    recorder.arg(folder.path().join("out.otlp")).args(options);
    let recorder = Running::start_sampling(recorder)?;
    load.open()?;
    thread::sleep(warm_up);
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
