//! Runs the programs of the corpus, or those named on the command line, under the profiler and prints what became of
//! their samples: `make corpus`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use sidewinder_e2e_corpus::{self as corpus, PROGRAMS, Subject, Table};

/// The share of native stacks that have to be complete.
const COMPLETE_SHARE: f64 = 0.9995;
const SAMPLES_PER_SECOND: u32 = 997;
const SECONDS: u32 = 5;

fn main() -> Result<ExitCode> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |subject: &&Subject| named.is_empty() || named.iter().any(|name| name == subject.name);
    let subjects: Vec<&Subject> = PROGRAMS.iter().filter(is_wanted).collect();
    ensure!(!subjects.is_empty(), "no program of the corpus has such a name");
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta:>4} {wide_msg}")?;
    let progress = ProgressBar::new(subjects.len() as u64).with_style(style);
    let mut table = Table::default();
    for subject in subjects {
        progress.set_message(subject.name);
        match subject.missing_tool() {
            Some(tool) => progress.println(format!("{}: {tool} is not installed", subject.name)),
            None => {
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
    let is_good = table.native().complete_share() >= COMPLETE_SHARE && table.wrong() == 0;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
