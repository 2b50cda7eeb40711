//! Functions that are made and freed all the time: none has the name or the path of the one that was at its address before.

use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Verdict};
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::requirement;

use super::{profile, runs_long};

/// CPU time. A sample has some six frames, most of which are compared: fewer where many functions had been freed when they
/// were to be read.
const SECONDS: &str = "4";
const FRAMES: u64 = 3_000;

/// Names may be missing: when they are read, some functions have been freed.
fn no_function_has_the_name_of_another(interpreter: &Path) -> Result<()> {
    let name = format!("functions that are replaced, {}", interpreter.display());
    if !requirement::python(&name)? {
        return Ok(());
    }
    let program = PythonProgram::new(interpreter, "replaced.py");
    let expected = Expected::of_program(&program, &[])?;
    let stacks = profile(program.command(&[SECONDS]))?;
    let verdict = Verdict::of(&expected, &stacks);
    eprintln!("{name}: {verdict}");
    assert!(verdict.frames >= FRAMES, "{name}: {verdict}");
    let wrong = verdict.wrong + verdict.wrong_names + verdict.wrong_lines;
    never(wrong > 0, "a wrong name", format_args!("{name}: {verdict}"));
    Ok(())
}

fn of_pyenv(minor: u32) -> Result<()> {
    match super::installed(minor)? {
        Some(interpreter) => no_function_has_the_name_of_another(&interpreter),
        None => requirement::absent(
            &format!("replaced functions of 3.{minor}"),
            &format!("pyenv has no 3.{minor} here"),
        ),
    }
}

#[promise(CPython, test_all)]
fn replaced_functions_of_the_system_have_their_own_names() -> Result<()> {
    no_function_has_the_name_of_another(Path::new(python::SYSTEM))
}

#[promise(CPython, test_all)]
fn replaced_functions_of_3_8_have_their_own_names() -> Result<()> {
    of_pyenv(8)
}

#[promise(CPython, test_all)]
fn replaced_functions_of_3_13_have_their_own_names() -> Result<()> {
    of_pyenv(13)
}

#[promise(CPython, test_all)]
fn replaced_functions_of_the_versions_between_have_their_own_names() -> Result<()> {
    if !runs_long("functions of 3.9 to 3.12 that are replaced")? {
        return Ok(());
    }
    (9..=12).try_for_each(of_pyenv)
}
