//! `make vm-test ARCH=arm64`: Python functions of Debian's CPythons for arm64, with the lock of the interpreter and without it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_support::paths;

use crate::arm64;
use crate::arm64_packages::{libraries, unpacked};
use crate::guest::{Root, Told, files_below};
use crate::kernels::image;
use crate::machine::Machine;
use crate::recording::{Limits, Recording};
use crate::{FEW_CPUS, Failures, or_skip};

/// The kernel, as the command line of `vm-test arm64` calls it.
const KERNEL: &str = "trixie";
const PATIENCE: Duration = Duration::from_secs(900);
/// The chain is climbed twice a second: stacks of that time are whole, and a part of it.
const LIMITS: Limits = Limits { complete_percent: 99.0, whole_chain_percent: 75.0 };
/// The suites, with the minor versions of their Pythons.
const PYTHONS: [(&str, u32); 3] = [("bookworm", 11), ("trixie", 13), ("sid", 14)];
/// Recordings, by their names in the guest.
const RECORDINGS: [&str; 6] = ["3.11", "3.11-released", "3.13", "3.13-released", "3.14", "3.14-released"];
const FOUND: &str = "found the state of 1 threads";

/// Boots a kernel, and profiles each Python there.
pub(crate) fn test() -> Result<ExitCode> {
    let Some(archive) = or_skip("Python on arm64", arm64::archive())? else { return Ok(ExitCode::SUCCESS) };
    let kernel = image(&archive, arm64::kernel(KERNEL).context("no such kernel")?)?;
    let told = root(&archive)?.boot(&kernel, FEW_CPUS, PATIENCE)?;
    println!("{}", told.section("release")?.trim());
    let cpus = told.section("cpus")?.trim().parse()?;
    let mut failures = Failures::default();
    for name in RECORDINGS {
        match judge(&told, name, cpus) {
            Ok(found) => failures.tell(found.iter().map(|failure| format!("Python {name}: {failure}"))),
            Err(error) => failures.tell([format!("Python {name}: {error:#}")]),
        }
    }
    Ok(failures.exit_code())
}

fn judge(told: &Told, name: &str, cpus: u64) -> Result<Vec<String>> {
    let recording = Recording::read(told, name, name)?;
    print!("{}", recording.row(name));
    let check = told.section(&format!("{name}.check"))?;
    let check = (!check.contains(FOUND)).then(|| format!("`sidewinder check -p`: {check}"));
    Ok(recording.failures(LIMITS, cpus).chain(check).collect())
}

fn root(archive: &Archive) -> Result<Root> {
    let sidewinder = arm64::sidewinder()?;
    let mut files = Vec::new();
    for (suite, minor) in PYTHONS {
        let folder = python(archive, suite, minor)?;
        files.extend(files_of(&folder, &Path::new("/").join(suite), minor)?);
        files.push((
            paths::e2e().join("workloads/python/ladder.py"),
            Path::new("/").join(suite).join("ladder.py"),
        ));
    }
    let programs = [(sidewinder, "/sidewinder".to_owned())];
    Root::of(Machine::Arm64, "init-arm64-python", &arm64::busybox(archive)?, programs, files)
}

/// The folder with a suite's CPython 3.`minor` and its libraries.
fn python(archive: &Archive, suite: &str, minor: u32) -> Result<PathBuf> {
    let package = format!("python3.{minor}-minimal");
    unpacked(archive, suite, &[&*package, &format!("lib{package}"), "libc6", "libexpat1", "zlib1g"])
}

/// What the chain takes of such a folder: each file, and its place below `root`.
fn files_of(folder: &Path, root: &Path, minor: u32) -> Result<Vec<(PathBuf, PathBuf)>> {
    const LIBRARIES: [&str; 5] =
        ["ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libexpat.so.1", "libz.so.1"];
    let mut files = libraries(folder, &LIBRARIES, root)?;
    let program = format!("usr/bin/python3.{minor}");
    files.push((folder.join(&program), root.join(&program)));
    let modules = format!("usr/lib/python3.{minor}");
    files.extend(files_below(&folder.join(&modules), &root.join(&modules))?);
    Ok(files)
}
