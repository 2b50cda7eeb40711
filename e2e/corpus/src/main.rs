//! Runs the programs of the corpus, or those named on the command line, under the profiler and prints the outcomes of
//! their samples: `make corpus`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use sidewinder_e2e_corpus::{self as corpus, PROGRAMS, Subject, Table};
use sidewinder_e2e_support::form::Form;

/// The share of native stacks that have to be complete.
const COMPLETE_SHARE: f64 = 0.9995;
/// Behind a program's first second, the share of samples of Python in which all functions are known.
const KNOWN_SHARE: f64 = 0.95;
/// Of these, the share in which each activation of the interpreter's loop has its frames.
const MATCHED_SHARE: f64 = 0.999;
const SAMPLES_PER_SECOND: u32 = 997;
const SECONDS: u32 = 5;
/// Of programs in Java and JavaScript, which start slowly.
const MANAGED_SECONDS: u32 = 30;
/// Behind their start, of samples in threads that run it: the share of those that reach the root, and of those in which all
/// functions are known.
const MANAGED_COMPLETE_SHARE: f64 = 0.999;
const MANAGED_KNOWN_SHARE: f64 = 0.99;

fn main() -> Result<ExitCode> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |subject: &&Subject| named.is_empty() || named.iter().any(|name| name == subject.name);
    let subjects: Vec<&Subject> =
        PROGRAMS.iter().filter(is_wanted).filter(|subject| subject.is_judged).collect();
    ensure!(!subjects.is_empty(), "no program of the corpus that is judged has such a name");
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta:>4} {wide_msg}")?;
    let progress = ProgressBar::new(subjects.len() as u64).with_style(style);
    // Where one can't be fetched, the others are taken.
    let mut known: BTreeMap<&str, Result<()>> = BTreeMap::new();
    let mut table = Table::default();
    for subject in subjects {
        progress.set_message(subject.name);
        if let Some(tool) = subject.missing_tool() {
            progress.println(format!("{}: {tool} is not installed", subject.name));
            progress.inc(1);
            continue;
        }
        let fetched = subject.registry.map(|registry| {
            &*known.entry(registry.variable()).or_insert_with(|| registry.fetched().map(drop))
        });
        match fetched.and_then(|fetched| fetched.as_ref().err()) {
            Some(error) => progress.println(format!("SKIPPED: {}: {error:#}", subject.name)),
            None => {
                let seconds = if subject.is_managed() { MANAGED_SECONDS } else { SECONDS };
                let profile = |form| corpus::profile(form, subject, seconds, SAMPLES_PER_SECOND);
                table.push(subject, profile(Form::Record)?, Some(profile(Form::Service)?));
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    println!("{table}");
    let is_python_good = table.python().all(|(_, python)| {
        python.known_share() >= KNOWN_SHARE && python.activations.matched_share() >= MATCHED_SHARE
    });
    let is_managed_good = table.managed().all(|(_, managed)| {
        managed.complete_share() >= MANAGED_COMPLETE_SHARE && managed.known_share() >= MANAGED_KNOWN_SHARE
    });
    let is_native_good = table.native().complete_share() >= COMPLETE_SHARE && table.wrong() == 0;
    let is_good = is_native_good && is_python_good && is_managed_good;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
