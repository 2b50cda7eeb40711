//! Frames of CPython stand in stacks where they belong, each with its qualified name, its file and its line.
//!
//! The programs are those of `workloads/python`; they write down what their stacks are. `make python-test` runs these tests
//! alone, for longer and with py-spy and pystack beside them.

mod embedded;
mod extensions;
mod forks;
mod forms;
mod internals;
mod keys;
mod million;
mod oracles;
mod recursion;
mod replaced;
mod subinterpreters;
mod tail_calls;
mod threads;
mod toy;
mod users;
mod versions;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use sidewinder_e2e_debian::python as debian;
use sidewinder_e2e_judge::python::{Stack, Verdict, from_otlp, from_pprof};
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{Gated, Report};
use sidewinder_e2e_support::{python, requirement};

pub(crate) use self::embedded::embedding_flags;

const SAMPLES_PER_SECOND: u32 = 997;
/// CPU time, so that a busy machine gives as many samples as another.
const SECONDS: u32 = 2;
/// The newest minor version.
const NEWEST: u32 = 14;
/// Minor versions with builds without the global interpreter lock.
const FREE_THREADED: [u32; 2] = [13, 14];
/// Of some 2,000.
const ENOUGH: u64 = 600;
/// Of all samples.
const EQUAL_SHARE: f64 = 0.99;
/// Of the frames whose line is known beforehand.
const RIGHT_LINE_SHARE: f64 = 0.995;
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether tests may take long, and fetch what is not installed.
fn is_long() -> bool {
    std::env::var_os("SIDEWINDER_PYTHON").is_some()
}

/// Whether a test that takes long, or fetches what is not installed, is to run, and can.
fn runs_long(test: &str) -> Result<bool> {
    if !is_long() {
        requirement::elsewhere(test, "make python-test")?;
        return Ok(false);
    }
    requirement::python(test)
}

/// CPython 3.`minor`: pyenv's, or, where it has none and tests may fetch, Debian's newest.
fn installed(minor: u32) -> Result<Option<PathBuf>> {
    match python::of_pyenv(minor) {
        None if minor == NEWEST && is_long() => debian::interpreter("sid", minor).map(Some),
        found => Ok(found),
    }
}

/// CPython 3.`minor` without the global interpreter lock: pyenv's, or, where it has none and tests may fetch, one that is built.
fn free_threaded(minor: u32) -> Result<Option<PathBuf>> {
    match python::free_threaded_of_pyenv(minor) {
        None if is_long() => debian::free_threaded(minor).map(Some),
        found => Ok(found),
    }
}

/// A recorder: the profiler, or whoever runs it.
fn record_of(pid: u32, output: &Path, mut recorder: Command) -> Command {
    recorder.args(["record", "-F", &SAMPLES_PER_SECOND.to_string(), "-p", &pid.to_string(), "-o"]);
    recorder.arg(output);
    recorder
}

/// Profiles a program from its gate to its end, in the form that the name of the output asks for.
fn profile_into(output: &Path, program: Command, recorder: Command) -> Result<Report> {
    profile_with(output, program, recorder, &[])
}

/// The same with further options of `record`.
fn profile_with(output: &Path, program: Command, recorder: Command, options: &[&str]) -> Result<Report> {
    let mut program = Gated::start(program)?;
    let mut recorder = record_of(program.pid(), output, recorder);
    recorder.args(options);
    let mut running = Running::start_sampling(recorder)?;
    program.open()?;
    let report = program.finish()?;
    let ended = running.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    Ok(report)
}

/// The stacks of one process, out of pprof.
fn profile(program: Command, recorder: Command) -> Result<Vec<Stack>> {
    let folder = tempfile::tempdir()?;
    // The recorder may be another user than this one.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
    let output = folder.path().join("out.pb.gz");
    let pid = profile_into(&output, program, recorder)?.pid;
    Ok(from_pprof(&output)?.into_iter().filter(|stack| stack.pid == pid).collect())
}

/// Records a program and its children from its first instruction to its end. The stacks of all of them, out of OTLP.
fn profile_children(program: &Command) -> Result<Vec<Stack>> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp");
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", &SAMPLES_PER_SECOND.to_string(), "-o"]).arg(&output).arg("--");
    command.arg(program.get_program()).args(program.get_args());
    let ended = Running::start(command)?.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    Ok(from_otlp(&Received::from_otlp_file(&output)?))
}

/// Whether a program that was profiled from its gate to its end was understood.
fn assert_right(name: &str, verdict: &Verdict) {
    eprintln!("{name}: {verdict}");
    assert!(verdict.samples() >= ENOUGH, "{name}: {verdict}");
    assert!(verdict.equal_share() >= EQUAL_SHARE, "{name}: {verdict}");
    assert_eq!(verdict.wrong_names, 0, "never a wrong name: {name}: {verdict}");
    assert!(verdict.right_line_share() >= RIGHT_LINE_SHARE, "{name}: {verdict}");
}
