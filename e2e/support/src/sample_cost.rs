//! What a sample of a program costs.
//!
//! Times are the kernel's (`kernel.bpf_stats_enabled`), of all eBPF programs of the profiler, per busy sample: rate times CPU
//! time of the load. Other programs on the machine only add to them, so of each run the cheapest window counts.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::bench;
use crate::observe::{self, BpfStats};
use crate::received::{Received, in_user_mode};
use crate::sidewinder::{self, Running};
use crate::workload::{self, Gated};

/// The switch of `record` by which no interpreter is looked for.
const WITHOUT_INTERPRETERS: &str = "--no-interpreters";
/// For how long a load has to run, as an argument: longer than it is measured, it is ended from outside.
pub const SECONDS: &str = "60";

/// Until the unwind tables of most programs are built.
pub const WARM_UP: Duration = Duration::from_millis(1_500);

const TURNS: usize = 3;
/// Of the C++ program.
const RUNGS: &str = "30";
const SAMPLES_PER_SECOND: u32 = 997;
const WINDOWS: usize = 6;
const WINDOW: Duration = Duration::from_millis(250);
/// A window is longer where it has fewer samples: on a busy machine a load runs for a part of the time.
const WINDOW_SAMPLES: f64 = 100.0;
const WINDOW_MAX: Duration = Duration::from_secs(5);

/// Nanoseconds of eBPF for each busy sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleCosts {
    /// Of a program of an interpreter or a virtual machine, whose frames are looked for.
    pub with_interpreters: f64,
    /// Of the same, whose frames are not looked for.
    pub without_interpreters: f64,
    /// Of a program in C++, beside both.
    pub native: f64,
    /// Native frames of a sample of the interpreter's program, in the median, where no others are looked for.
    pub native_frames: f64,
}

impl SampleCosts {
    /// Measures a workload. The three take turns, and each figure is the median of theirs.
    ///
    /// # Errors
    /// When a workload or the profiler does not start, or the workload hardly runs.
    pub fn measure(program: impl Fn() -> Command, warm_up: Duration) -> Result<Self> {
        let mut costs = Self::measure_each(&[program], warm_up)?;
        costs.pop().context("nothing was measured")
    }

    /// Measures several, which all take turns, beside one program in C++.
    ///
    /// # Errors
    /// As [`SampleCosts::measure`].
    pub fn measure_each(programs: &[impl Fn() -> Command], warm_up: Duration) -> Result<Vec<Self>> {
        let mut of_programs: Vec<_> = programs.iter().map(|_| (Vec::new(), Vec::new())).collect();
        let mut native = Vec::new();
        for _ in 0..TURNS {
            for (program, (with, without)) in programs.iter().zip(&mut of_programs) {
                with.push(Measured::of(program(), &[], warm_up)?);
                without.push(Measured::of(program(), &[WITHOUT_INTERPRETERS], warm_up)?);
            }
            native.push(Measured::of(workload::LADDER.command(&[SECONDS, RUNGS])?, &[], WARM_UP)?);
        }
        let native = median_of(&native, |measured| measured.ns_per_sample);
        let costs = of_programs.into_iter().map(|(with, without)| Self {
            with_interpreters: median_of(&with, |measured| measured.ns_per_sample),
            without_interpreters: median_of(&without, |measured| measured.ns_per_sample),
            native,
            native_frames: median_of(&without, |measured| measured.frames),
        });
        Ok(costs.collect())
    }

    /// The heads of the [columns](Self::columns), in two lines.
    #[must_use]
    pub fn heads() -> [String; 2] {
        [
            ["native", "with", "without", "ns per", "C++"],
            ["frames", "ns/sample", "ns/sample", "frame", "ns/sample"],
        ]
        .map(|[frames, with, without, frame, native]| {
            format!("{frames:>6} {with:>9} {without:>9} {frame:>9} {native:>9}")
        })
    }

    /// The figures of a table's line, with the nanoseconds for each of so many frames that are looked for.
    #[must_use]
    pub fn columns(&self, frames: f64) -> String {
        let Self { with_interpreters, without_interpreters, native, native_frames } = *self;
        let per_frame = (with_interpreters - without_interpreters) / frames;
        format!(
            "{native_frames:>6.0} {with_interpreters:>9.0} {without_interpreters:>9.0} {per_frame:>9.1} {native:>9.0}"
        )
    }
}

/// What one run of a workload was found to cost.
struct Measured {
    ns_per_sample: f64,
    /// Frames of a sample in user mode, in the median.
    frames: f64,
}

fn median_of(measured: &[Measured], figure: impl Fn(&Measured) -> f64) -> f64 {
    bench::median(measured.iter().map(figure).collect())
}

impl Measured {
    /// Records a workload with the given options; what it does until it is warm doesn't count.
    fn of(command: Command, options: &[&str], warm_up: Duration) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let output = folder.path().join("out.otlp");
        let _stats = BpfStats::enable()?;
        let mut load = Gated::start(command)?;
        let mut recorder = sidewinder::command()?;
        recorder.args(["record", "-F", &SAMPLES_PER_SECOND.to_string(), "-p", &load.pid().to_string(), "-o"]);
        recorder.arg(&output).args(options);
        let recorder = Running::start_sampling(recorder)?;
        load.open()?;
        thread::sleep(warm_up);
        let ns_per_sample = cheapest_window(recorder.pid(), load.pid())?;
        let ended = recorder.stop()?;
        ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
        let received = Received::from_otlp_file(&output)?;
        let samples = received.events_of(load.pid()).filter(in_user_mode);
        let frames = bench::median(samples.map(|event| event.sample.stack.len() as f64).collect());
        Ok(Self { ns_per_sample, frames })
    }
}

/// Nanoseconds of eBPF for each busy sample of a program.
fn cheapest_window(recorder: u32, load: u32) -> Result<f64> {
    let look = || -> Result<_> { Ok((observe::program_runs(recorder).time_ns, observe::cpu_ns(load)?)) };
    let (mut cheapest, mut samples_in_all) = (f64::INFINITY, 0.0);
    let mut before = look()?;
    for _ in 0..WINDOWS {
        let end = Instant::now() + WINDOW_MAX;
        let (after, samples) = loop {
            thread::sleep(WINDOW);
            let after = look()?;
            let samples = f64::from(SAMPLES_PER_SECOND) * (after.1 - before.1) as f64 / 1e9;
            if samples >= WINDOW_SAMPLES || Instant::now() >= end {
                break (after, samples);
            }
        };
        // Of a window in which the load hardly ran, most is the programs that ran for other reasons.
        if samples > 25.0 {
            cheapest = cheapest.min((after.0 - before.0) as f64 / samples);
        }
        samples_in_all += samples;
        before = after;
    }
    ensure!(samples_in_all > 100.0 && cheapest.is_finite(), "the load ran for {samples_in_all} samples only");
    Ok(cheapest)
}
