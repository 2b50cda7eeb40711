//! The charts: the tools that render and judge them, and what is made from them.
#![forbid(unsafe_code)]

mod generated;
pub mod promql;
mod values;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize as _;
use serde_json::Value;
use sidewinder_e2e_support::{paths, requirement};

pub use generated::{compact, schema, with_table};
pub use values::{Described, described};

/// The Kubernetes that charts are rendered for, where nothing else is said.
pub const KUBERNETES: &str = "1.36.0";

/// The folder of all charts.
#[must_use]
pub fn folder() -> PathBuf {
    paths::repository().join("charts")
}

/// A program that `e2e/setup.sh` builds; `None`, and `test` is recorded as skipped, where it did not.
///
/// # Errors
/// When it is missing and `CI=true`.
pub fn tool(test: &str, name: &str) -> Result<Option<PathBuf>> {
    let path = paths::tools()?.join(name);
    if path.exists() {
        return Ok(Some(path));
    }
    requirement::skip(test, &format!("{} is not there: e2e/setup.sh builds it", path.display()))?;
    Ok(None)
}

/// `helm template` of a chart, as release `example` in the namespace `profiling`.
#[must_use]
pub fn template<A: AsRef<OsStr>>(helm: &Path, chart: &Path, arguments: &[A]) -> Command {
    let mut command = Command::new(helm);
    command.args(["template", "example"]).arg(chart);
    command.args(["--namespace", "profiling", "--kube-version", KUBERNETES]).args(arguments);
    command
}

/// The documents of a YAML stream, empty ones left out.
///
/// # Errors
/// When it is no YAML.
pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    let read = serde_yaml::Deserializer::from_str(yaml).map(Value::deserialize);
    let mut documents = read.collect::<Result<Vec<_>, _>>()?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// The files below a folder, by path, in order; links are not followed.
///
/// # Errors
/// When a folder can't be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let of_kind = if entry.file_type()?.is_dir() { &mut folders } else { &mut files };
            of_kind.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Whether `make generated` asks to write what is made, instead of comparing it.
#[must_use]
pub fn accepts() -> bool {
    std::env::var_os("GENERATED").is_some_and(|value| value == "accept")
}

/// Holds a file of the repository against what it is made from; `make generated` writes it.
///
/// # Errors
/// When they differ; the message has the first line that does.
pub fn hold(path: &Path, made: &str) -> Result<()> {
    let kept = fs::read_to_string(path).unwrap_or_default();
    if kept == made {
        return Ok(());
    }
    if accepts() {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        return fs::write(path, made).with_context(|| format!("cannot write {}", path.display()));
    }
    let number = kept.lines().zip(made.lines()).take_while(|(kept, made)| kept == made).count();
    let line = |text: &str| text.lines().nth(number).unwrap_or("(its end)").to_owned();
    bail!(
        "{}:{}: differs from what it is generated from; `make generated` regenerates it\n committed: {}\n generated: {}",
        path.display(),
        number + 1,
        line(&kept),
        line(made)
    );
}
