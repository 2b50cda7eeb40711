//! Programs of PyPI (`workloads/python/pypi.py`), and the environment that they run in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::{lock, paths, python};

/// What is installed, each in the version that was tried.
const REQUIREMENTS: &str = include_str!("../requirements.txt");

/// A virtual environment of the system's Python under `target/e2e`, fetched from PyPI once.
///
/// # Errors
/// When something can't be fetched or installed.
pub fn environment() -> Result<PathBuf> {
    let folder = paths::compiled()?.join("pypi");
    let _lock = lock::exclusive(&folder)?;
    let installed = folder.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|known| known == REQUIREMENTS) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    run(Command::new(python::SYSTEM).args(["-m", "venv"]).arg(&folder))?;
    let list = folder.join("requirements.txt");
    fs::write(&list, REQUIREMENTS)?;
    // Wheels alone: nothing is compiled here.
    let options =
        ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "-r"];
    run(Command::new(python_of(&folder)).args(["-m", "pip"]).args(options).arg(&list))
        .context("can't fetch what the corpus has of PyPI")?;
    fs::rename(list, installed)?;
    Ok(folder)
}

fn python_of(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}
