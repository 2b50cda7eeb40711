//! Frames of the interpreter's loop are shown on request, one for each activation, and if interpreters aren't read. Functions
//! have names even if nothing else is symbolized.

use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Frame, Stack, Verdict, from_otlp};
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::Gated;

use super::{ENOUGH, SECONDS, assert_right};

/// The stacks of a program, by a service with another setting of its receiver.
fn profile(program: &PythonProgram, setting: &str) -> Result<Vec<Stack>> {
    let collector = Collector::start()?;
    let mut running = Gated::start(program.command(&[&SECONDS.to_string()]))?;
    let settings = Settings { more: vec![setting.to_owned()], ..Settings::of_process(running.pid()) };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    running.open()?;
    let pid = running.finish()?.pid;
    daemon.stop()?;
    Ok(from_otlp(&collector.stop()?).into_iter().filter(|stack| stack.pid == pid).collect())
}

#[test]
fn the_loop_is_shown_where_it_is_asked_for() -> Result<()> {
    let name = "the interpreter's loop";
    if !requirement::python(name)? {
        return Ok(());
    }
    let program = PythonProgram::new(Path::new(python::SYSTEM), "chains.py");
    let expected = Expected::of_program(&program, &[])?;
    let stacks = profile(&program, "symbolize: { vm_internals: show }")?;
    let verdict = Verdict::of(&expected, &stacks);
    assert_right(name, &verdict);
    let too_few = verdict.native.with_too_few_loops;
    assert!(too_few * 1000 <= verdict.equal, "{too_few} of {}: {verdict}", verdict.equal);
    Ok(())
}

#[test]
fn without_interpreters_stacks_have_only_native_frames() -> Result<()> {
    let name = "Python without its interpreter";
    if !requirement::python(name)? {
        return Ok(());
    }
    let program = PythonProgram::new(Path::new(python::SYSTEM), "chains.py");
    let stacks = profile(&program, "interpreters: { python: { disabled: true } }")?;
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

/// A backend may have the symbols of files, but never those of these functions.
#[test]
fn functions_have_names_if_symbols_are_left_to_the_backend() -> Result<()> {
    let name = "Python without symbolization";
    if !requirement::python(name)? {
        return Ok(());
    }
    let program = PythonProgram::new(Path::new(python::SYSTEM), "chains.py");
    let stacks = profile(&program, "symbolize: { mode: none }")?;
    let (mut all, mut named) = (0, 0);
    for stack in &stacks {
        let is_named = |(_, frame): (usize, &Frame)| !frame.name.starts_with('[') && !frame.file.is_empty();
        all += stack.count;
        named += if stack.python_frames().all(is_named) { stack.count } else { 0 };
    }
    assert!(all >= ENOUGH && named * 100 >= all * 99, "{named} of {all} samples have names");
    Ok(())
}
