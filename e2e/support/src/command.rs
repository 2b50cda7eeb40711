//! Commands that are run to their end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};

/// Runs a command, which has to succeed, and returns its standard output.
///
/// # Errors
/// When it can't be started or fails; the message has all of its output.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let Output { status, stdout, stderr } = &output;
    let (stdout, stderr) = (String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
    ensure!(status.success(), "{command:?} ended with {status}:\n{stdout}{stderr}");
    Ok(stdout.into_owned())
}

/// The shared libraries that a program loads at its start, and its dynamic linker; none for a static one.
///
/// # Errors
/// When `ldd` can't be run.
pub fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(|path| PathBuf::from(path.trim_end_matches(':'))).collect())
}

/// A shell that sees the second version of control groups alone: crun refuses a machine that has both. Its arguments are
/// the script's.
#[must_use]
pub fn in_second_hierarchy(script: &str) -> Command {
    let mut command = Command::new("unshare");
    let script = format!("mount -t cgroup2 cgroup2 /sys/fs/cgroup && {{ {script}; }}");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    command
}
