//! A million frames of each version, without a wrong name; and each activation of the interpreter's loop has its frames.

use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Verdict};
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::session::Switch;

use super::{FREE_THREADED, free_threaded, installed, runs_long, session, stacks_of};

const MINORS: std::ops::RangeInclusive<u32> = 8..=14;
const FRAMES: u64 = 1_000_000;
/// CPU time of one run. A sample has some 30 frames: the chain `deep` has 300.
const SECONDS: &str = "40";
/// Of all samples, those that the program can have.
const POSSIBLE_SHARE: f64 = 0.999;
/// Of all samples, those in which each activation has a group of frames.
const MATCHED_SHARE: f64 = 0.999;
/// Of frames whose line is known beforehand.
const RIGHT_LINE_SHARE: f64 = 0.999;

/// Activations are judged where the loop's frames can be told by their name.
pub(super) fn a_million_frames(interpreter: &Path, is_loop_named: bool) -> Result<()> {
    let name = interpreter.display();
    let program = PythonProgram::new(interpreter, "chains.py");
    let expected = Expected::of_program(&program, &[])?;
    let (mut stacks, mut verdict) = (Vec::new(), Verdict::default());
    while verdict.frames < FRAMES {
        stacks.extend(stacks_of(&session(program.command(&[SECONDS]), &[Switch::VmInternals])?));
        verdict = Verdict::of(&expected, &stacks);
        assert!(verdict.frames > 0, "{name}: {verdict}");
    }
    eprintln!("{name}: {verdict}");
    for (kind, examples) in &verdict.others {
        examples.iter().for_each(|example| eprintln!("  {kind}, {example}"));
    }
    never(verdict.wrong_names > 0, "a wrong name", format_args!("{name}: {verdict}"));
    assert!(verdict.possible_share() >= POSSIBLE_SHARE, "{name}: {verdict}");
    assert!(verdict.right_line_share() >= RIGHT_LINE_SHARE, "{name}: {verdict}");
    let is_matched = verdict.activations.matched_share() >= MATCHED_SHARE;
    assert!(is_matched || !is_loop_named, "{name}: {verdict}");
    Ok(())
}

#[promise(CPython, test_all)]
fn no_name_of_a_million_is_wrong() -> Result<()> {
    let name = "a million frames of Python";
    if !runs_long(name)? {
        return Ok(());
    }
    // One version alone, beside the system's.
    let wanted = std::env::var("SIDEWINDER_PYTHON_MINOR").ok();
    for minor in MINORS.filter(|minor| wanted.as_ref().is_none_or(|wanted| *wanted == minor.to_string())) {
        if let Some(interpreter) = installed(minor)? {
            // Debian's 3.14 has most of the loop in a part that has no name in a stripped file.
            a_million_frames(&interpreter, python::of_pyenv(minor).is_some())?;
        }
    }
    for minor in FREE_THREADED {
        if let Some(interpreter) = free_threaded(minor)? {
            a_million_frames(&interpreter, true)?;
        }
    }
    a_million_frames(Path::new(python::SYSTEM), true)
}
