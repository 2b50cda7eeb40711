//! The Pythons of this machine, and the programs of `workloads/python/`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{command, paths};

/// What Debian installs.
pub const SYSTEM: &str = "/usr/bin/python3";

/// The newest CPython 3.`minor` that pyenv has installed: under `$PYENV_ROOT`, or under `~/.pyenv`.
#[must_use]
pub fn of_pyenv(minor: u32) -> Option<PathBuf> {
    newest_of_pyenv(minor, "")
}

/// The same without the global interpreter lock.
#[must_use]
pub fn free_threaded_of_pyenv(minor: u32) -> Option<PathBuf> {
    newest_of_pyenv(minor, "t")
}

/// `suffix` is what names of folders have behind the version: `3.13.0t`.
fn newest_of_pyenv(minor: u32, suffix: &str) -> Option<PathBuf> {
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")))?;
    let versions = fs::read_dir(root.join("versions")).ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        // As `3.13.0`, and not as `3.13t-dev`.
        let name = entry.file_name();
        let patch = name.to_str()?.strip_prefix(&format!("3.{minor}."))?.strip_suffix(suffix)?;
        let patch: u32 = patch.parse().ok()?;
        let program = entry.path().join("bin/python3");
        program.is_file().then_some((patch, program))
    });
    versions.max().map(|(_, program)| program)
}

/// A program of `workloads/python/`, run by an interpreter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PythonProgram {
    interpreter: PathBuf,
    script: PathBuf,
}

impl PythonProgram {
    /// `script` is the name of its file.
    #[must_use]
    pub fn new(interpreter: &Path, script: &str) -> Self {
        let script = paths::e2e().join("workloads/python").join(script);
        Self { interpreter: interpreter.to_owned(), script }
    }

    /// The same in another folder, for users who may not read the repository.
    ///
    /// # Errors
    /// When it can't be copied.
    pub fn copied_to(&self, folder: &Path) -> Result<Self> {
        let from = self.script.parent().context("no folder")?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.path().is_file() {
                fs::copy(entry.path(), folder.join(entry.file_name()))?;
            }
        }
        let script = folder.join(self.script.file_name().context("no name")?);
        Ok(Self { script, ..self.clone() })
    }

    /// A command that runs it.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.interpreter);
        // Files beside the sources would say where those lay when they were compiled.
        command.arg("-B").arg(&self.script).args(arguments);
        command
    }

    /// Has it write down what its chains are.
    ///
    /// # Errors
    /// When it fails.
    pub fn write_expected(&self, file: &Path, arguments: &[&str]) -> Result<()> {
        command::run(self.command(arguments).arg("--expected").arg(file)).map(drop)
    }
}
