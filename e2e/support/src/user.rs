//! Commands that run as another user, with few capabilities.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::{paths, sidewinder};

/// A user that programs to profile run as.
pub const PROFILED: u32 = 65534;
/// A user that the profiler runs as, who is not their user.
pub const PROFILER: u32 = 65533;
/// What a sidecar has.
pub const SIDECAR: [&str; 2] = ["bpf", "perfmon"];

/// The command, run by setpriv(1) as a user without groups that has these capabilities alone.
#[must_use]
pub fn as_user(user: u32, capabilities: &[&str], command: &Command) -> Command {
    let set = capabilities.iter().fold("-all".to_owned(), |set, capability| format!("{set},+{capability}"));
    let mut privileged = Command::new("setpriv");
    privileged.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    privileged.args(["inh-caps", "ambient-caps", "bounding-set"].map(|option| format!("--{option}={set}")));
    privileged.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => privileged.env(name, value),
            None => privileged.env_remove(name),
        };
    }
    privileged
}

/// A copy of a program in a folder, for users who may not read the original.
///
/// # Errors
/// When it can't be copied.
pub fn copied_to(folder: &Path, program: &Path) -> Result<Command> {
    let copy = folder.join(program.file_name().context("a program without a name")?);
    fs::copy(program, &copy)?;
    fs::set_permissions(&copy, Permissions::from_mode(0o755))?;
    Ok(Command::new(copy))
}

/// The profiler with the capabilities of a sidecar, as a user whom no other process belongs to; a copy in `folder`.
///
/// # Errors
/// When it is not built, or can't be copied.
pub fn unprivileged_profiler(folder: &Path) -> Result<Command> {
    let mut copy = copied_to(folder, &paths::sidewinder()?)?;
    for (name, _) in sidewinder::command()?.get_envs().filter(|(_, value)| value.is_none()) {
        copy.env_remove(name);
    }
    let mut command = as_user(PROFILER, &SIDECAR, &copy);
    command.stdin(Stdio::null());
    Ok(command)
}
