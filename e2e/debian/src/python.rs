//! CPython out of a suite of Debian, with the C library of that suite; and built from source without the global interpreter
//! lock, or with musl, which no suite has packages of.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::{lock, paths};

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

/// CPython 3.`minor` without the global interpreter lock, built once from the source in a suite that keeps it: some ten minutes
/// of CPU time.
///
/// # Errors
/// When no suite is known to have it, or it can't be downloaded or built.
pub fn free_threaded(minor: u32) -> Result<PathBuf> {
    built(&format!("python3.{minor}t"), minor, |source| {
        let mut configure = Command::new("./configure");
        configure.arg("--disable-gil").current_dir(source);
        Ok(configure)
    })
}

/// CPython 3.`minor` with musl, built likewise, with musl's compiler and none of this machine's libraries.
///
/// # Errors
/// The same.
pub fn with_musl(minor: u32) -> Result<PathBuf> {
    built(&format!("python3.{minor}-musl"), minor, |source| {
        // It wraps a compiler that says what it would otherwise compile for.
        let compiler = source.join("musl-cc");
        let text = "#!/bin/sh\n[ \"$1\" != --print-multiarch ] || { echo x86_64-linux-musl; exit; }\nexec musl-gcc \"$@\"\n";
        fs::write(&compiler, text)?;
        fs::set_permissions(&compiler, Permissions::from_mode(0o755))?;
        let mut configure = Command::new("./configure");
        configure.env("CC", compiler).env("PKG_CONFIG", "false").current_dir(source);
        Ok(configure)
    })
}

/// `configure`: how a folder with the source is configured.
fn built(name: &str, minor: u32, configure: impl FnOnce(&Path) -> Result<Command>) -> Result<PathBuf> {
    let root = paths::cache().join(name);
    let interpreter = root.join("bin/python3");
    fs::create_dir_all(paths::cache())?;
    let _lock = lock::exclusive(&root)?;
    if interpreter.is_file() {
        return Ok(interpreter);
    }
    let archive = match minor {
        13 => Archive::open_sources("trixie")?,
        14 => Archive::open_sources_of_ubuntu("resolute")?,
        _ => bail!("no suite is known to have the source of CPython 3.{minor}"),
    };
    let scratch = tempfile::tempdir_in(paths::cache())?;
    let (source, installed) = (scratch.path().join("source"), scratch.path().join("installed"));
    archive.unpack_source(&format!("python3.{minor}"), &source)?;
    let mut configure = configure(&source)?;
    configure.args(["-q", "--without-ensurepip", "--disable-test-modules"]);
    run(configure.arg(format!("--prefix={}", root.display())))?;
    let jobs = std::thread::available_parallelism()?;
    let make = |arguments: &[&str]| run(Command::new("make").arg("-s").args(arguments).current_dir(&source));
    make(&[&format!("-j{jobs}")])?;
    make(&["install", &format!("DESTDIR={}", installed.display())])?;
    fs::rename(installed.join(root.strip_prefix("/")?), &root)?;
    Ok(interpreter)
}
