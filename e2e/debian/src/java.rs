//! Java out of a suite of Debian, with the C library of that suite.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::archive::Archive;

/// The libraries that `libjvm.so` and the launcher need.
const LIBRARIES: [&str; 4] = ["libc6", "libgcc-s1", "libstdc++6", "zlib1g"];
/// Mounts what a virtual machine needs below the folder, in a mount namespace of its own, and becomes it. Arguments: the folder,
/// the folder of the classes, the path of `java` in the first, and its arguments.
const RUN: &str = "root=$1 classes=$2 java=$3; shift 3
mount -t proc proc \"$root/proc\" && mount --bind /dev \"$root/dev\" && mount --bind \"$classes\" \"$root/classes\" &&
exec chroot \"$root\" \"$java\" \"$@\"";

/// A Java runtime in a folder that is the root of its file system.
#[derive(Debug)]
pub struct Runtime {
    root: PathBuf,
    java: PathBuf,
}

impl Runtime {
    /// The suite's OpenJDK of a version. Its files are downloaded once for each version.
    ///
    /// # Errors
    /// When the suite doesn't have it, or it can't be downloaded.
    pub fn open(suite: &str, version: u32) -> Result<Self> {
        let archive = Archive::open()?;
        let package = format!("openjdk-{version}-jre-headless");
        let release = archive.version(&package, Some(suite))?;
        let folder = archive.folder().join("java");
        let root = folder.join(format!("{suite}-{release}"));
        if !root.is_dir() {
            fs::create_dir_all(&folder)?;
            let scratch = tempfile::tempdir_in(&folder)?;
            for name in LIBRARIES.into_iter().chain([&*package]) {
                let release = archive.version(name, Some(suite))?;
                archive.unpack(&format!("{name}={release}"), scratch.path())?;
            }
            for name in ["lib", "lib64"] {
                // Newer suites have everything below `usr`.
                if !scratch.path().join(name).exists() {
                    symlink(Path::new("usr").join(name), scratch.path().join(name))?;
                }
            }
            fs::rename(scratch.keep(), &root)?;
        }
        for name in ["proc", "dev", "tmp", "classes"] {
            fs::create_dir_all(root.join(name))?;
        }
        let home = format!("usr/lib/jvm/java-{version}-openjdk-amd64");
        let programs = [format!("{home}/bin/java"), format!("{home}/jre/bin/java")];
        let java = programs.into_iter().find(|program| root.join(program).is_file());
        let java = Path::new("/").join(java.with_context(|| format!("no java below {}", root.display()))?);
        Ok(Self { root, java })
    }

    /// A command that runs `java` with the classes of a folder, to which arguments can be added. It becomes the virtual machine,
    /// so its process is this one.
    #[must_use]
    pub fn java(&self, classes: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", RUN, "sh"]).args([&*self.root, classes, &*self.java]);
        command.args(["-cp", "/classes"]);
        command
    }
}
