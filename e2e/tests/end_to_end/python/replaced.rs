//! Functions that are made and freed all the time: none has the name of the one that was at its address before.

use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Verdict};
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::{requirement, sidewinder};

use super::profile;

/// CPU time. A sample has some 28 frames; most have one whose function had been freed when it was to be read, so that
/// of some 110,000 frames 35,000 to 80,000 are compared.
const SECONDS: &str = "4";
const FRAMES: u64 = 5_000;

/// Names may be missing: when they are read, some functions have been freed.
fn no_function_has_the_name_of_another(interpreter: &Path) -> Result<()> {
    let name = format!("functions that are replaced, {}", interpreter.display());
    if !requirement::python(&name)? {
        return Ok(());
    }
    let program = PythonProgram::new(interpreter, "replaced.py");
    let expected = Expected::of_program(&program, &[])?;
    let stacks = profile(program.command(&[SECONDS]), sidewinder::command()?)?;
    let verdict = Verdict::of(&expected, &stacks);
    eprintln!("{name}: {verdict}");
    assert!(verdict.frames >= FRAMES, "{name}: {verdict}");
    assert_eq!((verdict.wrong, verdict.wrong_names, verdict.wrong_lines), (0, 0, 0), "{name}: {verdict}");
    Ok(())
}

#[test]
fn replaced_functions_of_the_system_have_their_own_names() -> Result<()> {
    no_function_has_the_name_of_another(Path::new(python::SYSTEM))
}

#[test]
fn replaced_functions_of_3_13_have_their_own_names() -> Result<()> {
    match super::installed(13)? {
        Some(interpreter) => no_function_has_the_name_of_another(&interpreter),
        None => requirement::absent("replaced functions of 3.13", "pyenv has no 3.13 here"),
    }
}
