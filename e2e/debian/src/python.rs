//! CPython out of a suite of Debian, with the C library of that suite.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::Result;

use crate::archive::Archive;

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A program that runs the suite's CPython 3.`minor`: a script that becomes the interpreter. Its files are downloaded once for
/// each version.
///
/// # Errors
/// When the suite doesn't have it, or it can't be downloaded.
pub fn interpreter(suite: &str, minor: u32) -> Result<PathBuf> {
    let archive = Archive::open()?;
    let package = format!("python3.{minor}");
    let version = archive.version(&package, Some(suite))?;
    let folder = archive.folder().join("python");
    let root = folder.join(format!("{suite}-{version}"));
    let script = root.join("python3");
    if script.is_file() {
        return Ok(script);
    }
    fs::create_dir_all(&folder)?;
    let scratch = tempfile::tempdir_in(&folder)?;
    let own = [format!("{package}-minimal"), format!("lib{package}-minimal"), format!("lib{package}-stdlib")];
    let others = ["libc6", "libexpat1", "libffi8", "libssl3t64", "libzstd1", "zlib1g"].map(str::to_owned);
    for name in own.into_iter().chain(others) {
        let version = archive.version(&name, Some(suite))?;
        archive.unpack(&format!("{name}={version}"), scratch.path())?;
    }
    // By the suite's dynamic linker: this machine's C library may be older.
    let (usr, libraries) = (root.join("usr"), root.join(LIBRARIES));
    let (usr, libraries) = (usr.display(), libraries.display());
    let text = format!(
        "#!/bin/sh\nPYTHONHOME={usr} exec {libraries}/ld-linux-x86-64.so.2 --library-path {libraries} \\\n\
         \u{20}   --argv0 {package} {usr}/bin/{package} \"$@\"\n"
    );
    let unpacked = scratch.path().join("python3");
    fs::write(&unpacked, text)?;
    fs::set_permissions(unpacked, Permissions::from_mode(0o755))?;
    fs::rename(scratch.keep(), root)?;
    Ok(script)
}
