//! Debian's kernels.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sidewinder_e2e_debian::archive::Archive;

/// Which kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// That of a suite.
    Of(&'static str),
    /// The newest of all suites.
    Newest,
}

impl Wanted {
    /// As the command line calls it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Of(suite) => suite,
            Self::Newest => "newest",
        }
    }
}

/// A package of Debian that depends on a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) wanted: Wanted,
}

impl Package {
    /// The kernel for guests: small, and with all that a guest needs built in.
    pub(crate) fn amd64(wanted: Wanted) -> Self {
        Self { name: "linux-image-cloud-amd64", wanted }
    }
}

/// The compressed image of a kernel.
///
/// # Errors
/// When the archive doesn't have it, or hands it out in a form that isn't known.
pub(crate) fn image(archive: &Archive, package: Package) -> Result<PathBuf> {
    let Package { name, wanted } = package;
    let version = match wanted {
        Wanted::Of(suite) => archive.version(name, Some(suite))?,
        Wanted::Newest => archive.version(name, None)?,
    };
    let package = archive.dependency(&format!("{name}={version}"), "linux-image-")?;
    // Since Linux 7 the image itself is in a package of its own.
    let package = archive.dependency(&package, "linux-binary-").unwrap_or(package);
    let folder = archive.folder().join("kernels").join(&package);
    if image_in(&folder).is_none() {
        archive.unpack(&package, &folder)?;
    }
    image_in(&folder).with_context(|| format!("{package} has no vmlinuz"))
}

fn image_in(folder: &Path) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else if entry.file_name().as_encoded_bytes().starts_with(b"vmlinuz") {
                return Some(entry.path());
            }
        }
    }
    None
}
