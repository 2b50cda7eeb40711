//! A program that only calls itself through a function in C. Many interrupts find an activation of the interpreter's loop that
//! has no frame yet, or no more: its callers' frames must not move to other activations.

use std::path::Path;

use anyhow::{Context as _, Result};
use sidewinder_e2e_judge::python::Activations;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::Switch;

use super::{ENOUGH, SECONDS, session, stacks_of};

/// Versions in which an activation has one frame.
const ONE_FRAME: std::ops::RangeInclusive<u32> = 8..=10;
const MINORS: std::ops::RangeInclusive<u32> = 8..=14;
/// Of all samples, those in which each activation has its frames.
const MATCHED_SHARE: f64 = 0.999;
/// Of all samples, those in which the innermost activation may have no frame.
const EDGE_SHARE_MAX: f64 = 0.1;

fn activations(interpreter: &Path, has_one_frame: bool) -> Result<()> {
    let name = interpreter.display();
    let program = PythonProgram::new(interpreter, "recursion.py").command(&[&SECONDS.to_string()]);
    let stacks = stacks_of(&session(program, &[Switch::VmInternals])?);
    let mut activations = Activations::default();
    for stack in &stacks {
        activations.add(stack, has_one_frame);
    }
    eprintln!("{name}: {activations}");
    assert!(activations.samples >= ENOUGH, "{name}: {activations}");
    assert!(activations.matched_share() >= MATCHED_SHARE, "{name}: {activations}");
    // Interrupts at these moments are in each run.
    assert!(activations.at_edge > 0, "{name}: {activations}");
    let edges = activations.at_edge as f64 / activations.samples as f64;
    assert!(edges <= EDGE_SHARE_MAX, "{name}: {activations}");
    Ok(())
}

#[promise(CPython, test_all)]
fn callers_keep_their_frames_while_an_activation_begins_or_ends() -> Result<()> {
    let name = "recursion of Python";
    if !requirement::python(name)? {
        return Ok(());
    }
    for minor in MINORS {
        if let Some(interpreter) = python::of_pyenv(minor) {
            activations(&interpreter, ONE_FRAME.contains(&minor)).with_context(|| format!("3.{minor}"))?;
        }
    }
    activations(Path::new(python::SYSTEM), false)
}
