//! Frames of the interpreter's loop are shown on request, one for each activation, and if interpreters aren't read. Functions
//! have names even if nothing else is symbolized.

use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Frame, Stack, Verdict};
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Settings, Switch, profile_by};

use super::{ENOUGH, SAMPLES_PER_SECOND, SECONDS, assert_right, session, stacks_of};

fn chains() -> PythonProgram {
    PythonProgram::new(Path::new(python::SYSTEM), "chains.py")
}

#[promise(CPython, test_all)]
fn the_loop_is_shown_where_it_is_asked_for() -> Result<()> {
    let name = "the interpreter's loop";
    if !requirement::python(name)? {
        return Ok(());
    }
    let program = chains();
    let expected = Expected::of_program(&program, &[])?;
    let command = program.command(&[&SECONDS.to_string()]);
    let stacks = stacks_of(&session(command, &[Switch::VmInternals])?);
    let verdict = Verdict::of(&expected, &stacks);
    assert_right(name, &verdict);
    let too_few = verdict.native.with_too_few_loops;
    assert!(too_few * 1000 <= verdict.equal, "{too_few} of {}: {verdict}", verdict.equal);
    Ok(())
}

#[promise(CPython, test_all)]
fn without_interpreters_stacks_have_only_native_frames() -> Result<()> {
    let name = "Python without its interpreter";
    if !requirement::python(name)? {
        return Ok(());
    }
    let command = chains().command(&[&SECONDS.to_string()]);
    let stacks = stacks_of(&session(command, &[Switch::NoInterpreters])?);
    let samples = |stacks: &mut dyn Iterator<Item = &Stack>| stacks.map(|stack| stack.count).sum::<u64>();
    let all = samples(&mut stacks.iter());
    let with_loop = samples(
        &mut stacks
            .iter()
            .filter(|stack| stack.frames.iter().any(|frame| frame.name == "_PyEval_EvalFrameDefault")),
    );
    let with_python = samples(&mut stacks.iter().filter(|stack| stack.python_frames().next().is_some()));
    assert!(all >= ENOUGH && with_loop * 100 >= all * 99, "{with_loop} of {all} samples have the loop");
    assert_eq!(with_python, 0, "of {all} samples");
    Ok(())
}

/// A backend may have the symbols of files, but never those of these functions. `record` leaves no symbols to a backend.
#[promise(CPython, test_all)]
fn functions_have_names_if_symbols_are_left_to_the_backend() -> Result<()> {
    let name = "Python without symbolization";
    if !requirement::python(name)? {
        return Ok(());
    }
    let settings =
        Settings { more: vec!["symbolize: { mode: none }".to_owned()], ..Settings::at(SAMPLES_PER_SECOND) };
    let command = chains().command(&[&SECONDS.to_string()]);
    let stacks = stacks_of(&profile_by(Form::Service, settings, command)?);
    let (mut all, mut named) = (0, 0);
    for stack in &stacks {
        let is_named = |(_, frame): (usize, &Frame)| !frame.name.starts_with('[') && !frame.file.is_empty();
        all += stack.count;
        named += if stack.python_frames().all(is_named) { stack.count } else { 0 };
    }
    assert!(all >= ENOUGH && named * 100 >= all * 99, "{named} of {all} samples have names");
    Ok(())
}
