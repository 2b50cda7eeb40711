//! Stops the programs of the corpus, or those named on the command line, and compares each stack with what gdb and
//! framehop make of it: `make stacks`. `ARCH=arm64`: programs for arm64.
#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use sidewinder_e2e_corpus::{PROGRAMS, Subject};
use sidewinder_e2e_stacks::emulated::{self, Emulated};
use sidewinder_e2e_stacks::{Comparison, stop_and_compare};

/// Stops of all programs together, and what chooses them, unless `STOPS` and `SEED` say otherwise.
const STOPS: u32 = 10_000;
const SEED: u64 = 1;

fn main() -> Result<ExitCode> {
    let named: Vec<String> = env::args().skip(1).collect();
    let seed = number("SEED")?.unwrap_or(SEED);
    let stops = number("STOPS")?.map_or(STOPS, |stops| stops as u32);
    let is_wanted = |name: &str| named.is_empty() || named.iter().any(|named| named == name);
    let runs: Vec<Run<'_>> = match env::var("ARCH").as_deref() {
        Ok("arm64") => {
            let programs = emulated::programs()?.into_iter().filter(|program| is_wanted(program.name));
            programs.map(Run::Emulated).collect()
        }
        _ => {
            // Those of PyPI are one interpreter, which is among the others.
            let is_here = |subject: &&Subject| subject.missing_tool().is_none() && subject.registry.is_none();
            // What takes seconds to start is not there when it is stopped.
            let is_taken = |subject: &&Subject| subject.is_judged && !subject.says_ready && is_here(subject);
            let subjects = PROGRAMS.iter().filter(|subject| is_wanted(subject.name)).filter(is_taken);
            subjects.map(Run::Native).collect()
        }
    };
    ensure!(!runs.is_empty(), "no program has such a name");
    let each = stops.div_ceil(runs.len() as u32);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta:>4} {wide_msg}")?;
    let progress = ProgressBar::new(u64::from(each) * runs.len() as u64).with_style(style);
    let mut all = Comparison::default();
    let mut has_failed = false;
    for (number, run) in runs.iter().enumerate() {
        progress.set_message(run.name());
        match run.stop_and_compare(each, seed + number as u64, || progress.inc(1)) {
            Ok(comparison) => {
                progress.suspend(|| println!("{}: {comparison}", run.name()));
                all.merge(comparison);
            }
            Err(error) => {
                has_failed = true;
                progress.suspend(|| println!("{}: {error:#}", run.name()));
            }
        }
    }
    progress.finish_and_clear();
    println!("all of them: {all}");
    Ok(if all.wrong() == 0 && !has_failed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A program that is stopped: of the corpus, or for arm64.
enum Run<'a> {
    Native(&'a Subject),
    Emulated(Emulated),
}

impl Run<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Native(subject) => subject.name,
            Self::Emulated(program) => program.name,
        }
    }

    fn stop_and_compare(&self, stops: u32, seed: u64, told: impl Fn()) -> Result<Comparison> {
        match self {
            Self::Native(subject) => stop_and_compare(subject, None, stops, seed, told),
            Self::Emulated(program) => program.stop_and_compare(stops, seed, told),
        }
    }
}

fn number(name: &str) -> Result<Option<u64>> {
    let text = env::var(name).ok().filter(|text| !text.is_empty());
    text.map(|text| text.parse().with_context(|| format!("{name}={text} is no number"))).transpose()
}
