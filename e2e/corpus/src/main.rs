//! Runs the programs of the corpus, or those named on the command line, under the profiler and prints the outcomes of
//! their samples: `make corpus`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use sidewinder_e2e_corpus::{self as corpus, PROGRAMS, Subject, Table, pypi};

/// The share of native stacks that have to be complete.
const COMPLETE_SHARE: f64 = 0.9995;
/// Behind a program's first second, the share of samples of Python in which all functions are known.
const KNOWN_SHARE: f64 = 0.95;
/// Of these, the share in which each activation of the interpreter's loop has its frames.
const MATCHED_SHARE: f64 = 0.999;
const SAMPLES_PER_SECOND: u32 = 997;
const SECONDS: u32 = 5;

fn main() -> Result<ExitCode> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |subject: &&Subject| named.is_empty() || named.iter().any(|name| name == subject.name);
    let subjects: Vec<&Subject> = PROGRAMS.iter().filter(is_wanted).collect();
    ensure!(!subjects.is_empty(), "no program of the corpus has such a name");
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta:>4} {wide_msg}")?;
    let progress = ProgressBar::new(subjects.len() as u64).with_style(style);
    let of_pypi = if subjects.iter().any(|subject| subject.is_of_pypi) {
        pypi::environment().map(drop)
    } else {
        Ok(())
    };
    let mut table = Table::default();
    for subject in subjects {
        progress.set_message(subject.name);
        match (subject.missing_tool(), &of_pypi) {
            (Some(tool), _) => progress.println(format!("{}: {tool} is not installed", subject.name)),
            (None, Err(error)) if subject.is_of_pypi => {
                progress.println(format!("SKIPPED: {}: {error:#}", subject.name));
            }
            (None, _) => {
                table.push(
                    subject.name,
                    subject.group,
                    corpus::profile(subject, SECONDS, SAMPLES_PER_SECOND)?,
                );
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    println!("{table}");
    let is_python_good = table.python().all(|(_, python)| {
        python.known_share() >= KNOWN_SHARE && python.activations.matched_share() >= MATCHED_SHARE
    });
    let is_good = table.native().complete_share() >= COMPLETE_SHARE && table.wrong() == 0 && is_python_good;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
