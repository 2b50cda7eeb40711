//! A subinterpreter's frames are found while it runs. Those of the interpreter that entered it belong to another state of the
//! same thread: they are said to be missing.

use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Frame, FrameKind};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::PythonProgram;
use sidewinder_e2e_support::requirement;

use super::{installed, profile};

/// Modules that run source text in a subinterpreter are there since 3.12.
const MINORS: std::ops::RangeInclusive<u32> = 12..=14;
const SECONDS: &str = "2";
const ENOUGH: u64 = 200;
/// Of the samples in the subinterpreter.
const RIGHT_SHARE: f64 = 0.99;
const OUTSIDE: &str = "[Python frames missing: no_frames]";
/// In `outer`, called from its module.
const CHAIN: [&str; 3] = ["<module>:12", "outer:4", "inner:"];

/// Python's frames and what stands for them, with lines; that of the innermost function is left out, as it computes.
fn shown(frames: &[Frame]) -> Vec<String> {
    let kinds = [FrameKind::Python, FrameKind::Marker];
    let of_python = frames.iter().filter(|frame| kinds.contains(&frame.kind));
    of_python
        .map(|frame| match (frame.kind, &*frame.name) {
            (FrameKind::Marker, name) => name.to_owned(),
            (_, "inner") => "inner:".to_owned(),
            (_, name) => format!("{name}:{}", frame.line),
        })
        .collect()
}

fn judge(name: &str, interpreter: &Path) -> Result<()> {
    let program = PythonProgram::new(interpreter, "subinterpreters.py").command(&[SECONDS]);
    let expected: Vec<String> = [OUTSIDE].iter().chain(&CHAIN).map(|name| (*name).to_owned()).collect();
    let (mut inside, mut right, mut others) = (0, 0, Vec::new());
    for stack in profile(program)? {
        let shown = shown(&stack.frames);
        if shown.iter().any(|name| name == "inner:") {
            inside += stack.count;
            if shown == expected {
                right += stack.count;
            } else {
                others.push((stack.count, shown));
            }
        }
    }
    eprintln!("{name}: {right} of {inside} samples in the subinterpreter have its frames");
    assert!(inside >= ENOUGH && right as f64 >= RIGHT_SHARE * inside as f64, "{name}: {others:?}");
    Ok(())
}

#[promise(CPython, test_all)]
fn frames_of_a_subinterpreter_are_found() -> Result<()> {
    let name = "subinterpreters of Python";
    if !requirement::ebpf(name)? {
        return Ok(());
    }
    let mut tried = 0;
    for minor in MINORS {
        if let Some(interpreter) = installed(minor)? {
            judge(&interpreter.display().to_string(), &interpreter)?;
            tried += 1;
        }
    }
    if tried == 0 {
        requirement::absent(name, "no CPython of 3.12 or later here")?;
    }
    Ok(())
}
