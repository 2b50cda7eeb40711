//! Python runs as another user than the recorder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Result, ensure};
use sidewinder_e2e_judge::python::{Verdict, from_pprof};
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::sidewinder::Running;
use sidewinder_e2e_support::user::{PROFILED, as_user, unprivileged_profiler};
use sidewinder_e2e_support::workload::Gated;
use sidewinder_e2e_support::{requirement, sidewinder};

use super::{SAMPLES_PER_SECOND, SECONDS, assert_right, expected_of, profile};

fn is_possible(name: &str) -> Result<bool> {
    if !requirement::ebpf(name)? || !requirement::program(name, "python3")? {
        return Ok(false);
    }
    requirement::program(name, "setpriv")
}

/// The chains, in a folder that everybody may read.
fn chains_in(folder: &Path) -> Result<PythonProgram> {
    fs::set_permissions(folder, Permissions::from_mode(0o777))?;
    PythonProgram::new(Path::new(python::SYSTEM), "chains.py").copied_to(folder)
}

#[test]
fn root_records_another_user() -> Result<()> {
    let name = "Python of another user";
    if !is_possible(name)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let program = chains_in(folder.path())?;
    let expected = expected_of(&program, &[])?;
    let command = as_user(PROFILED, &[], &program.command(&[&SECONDS.to_string()]));
    let stacks = profile(command, sidewinder::command()?)?;
    assert_right(name, &Verdict::of(&expected, &stacks));
    Ok(())
}

/// Only memory is read of a process of another user: its mappings are known from events, and its files are those that the
/// recorder has too. So the recorder starts first.
#[test]
fn a_user_with_the_capabilities_of_a_sidecar_records_another_user() -> Result<()> {
    let name = "Python of another user, without CAP_SYS_PTRACE";
    if !is_possible(name)? || !requirement::linux(name, (6, 1))? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let program = chains_in(folder.path())?;
    let expected = expected_of(&program, &[])?;
    let output = folder.path().join("out.pb.gz");
    let mut recorder = unprivileged_profiler(folder.path())?;
    recorder.args(["record", "-F", &SAMPLES_PER_SECOND.to_string(), "--comm", "python3", "-o"]).arg(&output);
    let recorder = Running::start_sampling(recorder)?;
    let mut program = Gated::start(as_user(PROFILED, &[], &program.command(&[&SECONDS.to_string()])))?;
    program.open()?;
    let pid = program.finish()?.pid;
    let ended = recorder.stop()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let stacks: Vec<_> = from_pprof(&output)?.into_iter().filter(|stack| stack.pid == pid).collect();
    assert_right(name, &Verdict::of(&expected, &stacks));
    Ok(())
}
