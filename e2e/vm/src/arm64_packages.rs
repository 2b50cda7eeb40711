//! Debian's packages for arm64, as far as programs in a guest need their files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sidewinder_e2e_debian::archive::Archive;

/// A folder with the files of a suite's packages. They are downloaded once for each version of the first.
pub(crate) fn unpacked(archive: &Archive, suite: &str, packages: &[&str]) -> Result<PathBuf> {
    let versions: Vec<String> = packages
        .iter()
        .map(|package| Ok(format!("{package}={}", archive.version(package, Some(suite))?)))
        .collect::<Result<_>>()?;
    let first = versions.first().context("no packages")?;
    let folder = archive.folder().join(format!("unpacked/{suite}-{first}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let scratch = tempfile::tempdir_in(archive.folder())?;
    for version in &versions {
        archive.unpack(version, scratch.path())?;
    }
    redirect_links(scratch.path(), &folder)?;
    fs::create_dir_all(folder.parent().context("no folder")?)?;
    fs::rename(scratch.keep(), &folder)?;
    Ok(folder)
}

/// These libraries of such a folder, each with its place below `root`.
pub(crate) fn libraries(folder: &Path, names: &[&str], root: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut files = Vec::new();
    for name in names {
        let places = ["lib", "usr/lib"].map(|place| folder.join(place).join("aarch64-linux-gnu").join(name));
        let file = places.into_iter().find(|file| file.is_file());
        let file = file.with_context(|| format!("no {name} in {}", folder.display()))?;
        files.push((file.clone(), root.join("lib/aarch64-linux-gnu").join(name)));
        // Where programs say that their dynamic linker is.
        if name.starts_with("ld-") {
            files.push((file, root.join("lib").join(name)));
        }
    }
    Ok(files)
}

/// Has links below a folder that name an absolute path lead to the file of this path below `place`, to which the root is moved.
fn redirect_links(folder: &Path, place: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_symlink() {
            if let Ok(target) = fs::read_link(&path)?.strip_prefix("/") {
                fs::remove_file(&path)?;
                symlink(place.join(target), &path)?;
            }
        } else if path.is_dir() {
            redirect_links(&path, place)?;
        }
    }
    Ok(())
}
