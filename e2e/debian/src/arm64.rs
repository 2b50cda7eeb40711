//! Files of arm64 out of Debian's packages: to be read, and to compile programs with.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::workload::Program;
use sidewinder_e2e_support::{lock, paths};

use crate::archive::Archive;

const SUITE: &str = "trixie";

/// Packages with programs and libraries of all kinds, compilers, interpreters and virtual machines among them: hand-written
/// assembly, C, C++, Fortran, Rust, Go and Haskell.
pub const PACKAGES: [&str; 54] = [
    "apache2-bin",
    "bash",
    "binutils-aarch64-linux-gnu",
    "coreutils",
    "cpp-14-aarch64-linux-gnu",
    "docker.io",
    "gcc-14-aarch64-linux-gnu",
    "golang-1.24-go",
    "gstreamer1.0-plugins-bad",
    "gstreamer1.0-plugins-base",
    "gstreamer1.0-plugins-good",
    "libavcodec61",
    "libc6",
    "libclang-cpp19",
    "libcurl4t64",
    "libfftw3-double3",
    "libgcc-s1",
    "libgcrypt20",
    "libglib2.0-0t64",
    "libgmp10",
    "libgtk-4-1",
    "libllvm19",
    "libnode115",
    "libpython3.13",
    "libpython3.13-stdlib",
    "libqt6core6t64",
    "libqt6gui6",
    "librsvg2-2",
    "libruby3.3",
    "libsqlite3-0",
    "libssl3t64",
    "libstdc++6",
    "libwebkit2gtk-4.1-0",
    "libx265-215",
    "llvm-19",
    "mariadb-server-core",
    "musl",
    "netpbm",
    "nodejs",
    "openjdk-21-jdk-headless",
    "openjdk-21-jre-headless",
    "pandoc",
    "perl-base",
    "php8.4-cli",
    "postgresql-17",
    "python3-numpy",
    "python3-pandas",
    "python3-scipy",
    "r-base-core",
    "samba-libs",
    "systemd",
    "texlive-binaries",
    "util-linux",
    "vlc-plugin-base",
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

/// A program in C as a static file with Debian's musl.
///
/// # Errors
/// When musl is not there and can't be downloaded, or the cross compiler is missing or refuses.
pub fn compiled_with_musl(program: Program) -> Result<PathBuf> {
    let folder = files("musl-dev")?;
    let (headers, library) =
        (folder.join("usr/include/aarch64-linux-musl"), folder.join("usr/lib/aarch64-linux-musl"));
    let source = paths::e2e().join("workloads").join(program.source);
    let output = paths::compiled()?.join(format!("arm64-{}-musl", program.name));
    let of_library = |name: &str| library.join(name);
    run(Command::new("aarch64-linux-gnu-gcc")
        .args(["-O2", "-g0", "-fomit-frame-pointer", "-static", "-nostdlib", "-nostdinc", "-isystem"])
        .arg(headers)
        // The compiler's functions that ask the CPU whether it has atomic instructions need glibc.
        .arg("-mno-outline-atomics")
        .args(["crt1.o", "crti.o"].map(of_library))
        .arg(source)
        .arg(of_library("libc.a"))
        .arg("-lgcc")
        .args(["libc.a", "crtn.o"].map(of_library))
        .arg("-o")
        .arg(&output))?;
    Ok(output)
}
