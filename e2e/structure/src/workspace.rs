use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The packages of the workspace, as `cargo metadata` lists them.
pub struct Workspace {
    /// The folder of the workspace.
    pub root: PathBuf,
    /// Its packages, sorted by name.
    pub packages: Vec<Package>,
}

/// A package of the workspace.
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its folder, relative to the workspace's.
    pub folder: PathBuf,
    /// The packages of the workspace that its libraries and programs use; those that only its tests use are left out.
    pub uses: BTreeSet<String>,
    /// The root files of its libraries and programs, relative to the workspace's folder.
    pub roots: Vec<PathBuf>,
}

impl Workspace {
    /// Asks cargo for the workspace that contains a folder.
    pub fn of(folder: &Path) -> Result<Self> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .current_dir(folder)
            .output()
            .context("run cargo metadata")?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Metadata = serde_json::from_slice(&output.stdout).context("parse cargo metadata")?;
        let root = metadata.workspace_root;
        let mut packages = metadata
            .packages
            .into_iter()
            .map(|package| package.relative_to(&root))
            .collect::<Result<Vec<_>>>()?;
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { root, packages })
    }

    /// The lines of Rust in a package's `src` folder, unit tests included.
    pub fn source_lines(&self, package: &Package) -> Result<usize> {
        lines_under(&self.root.join(&package.folder).join("src"))
    }
}

fn lines_under(folder: &Path) -> Result<usize> {
    if !folder.exists() {
        return Ok(0);
    }
    let mut lines = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("list {folder:?}"))? {
        let path = entry?.path();
        if path.is_dir() {
            lines += lines_under(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            lines += fs::read_to_string(&path).with_context(|| format!("read {path:?}"))?.lines().count();
        }
    }
    Ok(lines)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev` or `build`; normal dependencies have none.
    kind: Option<String>,
    /// Of packages in the workspace.
    path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

impl MetadataPackage {
    fn relative_to(self, root: &Path) -> Result<Package> {
        let relative = |path: &Path| {
            path.strip_prefix(root)
                .map(Path::to_path_buf)
                .with_context(|| format!("{path:?} is outside of the workspace"))
        };
        let is_shipped = |target: &&Target| target.kind.iter().any(|kind| kind == "lib" || kind == "bin");
        Ok(Package {
            folder: relative(self.manifest_path.parent().unwrap_or(root))?,
            roots: self
                .targets
                .iter()
                .filter(is_shipped)
                .map(|target| relative(&target.src_path))
                .collect::<Result<_>>()?,
            uses: self
                .dependencies
                .into_iter()
                .filter(|dependency| dependency.path.is_some() && dependency.kind.as_deref() != Some("dev"))
                .map(|dependency| dependency.name)
                .collect(),
            name: self.name,
        })
    }
}
