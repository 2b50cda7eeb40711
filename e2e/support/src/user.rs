//! Commands that run as another user, with few capabilities.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::sidewinder::Running;
use crate::workload::Held;
use crate::{paths, requirement};

/// A user that programs to profile run as.
pub const PROFILED: u32 = 65534;
/// A user that the profiler runs as, who is not their user.
pub const PROFILER: u32 = 65533;
/// What a sidecar has.
pub const SIDECAR: [&str; 2] = ["bpf", "perfmon"];
/// The first kernel on which programs read the memory of other users' processes.
const LINUX_MINIMUM: (u32, u32) = (6, 1);
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether a user with the capabilities of a sidecar can read the processes of another one here; if not, `test` is recorded as
/// skipped.
///
/// # Errors
/// When something is missing and `CI=true`.
pub fn can_read_others(test: &str) -> Result<bool> {
    Ok(requirement::ebpf(test)?
        && requirement::program(test, "setpriv")?
        && requirement::linux(test, LINUX_MINIMUM)?)
}

/// The command, run by setpriv(1) as a user without groups that has these capabilities alone.
#[must_use]
pub fn as_user(user: u32, capabilities: &[&str], command: &Command) -> Command {
    let set = capabilities.iter().fold("-all".to_owned(), |set, capability| format!("{set},+{capability}"));
    let mut privileged = Command::new("setpriv");
    privileged.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    privileged.args(["inh-caps", "ambient-caps", "bounding-set"].map(|option| format!("--{option}={set}")));
    privileged.arg(command.get_program()).args(command.get_args());
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

/// What came of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// The process id of the program.
    pub pid: u32,
    /// What the program has printed.
    pub printed: String,
}

/// Records a program of [`PROFILED`], from its first instruction on, as [`PROFILER`] with the capabilities of a sidecar.
///
/// The profiler knows the mappings of such a process from events alone. So the program waits behind a gate until it samples. `ends_within`: the program is ended by then.
///
/// # Errors
/// When the program or the profiler fails.
pub fn record(
    program: &Command,
    ends_within: Option<Duration>,
    options: &[&str],
    output: &Path,
) -> Result<Recorded> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let mut program = Held::start(&as_user(PROFILED, &[], program))?;
    let pid = program.pid();

    let mut profiler = copied_to(folder.path(), &paths::sidewinder()?)?;
    profiler.args(["record", "-F", "997", "-p", &pid.to_string()]).args(options).arg("-o").arg(output);
    let mut profiler = as_user(PROFILER, &SIDECAR, &profiler);
    profiler.stdin(Stdio::null());
    let profiling = Running::start_sampling(profiler);
    // Also when that failed: the program ends.
    program.open()?;
    let printed = program.finish(ends_within)?;
    let profiled = profiling?.wait(PATIENCE)?;
    ensure!(profiled.status.success(), "{}: {}", profiled.status, profiled.log);
    eprintln!("{}", profiled.log.trim_end());
    Ok(Recorded { pid, printed })
}
