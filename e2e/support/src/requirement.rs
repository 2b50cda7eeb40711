//! What a test needs of the machine, and what happens where that is missing.
//!
//! A test that cannot run says so on the terminal and in `target/e2e/skipped.txt`, which `make test` prints at
//! its end. Under `CI=true` it fails instead: there, not having looked is not an answer.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::paths;

/// Whether eBPF programs load here, as `sidewinder check` finds; if not, `test` is recorded as skipped.
///
/// # Errors
/// When eBPF does not work and `CI=true`, or when the profiler is not built.
pub fn ebpf(test: &str) -> Result<bool> {
    let output = Command::new(paths::sidewinder()?)
        .arg("check")
        .stdin(Stdio::null())
        .output()
        .context("cannot run `sidewinder check`")?;
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stdout);
    skip(test, &format!("`sidewinder check` ended with {}: {}", output.status, said.trim()))?;
    Ok(false)
}

/// Whether `program` can be found in `PATH`; if not, `test` is recorded as skipped.
///
/// # Errors
/// When it is missing and `CI=true`.
pub fn program(test: &str, program: &str) -> Result<bool> {
    let found = is_installed(program);
    if !found {
        skip(test, &format!("{program} is not installed"))?;
    }
    Ok(found)
}

/// Whether Python programs can be profiled: eBPF programs load here, and Debian's Python is there; if not, `test` is recorded as
/// skipped.
///
/// # Errors
/// As [`ebpf`] and [`program`].
pub fn python(test: &str) -> Result<bool> {
    Ok(ebpf(test)? && program(test, "python3")?)
}

/// Whether Node.js is there, and what `package-lock.json` in `folder` names; if not, `test` is recorded as skipped.
///
/// # Errors
/// When something is missing and `CI=true`.
pub fn packages(test: &str, folder: &Path) -> Result<bool> {
    if !program(test, "node")? {
        return Ok(false);
    }
    let are_installed = folder.join("node_modules/.package-lock.json").is_file();
    if !are_installed {
        skip(
            test,
            &format!("the packages of {} are not installed: e2e/setup.sh --tests does it", folder.display()),
        )?;
    }
    Ok(are_installed)
}

/// Whether the kernel runs a program that needs something that kernels may be built without; if not, `test` is recorded as
/// skipped, in CI too.
///
/// # Errors
/// When the record cannot be written.
pub fn kernel(test: &str, program: &mut Command) -> Result<bool> {
    let refused = match program.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => return Ok(true),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    record(test, &format!("this kernel does not run {:?}: {refused}", program.get_program()))?;
    Ok(false)
}

/// Whether the kernel has this version or a later one; if not, `test` is recorded as skipped, in CI too.
///
/// # Errors
/// When the version is unknown, or the record cannot be written.
pub fn linux(test: &str, wanted: (u32, u32)) -> Result<bool> {
    let has_it = is_linux(wanted)?;
    if !has_it {
        record(test, &format!("it needs Linux {}.{}", wanted.0, wanted.1))?;
    }
    Ok(has_it)
}

/// Whether the kernel has this version or a later one.
///
/// # Errors
/// When the version is unknown.
pub fn is_linux(wanted: (u32, u32)) -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        bail!("{release:?} is no version");
    };
    Ok((major, minor) >= wanted)
}

/// Whether `program`, a name or a path, can be run.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Records that `test` takes so long that it runs under a target of its own: `target`. In CI too.
///
/// # Errors
/// When the record cannot be written.
pub fn elsewhere(test: &str, target: &str) -> Result<()> {
    record(test, &format!("it takes long, and runs under `{target}`"))
}

/// Records that `test` did not run because of something that no machine has to have, in CI neither.
///
/// # Errors
/// When the record cannot be written.
pub fn absent(test: &str, reason: &str) -> Result<()> {
    record(test, reason)
}

/// Records that `test` did not run, and why.
///
/// # Errors
/// Always under `CI=true`.
pub fn skip(test: &str, reason: &str) -> Result<()> {
    if std::env::var_os("CI").is_some_and(|value| value == "true") {
        bail!("{test} could not run: {reason}");
    }
    record(test, reason)
}

fn record(test: &str, reason: &str) -> Result<()> {
    let line = format!("SKIPPED: {test}: {reason}\n");
    // The handle, not the macro: the test runner keeps what the macro prints to itself.
    std::io::stderr().write_all(line.as_bytes())?;
    let list = paths::compiled()?.join("skipped.txt");
    let mut list = OpenOptions::new().create(true).append(true).open(list)?;
    list.write_all(line.as_bytes())?;
    Ok(())
}
