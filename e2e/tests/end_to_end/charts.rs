//! The charts, as Helm renders them and Kubernetes and Sidewinder read them.
//!
//! - [`made`]: what is kept rendered, or is made from `values.yaml`, is held against what it is made from.
//! - [`judged`]: what Helm, Kubernetes, Sidewinder, a Collector and Prometheus would say of it.
//! - [`kyverno`]: what Kyverno's engine makes of pods by our policy.
//! - [`refused`]: what can't work is refused, and why is said.

mod judged;
mod kyverno;
mod made;
mod refused;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::Value;
use sidewinder_e2e_charts::{self as charts, template, tool};
use sidewinder_e2e_support::command::run;
use tempfile::TempDir;

const HELMS: [&str; 2] = ["helm3", "helm4"];

pub(crate) fn chart() -> PathBuf {
    charts::folder().join("sidewinder")
}

pub(crate) fn helms(test: &str) -> Result<Vec<PathBuf>> {
    let helms = HELMS.iter().map(|helm| tool(test, helm)).collect::<Result<Option<Vec<_>>>>()?;
    Ok(helms.unwrap_or_default())
}

/// The folders of examples of a chart, and of charts that use the library.
fn examples(of: &str) -> Result<Vec<PathBuf>> {
    let folder = charts::folder().join(of).join("examples");
    let entries = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut folders: Vec<PathBuf> = entries.into_iter().filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

/// Values that the chart must take: of the examples, and those that continuous integration installs.
fn values() -> Result<Vec<PathBuf>> {
    let mut values: Vec<PathBuf> =
        examples("sidewinder")?.iter().map(|example| example.join("values.yaml")).collect();
    values.extend(charts::files(&chart().join("ci"))?);
    ensure!(values.len() > 8, "only {} files of values", values.len());
    Ok(values)
}

/// A copy of all charts, in which dependencies can be built.
fn copy() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    run(Command::new("cp").arg("-r").arg(charts::folder()).arg(folder.path().join("charts")))?;
    Ok(folder)
}

/// A copy of a chart that uses the library, with what it depends on.
pub(crate) fn copy_of_user(helm: &Path, folder: &Path) -> Result<(TempDir, PathBuf)> {
    let copy = copy()?;
    let relative = folder.strip_prefix(charts::folder())?;
    let folder = copy.path().join("charts").join(relative);
    // From the folder beside: no network.
    run(Command::new(helm).args(["dependency", "update", "--skip-refresh"]).arg(&folder))?;
    Ok((copy, folder))
}

/// What Helm renders of a chart that uses the library.
fn of_user(helm: &Path, folder: &Path) -> Result<String> {
    let (_copy, folder) = copy_of_user(helm, folder)?;
    run(&mut template::<&str>(helm, &folder, &[]))
}

/// Rendered manifests by the template that they come from. Helm 4 puts empty lines at their ends.
fn by_template(rendered: &str) -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for document in rendered.split("---\n").filter(|document| !document.trim().is_empty()) {
        let source = document.lines().next().and_then(|line| line.rsplit_once('/'));
        let name = source.map_or("unknown.yaml", |(_, name)| name);
        *files.entry(name.to_owned()).or_default() += &format!("---\n{}\n", document.trim_end());
    }
    files
}

/// Every manifest that is kept, with where it is.
pub(crate) fn manifests() -> Result<Vec<(String, Value)>> {
    let mut manifests = Vec::new();
    for file in charts::files(&charts::folder())? {
        let is_kept = file.ancestors().any(|folder| folder.ends_with("rendered"))
            || file.file_name().is_some_and(|name| name == "collector.yaml" || name == "rendered.yaml");
        if is_kept && !file.ancestors().any(|folder| folder.ends_with("templates")) {
            let of = file.strip_prefix(charts::folder())?.display().to_string();
            for document in charts::documents(&fs::read_to_string(&file)?)? {
                manifests.push((of.clone(), document));
            }
        }
    }
    ensure!(manifests.len() > 30, "only {} manifests", manifests.len());
    Ok(manifests)
}
