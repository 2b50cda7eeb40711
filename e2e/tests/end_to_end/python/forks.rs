//! Processes that come and go: workers that are forked, which have different functions at the same addresses, and scripts
//! that live for 50 ms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Verdict};
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::requirement;

use super::{ENOUGH, RIGHT_LINE_SHARE, SECONDS, profile_children};

/// Of the samples with a frame of the program. The start of the program is among them: it imports, and is in no chain.
const WRONG_SHARE: f64 = 0.005;

fn program(script: &str) -> PythonProgram {
    PythonProgram::new(Path::new(python::SYSTEM), script)
}

/// Processes are profiled from their start on, when there is no frame of the program yet.
fn assert_right(name: &str, verdict: &Verdict) {
    assert!(verdict.judged() >= ENOUGH, "{name}: {verdict}");
    assert!(verdict.wrong as f64 <= WRONG_SHARE * verdict.judged() as f64, "{name}: {verdict}");
    assert_names_right(name, verdict);
}

fn assert_names_right(name: &str, verdict: &Verdict) {
    eprintln!("{name}: {verdict}");
    never(verdict.wrong_names > 0, "a wrong name", format_args!("{name}: {verdict}"));
    assert!(verdict.right_line_share() >= RIGHT_LINE_SHARE, "{name}: {verdict}");
}

/// Of the samples of a server with a frame of the program.
const EQUAL_SHARE: f64 = 0.97;

#[promise(CPython, test_all)]
fn each_worker_of_a_server_has_its_own_functions() -> Result<()> {
    let name = "a server of Python that forks";
    if !requirement::python(name)? {
        return Ok(());
    }
    let program = program("fork_server.py");
    let expected = Expected::of_program(&program, &[])?;
    let stacks = profile_children(&program.command(&[&SECONDS.to_string()]))?;
    let verdict = Verdict::of(&expected, &stacks);
    assert_right(name, &verdict);
    assert!(verdict.equal as f64 >= EQUAL_SHARE * verdict.judged() as f64, "{verdict}");

    let mut chains_of = BTreeMap::<u32, BTreeSet<&str>>::new();
    for (pid, _, chain) in verdict.equal_by_thread.keys() {
        chains_of.entry(*pid).or_default().insert(chain);
    }
    assert!(chains_of.len() > expected.chains.len(), "none was forked again: {chains_of:?}");
    assert!(chains_of.values().all(|chains| chains.len() == 1), "{chains_of:?}");
    assert_eq!(chains_of.values().flatten().collect::<BTreeSet<_>>().len(), expected.chains.len());
    Ok(())
}

/// They end before their memory is read, so their functions come with their stacks. Samples from before the interpreter's
/// unwind table is built have no Python frames; a busy machine takes longer for that. On an idle one, `measured` asks for more.
#[promise(CPython, test_all)]
fn names_of_processes_of_50_ms_are_right_and_seldom_missing() -> Result<()> {
    const PROCESSES: u32 = 50;
    const JUDGED_MIN: u64 = 300;
    const UNNAMED_SHARE_MAX: f64 = 0.15;
    let name = "processes of Python that live for 50 ms";
    if !requirement::python(name)? {
        return Ok(());
    }
    let program = program("short.py");
    let expected = Expected::of_program(&program, &[])?;
    let stacks = profile_children(&program.command(&[&PROCESSES.to_string()]))?;
    let verdict = Verdict::of(&expected, &stacks);
    assert!(verdict.judged() >= JUDGED_MIN, "{name}: {verdict}");
    assert_names_right(name, &verdict);
    let unnamed_share = verdict.unnamed as f64 / (verdict.unnamed + verdict.judged()) as f64;
    assert!(unnamed_share < UNNAMED_SHARE_MAX, "{name}: {verdict}");
    Ok(())
}
