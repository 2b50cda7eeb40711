//! Recordings: the profiler starts a program and profiles it to its end, or running processes, and writes files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use crate::counts::Counts;
use crate::received::Received;
use crate::sidewinder::{self, Ended, Running};
use crate::workload::append;

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
    /// What the service counts as well.
    #[serde(flatten)]
    pub counts: Counts,
    /// What probes counted, by the name of the probe.
    pub probes: BTreeMap<String, ProbeSaid>,
    /// Of unwind tables.
    #[serde(flatten)]
    pub tables: Tables,
    /// Kernel memory that the eBPF maps take.
    pub maps_bytes: u64,
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
    #[serde(rename = "tables_bytes")]
    pub loaded_bytes: u64,
    /// Taken out for others' sake.
    #[serde(rename = "tables_evictions")]
    pub evictions: u64,
    /// Files read again because a walk missed an evicted table.
    #[serde(rename = "tables_reloads")]
    pub reloads: u64,
}

/// Records a program and its children with these further options, to the program's end.
///
/// # Errors
/// When it fails, or breaks a rule of conformance.
pub fn record<O: AsRef<OsStr>>(options: &[O], program: &Command) -> Result<Recording> {
    let folder = tempfile::tempdir()?;
    let mut command = command(options, folder.path())?;
    append(command.arg("--"), program);
    recording(Running::start(command)?.wait(TIMEOUT)?, &folder)
}

/// A recording of running processes, which goes on until it is stopped.
#[derive(Debug)]
pub struct Recorder {
    running: Running,
    folder: TempDir,
}

impl Recorder {
    /// Starts `record` with these further options, and waits until it samples. Without processes it records the whole node.
    ///
    /// # Errors
    /// When it does not.
    pub fn start<O: AsRef<OsStr>>(options: &[O], pids: &[u32]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = command(options, folder.path())?;
        command.args(pids.iter().map(|pid| format!("--pid={pid}"))).args(pids.is_empty().then_some("--all"));
        Ok(Self { running: Running::start_sampling(command)?, folder })
    }

    /// Stops it, unless it has ended because no process is left.
    ///
    /// # Errors
    /// As [`record`].
    pub fn stop(self) -> Result<Recording> {
        recording(self.running.stop_within(TIMEOUT)?, &self.folder)
    }
}

const OUTPUT: &str = "out.otlp";
const SUMMARY: &str = "summary.json";

fn command<O: AsRef<OsStr>>(options: &[O], folder: &Path) -> Result<Command> {
    let mut command = sidewinder::command()?;
    command.arg("record").args(options).arg("-o").arg(folder.join(OUTPUT));
    command.arg("--summary-json").arg(folder.join(SUMMARY));
    Ok(command)
}

fn recording(ended: Ended, folder: &TempDir) -> Result<Recording> {
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let said = fs::read_to_string(folder.path().join(SUMMARY))?;
    let said = serde_json::from_str(&said).context("the summary")?;
    Ok(Recording { received: Received::from_otlp_file(&folder.path().join(OUTPUT))?, said, log: ended.log })
}
