//! Files of arm64 out of Debian's packages, for what reads files and runs none.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use sidewinder_e2e_support::{lock, paths};

use crate::archive::Archive;

const SUITE: &str = "trixie";

/// Packages with large programs and libraries of all kinds: hand-written assembly, C, C++, Rust and Go.
pub const PACKAGES: [&str; 26] = [
    "bash",
    "cpp-14-aarch64-linux-gnu",
    "docker.io",
    "libavcodec61",
    "libc6",
    "libcurl4t64",
    "libfftw3-double3",
    "libgcc-s1",
    "libgcrypt20",
    "libglib2.0-0t64",
    "libgmp10",
    "libllvm19",
    "libnode115",
    "libpython3.13",
    "librsvg2-2",
    "libruby3.3",
    "libsqlite3-0",
    "libssl3t64",
    "libstdc++6",
    "libx265-215",
    "mariadb-server-core",
    "musl",
    "openjdk-21-jre-headless",
    "perl-base",
    "php8.4-cli",
    "postgresql-17",
];

/// Where the files of all these packages are, below a folder with the name of each.
#[must_use]
pub fn folder() -> PathBuf {
    paths::cache().join("arm64/files")
}

/// The folder with the files of a package. It is downloaded once, and newer versions aren't looked for.
///
/// # Errors
/// When it isn't there and can't be downloaded.
pub fn files(package: &str) -> Result<PathBuf> {
    let files = folder().join(package);
    if files.is_dir() {
        return Ok(files);
    }
    fs::create_dir_all(folder())?;
    // apt has one user at a time.
    let _lock = lock::exclusive(&folder())?;
    if !files.is_dir() {
        let archive = Archive::open_foreign("arm64", "arm64", &[SUITE])?;
        let scratch = tempfile::tempdir_in(archive.folder())?;
        archive.unpack(package, scratch.path())?;
        fs::rename(scratch.path(), &files)?;
    }
    Ok(files)
}
