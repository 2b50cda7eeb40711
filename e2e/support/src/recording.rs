//! A recording: the profiler starts a program, profiles it to its end and writes files.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::conservation::Summary;
use crate::received::Received;
use crate::sidewinder::{self, Running};

const TIMEOUT: Duration = Duration::from_secs(180);

/// What `record` left.
#[derive(Debug)]
pub struct Recording {
    /// The events.
    pub received: Received,
    /// What it says of itself.
    pub said: Said,
    /// What it told the terminal.
    pub log: String,
}

/// What `record --summary-json` says.
#[derive(Clone, Debug, Deserialize)]
pub struct Said {
    /// How all interrupts ended.
    #[serde(flatten)]
    pub summary: Summary,
    /// How the interrupts for other kinds than CPU time ended, by the name of the kind.
    pub outcomes_of_other_kinds: BTreeMap<String, BTreeMap<String, u64>>,
    /// What probes counted, by the name of the probe.
    pub probes: BTreeMap<String, ProbeSaid>,
    /// Waits that are missing from off-CPU time, by reason.
    pub off_cpu_waits_missing: BTreeMap<String, u64>,
    /// Waits that were charged, or found, before they ended.
    pub off_cpu_waits_in_progress: BTreeMap<String, u64>,
    /// Of unwind tables.
    pub tables: Tables,
    /// Kernel memory that the eBPF maps take.
    pub map_bytes: u64,
}

/// What `record --summary-json` says of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct ProbeSaid {
    /// Hits in scope.
    pub hits: u64,
    /// Hits that were sampled.
    pub samples: u64,
    /// Hits that no sample counts for.
    pub uncounted: u64,
    /// The time of samples.
    pub cost_ns: u64,
}

/// What `record --summary-json` says of the unwind tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Tables {
    /// In the kernel, at the end.
    pub loaded_bytes: u64,
    /// Taken out for others' sake.
    pub evictions: u64,
    /// Files read again because a walk missed an evicted table.
    pub reloads: u64,
}

/// Records a program and its children with these further options, to the program's end.
///
/// # Errors
/// When it fails, or breaks a rule of conformance.
pub fn record(options: &[&str], program: &Command) -> Result<Recording> {
    record_target(options, |command| {
        command.arg("--").arg(program.get_program()).args(program.get_args());
    })
}

/// Records running processes with these further options, which say for how long.
///
/// # Errors
/// As [`record`].
pub fn record_running(options: &[&str], pids: &[u32]) -> Result<Recording> {
    let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
    record_target(options, |command| {
        command.arg("-p").arg(pids.join(","));
    })
}

fn record_target(options: &[&str], add_target: impl FnOnce(&mut Command)) -> Result<Recording> {
    let folder = tempfile::tempdir()?;
    let (output, said) = (folder.path().join("out.otlp"), folder.path().join("summary.json"));
    let mut command = sidewinder::command()?;
    command.arg("record").args(options).arg("-o").arg(&output).arg("--summary-json").arg(&said);
    add_target(&mut command);
    let ended = Running::start(command)?.wait(TIMEOUT)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let said = serde_json::from_str(&fs::read_to_string(&said)?).context("the summary")?;
    Ok(Recording { received: Received::from_otlp_file(&output)?, said, log: ended.log })
}
