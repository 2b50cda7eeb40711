//! An extension module of PyPI between functions of Python: numpy calls back.

use anyhow::Result;
use sidewinder_e2e_corpus::pypi;
use sidewinder_e2e_judge::python::{Expected, Verdict};
use sidewinder_e2e_support::python::PythonProgram;
use sidewinder_e2e_support::sidewinder;

use super::{SECONDS, assert_right, profile, runs_long};

#[test]
fn numpy_calls_back() -> Result<()> {
    let name = "numpy between functions of Python";
    if !runs_long(name)? {
        return Ok(());
    }
    let program = PythonProgram::new(&pypi::environment()?.join("bin/python"), "extension.py");
    let expected = Expected::of_program(&program, &[])?;
    let stacks = profile(program.command(&[&SECONDS.to_string()]), sidewinder::command()?)?;
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
