//! Stops the programs of the corpus, or those named on the command line, and compares each stack with what gdb and
//! framehop make of it: `make stacks`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use sidewinder_e2e_corpus::{PROGRAMS, Subject};
use sidewinder_e2e_stacks::{Comparison, stop_and_compare};

/// Stops of all programs together, and what chooses them, unless `STOPS` and `SEED` say otherwise.
const STOPS: u32 = 10_000;
const SEED: u64 = 1;

fn main() -> Result<ExitCode> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |subject: &&Subject| named.is_empty() || named.iter().any(|name| name == subject.name);
    // Those of PyPI are one interpreter, which is among the others.
    let is_here = |subject: &&Subject| subject.missing_tool().is_none() && subject.registry.is_none();
    let subjects: Vec<&Subject> = PROGRAMS.iter().filter(is_wanted).filter(is_here).collect();
    ensure!(!subjects.is_empty(), "no program of the corpus has such a name");
    let each = number("STOPS")?.map_or(STOPS, |stops| stops as u32).div_ceil(subjects.len() as u32);
    let seed = number("SEED")?.unwrap_or(SEED);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta:>4} {wide_msg}")?;
    let progress = ProgressBar::new(u64::from(each) * subjects.len() as u64).with_style(style);
    let mut all = Comparison::default();
    let mut has_failed = false;
    for (number, subject) in subjects.into_iter().enumerate() {
        progress.set_message(subject.name);
        match stop_and_compare(subject, None, each, seed + number as u64, || progress.inc(1)) {
            Ok(comparison) => {
                progress.suspend(|| println!("{}: {comparison}", subject.name));
                all.merge(comparison);
            }
            Err(error) => {
                has_failed = true;
                progress.suspend(|| println!("{}: {error:#}", subject.name));
            }
        }
    }
    progress.finish_and_clear();
    println!("all of them: {all}");
    Ok(if all.wrong() == 0 && !has_failed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn number(name: &str) -> Result<Option<u64>> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty());
    text.map(|text| text.parse().with_context(|| format!("{name}={text} is no number"))).transpose()
}
