//! Each thread has the stack of its own chain.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Stack, Verdict};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::requirement;

use super::{SECONDS, assert_right, session, stacks_of};

#[promise(CPython)]
fn threads_have_their_own_chains() -> Result<()> {
    let name = "threads of Python";
    if !requirement::python(name)? {
        return Ok(());
    }
    each_thread_has_its_chain(name, Path::new(python::SYSTEM))
}

pub(super) fn each_thread_has_its_chain(name: &str, interpreter: &Path) -> Result<()> {
    let program = PythonProgram::new(interpreter, "threads.py");
    let expected = Expected::of_program(&program, &[])?;
    let session = session(program.command(&[&SECONDS.to_string()]), &[])?;
    let (stacks, report) = (stacks_of(&session), session.report);
    // The main thread only waits for them.
    let is_theirs = |stack: &&Stack| report.tids.contains(&stack.tid);
    let verdict = Verdict::of(&expected, stacks.iter().filter(is_theirs));
    assert_right(name, &verdict);

    let mut chains_of = BTreeMap::<u32, BTreeSet<&str>>::new();
    for (_, tid, chain) in verdict.equal_by_thread.keys() {
        chains_of.entry(*tid).or_default().insert(chain);
    }
    let tids: BTreeSet<u32> = report.tids.iter().copied().collect();
    assert_eq!(chains_of.keys().copied().collect::<BTreeSet<_>>(), tids, "{chains_of:?}");
    assert!(chains_of.values().all(|chains| chains.len() == 1), "{chains_of:?}");
    assert_eq!(
        chains_of.values().flatten().collect::<BTreeSet<_>>().len(),
        expected.chains.len(),
        "{chains_of:?}"
    );
    Ok(())
}
