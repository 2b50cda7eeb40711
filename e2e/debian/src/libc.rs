//! C libraries to build with and to run with: this machine's, musl, and those of Debian's suites.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::paths;

use crate::archive::Archive;

/// What it takes to build with a suite's C library.
const PACKAGES: [&str; 3] = ["libc6", "libc6-dev", "linux-libc-dev"];
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// Which one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Libc {
    /// This machine's.
    Here,
    /// musl, by its compiler.
    Musl,
    /// glibc, from a suite of Debian.
    Debian(&'static str),
}

impl Libc {
    /// What to call it, in a path too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Musl => "musl",
            Self::Debian(suite) => suite,
        }
    }

    /// A compiler whose programs run with it.
    ///
    /// # Errors
    /// When it isn't there, and can't be downloaded.
    pub fn compiler(self) -> Result<Command> {
        match self {
            Self::Here => Ok(Command::new("cc")),
            Self::Musl => Ok(Command::new("musl-gcc")),
            Self::Debian(suite) => {
                let root = downloaded(suite)?;
                let libraries = root.join(LIBRARIES);
                let mut compiler = Command::new("cc");
                compiler.arg(format!("--sysroot={}", root.display()));
                // The compiler's own neighbours come before what is in the root.
                let first = root.join("usr").join(LIBRARIES);
                compiler.arg(format!("-B{}", first.display())).arg(format!("-L{}", first.display()));
                let loader = libraries.join("ld-linux-x86-64.so.2");
                compiler.arg(format!("-Wl,--dynamic-linker={}", loader.display()));
                compiler.arg(format!("-Wl,-rpath={}", libraries.display()));
                Ok(compiler)
            }
        }
    }
}

/// A folder with a suite's C library, its headers, and links that stay inside.
fn downloaded(suite: &str) -> Result<PathBuf> {
    let archive = Archive::open()?;
    let versions = PACKAGES.map(|package| archive.version(package, Some(suite)));
    let libc = versions[0].as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
    let root = archive.folder().join("libc").join(format!("{suite}-{}", libc.replace(':', "_")));
    if root.is_dir() {
        return Ok(root);
    }
    fs::create_dir_all(archive.folder().join("libc"))?;
    let scratch = tempfile::tempdir_in(archive.folder())?;
    let unpacked = scratch.path().join("root");
    for (package, version) in PACKAGES.into_iter().zip(versions) {
        archive.unpack(&format!("{package}={}", version?), &unpacked)?;
    }
    for folder in ["lib", "lib64"] {
        // Newer suites have everything below `usr`.
        if !unpacked.join(folder).exists() {
            symlink(Path::new("usr").join(folder), unpacked.join(folder))?;
        }
    }
    for folder in ["lib64", LIBRARIES, &format!("usr/{LIBRARIES}")] {
        keep_inside(&unpacked.canonicalize()?, &unpacked.join(folder).canonicalize()?)?;
    }
    fs::rename(&unpacked, &root)?;
    Ok(root)
}

/// Has links in a folder to absolute paths lead to what is there below `root`.
fn keep_inside(root: &Path, folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let link = entry?.path();
        let Ok(target) = fs::read_link(&link) else { continue };
        if let Ok(target) = target.strip_prefix("/") {
            let up: PathBuf = folder.strip_prefix(root)?.components().map(|_| "..").collect();
            fs::remove_file(&link)?;
            symlink(up.join(target), &link)?;
        }
    }
    Ok(())
}

/// The version that a program of this library finds, as glibc says it; nothing of others.
///
/// # Errors
/// When no program can be built, or run.
pub fn version(libc: Libc) -> Result<String> {
    const SOURCE: &str = "#include <stdio.h>\n#ifdef __GLIBC__\n#include <gnu/libc-version.h>\nint main() { puts(gnu_get_libc_version()); }\n#else\nint main() { puts(\"musl\"); }\n#endif\n";
    let folder = tempfile::tempdir_in(paths::compiled()?)?;
    let (source, program) = (folder.path().join("version.c"), folder.path().join("version"));
    fs::write(&source, SOURCE)?;
    run(libc.compiler()?.arg(source).arg("-o").arg(&program))?;
    Ok(run(&mut Command::new(program))?.trim().to_owned())
}
