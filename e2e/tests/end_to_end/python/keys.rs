//! In a program that uses many pthread keys, the interpreter's own is not among those whose values are in the thread's structure.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Verdict};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::{paths, requirement};

use super::{SECONDS, assert_right, profile};

#[promise(CPython, test_all)]
fn an_interpreter_whose_key_comes_late() -> Result<()> {
    let name = "an interpreter whose key comes late";
    if !requirement::python(name)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let library = folder.path().join("keys.so");
    let source = paths::repository().join("receiver/vm/tests/keys.c");
    run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source))?;
    let program = PythonProgram::new(Path::new(python::SYSTEM), "chains.py");
    let expected = Expected::of_program(&program, &[])?;
    let mut command = program.command(&[&SECONDS.to_string()]);
    command.env("LD_PRELOAD", &library);
    assert_right(name, &Verdict::of(&expected, &profile(command)?));
    Ok(())
}
