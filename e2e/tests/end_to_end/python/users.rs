//! Python runs as another user than the recorder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Verdict, from_pprof};
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::user::{PROFILED, as_user, can_read_others, record};

use super::{ENOUGH, RIGHT_LINE_SHARE, SECONDS, assert_right, profile};

/// The chains, in a folder that everybody may read.
fn chains_in(folder: &Path) -> Result<PythonProgram> {
    fs::set_permissions(folder, Permissions::from_mode(0o777))?;
    PythonProgram::new(Path::new(python::SYSTEM), "chains.py").copied_to(folder)
}

#[promise(CPython, test_all)]
fn root_records_another_user() -> Result<()> {
    let name = "Python of another user";
    if !requirement::python(name)? || !requirement::program(name, "setpriv")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let program = chains_in(folder.path())?;
    let expected = Expected::of_program(&program, &[])?;
    let command = as_user(PROFILED, &[], &program.command(&[&SECONDS.to_string()]));
    let stacks = profile(command)?;
    assert_right(name, &Verdict::of(&expected, &stacks));
    Ok(())
}

/// The names are in its memory, to which ptrace(2) gives no access. The start of the program is recorded too: it imports, and is
/// in no chain.
#[promise(CPython, test_all)]
fn a_user_with_the_capabilities_of_a_sidecar_records_another_user() -> Result<()> {
    const WRONG_SHARE: f64 = 0.005;
    let name = "Python of another user, without CAP_SYS_PTRACE";
    if !requirement::python(name)? || !can_read_others(name)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let program = chains_in(folder.path())?;
    let expected = Expected::of_program(&program, &[])?;
    let output = folder.path().join("out.pb.gz");
    let pid = record(&program.command(&[&SECONDS.to_string()]), None, &[], &output)?.pid;
    let stacks: Vec<_> = from_pprof(&output)?.into_iter().filter(|stack| stack.pid == pid).collect();
    let verdict = Verdict::of(&expected, &stacks);
    eprintln!("{name}: {verdict}");
    assert!(verdict.judged() >= ENOUGH, "{name}: {verdict}");
    assert!(verdict.wrong as f64 <= WRONG_SHARE * verdict.judged() as f64, "{name}: {verdict}");
    never(verdict.wrong_names > 0, "a wrong name", format_args!("{name}: {verdict}"));
    assert!(verdict.right_line_share() >= RIGHT_LINE_SHARE, "{name}: {verdict}");
    Ok(())
}
