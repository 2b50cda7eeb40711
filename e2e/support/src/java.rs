//! The JDKs of this machine, and the Java programs of `workloads/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{command, paths};

const FOLDER: &str = "/usr/lib/jvm";

/// The JDKs with the given version in their name, as `java-17-openjdk-amd64` and `temurin-25-jdk-amd64`; of any version for
/// `None`.
#[must_use]
pub fn homes(version: Option<u32>) -> Vec<PathBuf> {
    let folders = fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|entry| entry.path());
    let part = version.map_or("-".to_owned(), |version| format!("-{version}-"));
    let is_home = |path: &PathBuf| {
        let is_version = path.file_name().is_some_and(|name| name.to_string_lossy().contains(&part));
        is_version && !path.is_symlink() && path.join("bin/javac").is_file()
    };
    folders.filter(is_home).collect()
}

/// A folder with the classes of a program, compiled by a JDK of this machine for any version.
///
/// # Errors
/// When there is no JDK, or it refuses.
pub fn compiled(sources: &[&str]) -> Result<tempfile::TempDir> {
    let home = homes(None).into_iter().next().with_context(|| format!("no JDK in {FOLDER}"))?;
    let folder = tempfile::tempdir()?;
    let sources = sources.iter().map(|source| paths::e2e().join("workloads").join(source));
    let mut compiler = Command::new(home.join("bin/javac"));
    command::run(compiler.args(["-nowarn", "--release", "8", "-d"]).arg(folder.path()).args(sources))?;
    Ok(folder)
}

/// Compiles the native half of a program of `workloads/` for a JDK into a shared library in `folder`.
///
/// # Errors
/// When the compiler refuses it.
pub fn native_library(home: &Path, source: &str, flags: &[String], folder: &Path) -> Result<PathBuf> {
    let library = folder.join(source).with_extension("so");
    let include = home.join("include");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-g", "-shared", "-fPIC", "-I"]).arg(&include).arg("-I").arg(include.join("linux"));
    compiler.arg(paths::e2e().join("workloads").join(source)).args(flags).arg("-o").arg(&library);
    command::run(&mut compiler)?;
    Ok(library)
}

/// A command that runs a class of a folder.
#[must_use]
pub fn java(home: &Path, classes: &Path) -> Command {
    let mut command = Command::new(home.join("bin/java"));
    command.arg("-cp").arg(classes);
    command
}
