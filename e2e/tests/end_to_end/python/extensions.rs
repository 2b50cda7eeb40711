//! An extension module of PyPI between functions of Python: numpy calls back; and it loads a library with 20 MiB of code,
//! OpenBLAS, for whose unwind table no stack waits longer than for the parts that it goes through.

use anyhow::Result;
use sidewinder_e2e_corpus::Registry;
use sidewinder_e2e_judge::python::{Expected, FrameKind, Stack, Verdict};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::PythonProgram;

use super::{SECONDS, assert_right, profile, profile_children, runs_long};

#[promise(CPython, test_all)]
fn numpy_calls_back() -> Result<()> {
    let name = "numpy between functions of Python";
    if !runs_long(name)? {
        return Ok(());
    }
    let program = PythonProgram::new(&Registry::Pypi.fetched()?.join("bin/python"), "extension.py");
    let expected = Expected::of_program(&program, &[])?;
    let stacks = profile(program.command(&[&SECONDS.to_string()]))?;
    assert_right(name, &Verdict::of(&expected, &stacks));
    // numpy's own functions are there: the ufunc is called by Python, and calls Python.
    let has_numpy = |names: &[&str]| names.iter().any(|name| name.contains("ufunc"));
    let through = stacks.iter().filter(|stack| {
        let names: Vec<&str> = stack.frames.iter().map(|frame| &*frame.name).collect();
        let at = |wanted: &str| names.iter().position(|name| *name == wanted);
        at("maps").zip(at("element")).is_some_and(|(maps, element)| has_numpy(&names[maps..element]))
    });
    let (all, through): (u64, u64) =
        (stacks.iter().map(|stack| stack.count).sum(), through.map(|stack| stack.count).sum());
    assert!(through * 100 >= all * 95, "{through} of {all} samples go through numpy");
    Ok(())
}

/// Of the samples of a program's first second of CPU time, those that are complete, and those with a function of Python.
const FIRST_SECOND_SHARE: f64 = 0.9;

#[promise(CPython, test_all)]
fn numpys_first_second_has_stacks() -> Result<()> {
    let name = "numpy's first second";
    if !runs_long(name)? {
        return Ok(());
    }
    let program = PythonProgram::new(&Registry::Pypi.fetched()?.join("bin/python"), "multiplies.py");
    let stacks = profile_children(&program.command(&["1"]))?;
    let count_of = |is_wanted: &dyn Fn(&&Stack) -> bool| {
        stacks.iter().filter(is_wanted).map(|stack| stack.count).sum::<u64>() as f64
    };
    let has = |stack: &&Stack, kind| stack.frames.iter().any(|frame| frame.kind == kind);
    let all = count_of(&|_| true);
    let complete = count_of(&|stack| !has(stack, FrameKind::Marker)) / all;
    let with_python = count_of(&|stack| has(stack, FrameKind::Python)) / all;
    eprintln!(
        "{name}: of {all} samples, {complete:.3} are complete, {with_python:.3} have functions of Python"
    );
    assert!(
        all > 500.0 && complete.min(with_python) >= FIRST_SECOND_SHARE,
        "{all}, {complete}, {with_python}"
    );
    Ok(())
}
