//! Python runs as another user than the recorder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Verdict};
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::{requirement, sidewinder};

use super::{SECONDS, assert_right, profile};

const PROFILED: u32 = 65534;

/// `setpriv` to a user without groups.
fn as_user(user: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    command
}

fn is_possible(name: &str) -> Result<bool> {
    if !requirement::python(name)? {
        return Ok(false);
    }
    requirement::program(name, "setpriv")
}

/// Profiles the chains of another user.
fn judge(name: &str, folder: &Path) -> Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    let program = PythonProgram::new(Path::new(python::SYSTEM), "chains.py").copied_to(folder)?;
    let expected = Expected::of_program(&program, &[])?;
    let run = program.command(&[&SECONDS.to_string()]);
    let mut command = as_user(PROFILED);
    command.arg(run.get_program()).args(run.get_args());
    let stacks = profile(command, sidewinder::command()?)?;
    assert_right(name, &Verdict::of(&expected, &stacks));
    Ok(())
}

#[test]
fn root_records_another_user() -> Result<()> {
    let name = "Python of another user";
    if !is_possible(name)? {
        return Ok(());
    }
    judge(name, tempfile::tempdir()?.path())
}
