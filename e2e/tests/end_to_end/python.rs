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

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use sidewinder_e2e_debian::python as debian;
use sidewinder_e2e_judge::python::{Stack, Verdict, from_otlp};
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::session::{Session, Settings, Switch, launch, profile_by};
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

/// Profiles a program from its gate to its end with these switches.
fn session(program: Command, switches: &[Switch]) -> Result<Session> {
    profile_by(Form::of_this_run()?, Settings::at(SAMPLES_PER_SECOND).with(switches), program)
}

/// The stacks of the program's own process.
fn stacks_of(session: &Session) -> Vec<Stack> {
    from_otlp(&session.received).into_iter().filter(|stack| stack.pid == session.report.pid).collect()
}

/// The stacks of a program's own process, from its gate to its end.
fn profile(program: Command) -> Result<Vec<Stack>> {
    Ok(stacks_of(&session(program, &[])?))
}

/// The stacks of a program and its children, from its first instruction to its end.
fn profile_children(program: &Command) -> Result<Vec<Stack>> {
    Ok(from_otlp(&launch(Settings::at(SAMPLES_PER_SECOND), program, None)?.received))
}

/// Whether a program that was profiled from its gate to its end was understood.
fn assert_right(name: &str, verdict: &Verdict) {
    eprintln!("{name}: {verdict}");
    assert!(verdict.samples() >= ENOUGH, "{name}: {verdict}");
    assert!(verdict.equal_share() >= EQUAL_SHARE, "{name}: {verdict}");
    never(verdict.wrong_names > 0, "a wrong name", format_args!("{name}: {verdict}"));
    assert!(verdict.right_line_share() >= RIGHT_LINE_SHARE, "{name}: {verdict}");
}
