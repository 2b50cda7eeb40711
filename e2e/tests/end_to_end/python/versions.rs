//! With the oldest version of CPython, 3.8, the newest that is installed here, and the system's; `make python-test` takes each.

use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_debian::python as debian;
use sidewinder_e2e_judge::python::{Expected, Verdict};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::requirement;

use super::threads::each_thread_has_its_chain;
use super::{NEWEST, SECONDS, assert_right, free_threaded, installed, profile, runs_long};

/// Of calls from C in stacks that are equal to a chain, those with a native frame of the interpreter in between.
const SPLICED_SHARE: f64 = 0.999;

pub(super) fn every_chain(name: &str, interpreter: &Path) -> Result<()> {
    let program = PythonProgram::new(interpreter, "chains.py");
    let expected = Expected::of_program(&program, &[])?;
    let seconds = SECONDS.to_string();
    let stacks = profile(program.command(&[&seconds]))?;
    let verdict = Verdict::of(&expected, &stacks);
    assert_right(name, &verdict);
    let met: Vec<_> = verdict.equal_by_thread.keys().map(|(_, _, chain)| chain).collect();
    let missing: Vec<_> =
        expected.chains.iter().map(|chain| &chain.name).filter(|name| !met.contains(name)).collect();
    assert!(missing.is_empty(), "{name}: no sample of {missing:?}");

    let native = &verdict.native;
    assert!(native.calls_from_c > 0, "{name}: {verdict}");
    let spliced = (native.calls_from_c - native.without_native) as f64 / native.calls_from_c as f64;
    assert!(spliced >= SPLICED_SHARE, "{name}: {verdict}");
    assert_eq!(native.loops, 0, "{name}: the interpreter's loop is hidden by default: {verdict}");
    Ok(())
}

const OLDEST: u32 = 8;

fn newest_installed() -> Option<u32> {
    (OLDEST..=NEWEST).rev().find(|minor| python::of_pyenv(*minor).is_some())
}

fn of_pyenv(minor: u32) -> Result<()> {
    let name = format!("CPython 3.{minor}");
    let is_at_an_end = minor == OLDEST || newest_installed().is_none_or(|newest| minor >= newest);
    let can_run = if is_at_an_end { requirement::ebpf(&name)? } else { runs_long(&name)? };
    if !can_run {
        return Ok(());
    }
    match installed(minor)? {
        Some(interpreter) => every_chain(&interpreter.display().to_string(), &interpreter),
        None => {
            requirement::absent(&name, &format!("pyenv has no 3.{minor} here: `pyenv install 3.{minor}`"))
        }
    }
}

#[promise(CPython)]
fn cpython_3_8() -> Result<()> {
    of_pyenv(8)
}

#[promise(CPython, test_all)]
fn cpython_3_9() -> Result<()> {
    of_pyenv(9)
}

#[promise(CPython, test_all)]
fn cpython_3_10() -> Result<()> {
    of_pyenv(10)
}

#[promise(CPython, test_all)]
fn cpython_3_11() -> Result<()> {
    of_pyenv(11)
}

#[promise(CPython, test_all)]
fn cpython_3_12() -> Result<()> {
    of_pyenv(12)
}

#[promise(CPython)]
fn cpython_3_13() -> Result<()> {
    of_pyenv(13)
}

#[promise(CPython)]
fn cpython_3_14() -> Result<()> {
    of_pyenv(14)
}

/// Without the global interpreter lock. The threads run at the same time; in 3.14, each executes its own copy of the bytecode.
fn without_the_lock(minor: u32) -> Result<()> {
    let name = format!("CPython 3.{minor}t");
    if !requirement::ebpf(&name)? {
        return Ok(());
    }
    let Some(interpreter) = free_threaded(minor)? else {
        return requirement::absent(&name, &format!("pyenv has none here: `pyenv install 3.{minor}t`"));
    };
    every_chain(&name, &interpreter)?;
    each_thread_has_its_chain(&name, &interpreter)
}

#[promise(CPython, test_all)]
fn cpython_3_13_without_the_lock() -> Result<()> {
    without_the_lock(13)
}

#[promise(CPython, test_all)]
fn cpython_3_14_without_the_lock() -> Result<()> {
    without_the_lock(14)
}

/// The library, below `main` and below each thread, has no unwind information.
#[promise(CPython, test_all)]
fn cpython_3_13_with_musl() -> Result<()> {
    let name = "CPython 3.13 with musl";
    if !runs_long(name)? || !requirement::program(name, "musl-gcc")? {
        return Ok(());
    }
    let interpreter = debian::with_musl(13)?;
    every_chain(name, &interpreter)?;
    each_thread_has_its_chain(name, &interpreter)
}

/// One executable with all of the interpreter in it, stripped.
#[promise(CPython)]
fn the_systems_python() -> Result<()> {
    let name = "the system's Python";
    if !requirement::python(name)? {
        return Ok(());
    }
    every_chain(python::SYSTEM, Path::new(python::SYSTEM))
}
