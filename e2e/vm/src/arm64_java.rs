//! `make vm-test ARCH=arm64`: methods of Java in Debian's JDKs for arm64, compiled by each compiler, and interpreted.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_support::{java, requirement};

use crate::arm64_packages::{libraries, unpacked};
use crate::guest::{Root, Told, files_below};
use crate::kernels::image;
use crate::machine::Machine;
use crate::runtimes::{Chain, INIT, deep_java, judge, recordings_file};
use crate::{FEW_CPUS, Failures, arm64, or_skip};

/// The kernel, as the command line of `vm-test arm64` calls it.
const KERNEL: &str = "trixie";
const PATIENCE: Duration = Duration::from_secs(900);
/// The suites, with the versions of their Javas.
const JAVAS: [(&str, u32); 3] = [("bookworm", 17), ("trixie", 21), ("trixie", 25)];
/// Of this suite are the libraries for each of them.
const LIBRARIES_OF: &str = "trixie";
const LIBRARY_PACKAGES: [&str; 4] = ["libc6", "libgcc-s1", "libstdc++6", "zlib1g"];
const LIBRARIES: [&str; 9] = [
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libz.so.1",
];
/// Recordings of each, by their names in the guest, with the chain of the program.
const RECORDINGS: [(&str, Chain); 3] = [("c1", deep_java), ("c2", deep_java), ("interpreted", deep_java)];
/// The emulated profiler, which is built without optimisation, takes up to this long for the unwind table of `libjvm.so`.
const OPTION: (&str, &str) = ("option", "--delay=60");
const FOUND: &str = "found its code cache";

/// Boots a kernel for each Java, as a guest has no room for all, and profiles it there.
pub(crate) fn test() -> Result<ExitCode> {
    let Some(archive) = or_skip("Java on arm64", arm64::archive())? else { return Ok(ExitCode::SUCCESS) };
    if java::homes(None).is_empty() {
        requirement::skip("Java on arm64", "no JDK that compiles its program")?;
        return Ok(ExitCode::SUCCESS);
    }
    let kernel = image(&archive, arm64::kernel(KERNEL).context("no such kernel")?)?;
    let mut failures = Failures::default();
    for (suite, version) in JAVAS {
        println!("Java {version} of {suite}");
        let found = root(&archive, suite, version)
            .and_then(|root| root.boot(&kernel, FEW_CPUS, PATIENCE))
            .and_then(|told| judged(&told))
            .unwrap_or_else(|error| vec![format!("{error:#}")]);
        failures.tell(found.iter().map(|failure| format!("Java {version}: {failure}")));
    }
    Ok(failures.exit_code())
}

fn judged(told: &Told) -> Result<Vec<String>> {
    let mut failures = judge(told, &RECORDINGS)?;
    failures.extend(RECORDINGS.iter().filter_map(|(name, _)| unread(told, name)));
    Ok(failures)
}

/// What `check -p` said of a program, unless it can read its methods.
fn unread(told: &Told, name: &str) -> Option<String> {
    let check = told.section(&format!("{name}.check")).unwrap_or("nothing");
    (!check.contains(FOUND)).then(|| format!("{name}: `sidewinder check -p`: {check}"))
}

fn root(archive: &Archive, suite: &str, version: u32) -> Result<Root> {
    let classes = java::compiled(&["Deep.java"])?;
    let packages = unpacked(archive, LIBRARIES_OF, &LIBRARY_PACKAGES)?;
    let mut files = libraries(&packages, &LIBRARIES, Path::new("/"))?;
    files.push(recordings_file("recordings-arm64-java"));
    files.extend(files_below(classes.path(), Path::new("/classes"))?);
    let home = home(archive, suite, version)?;
    for folder in ["bin", "lib", "conf"] {
        files.extend(files_below(&home.join(folder), &Path::new("/java").join(folder))?);
    }
    let programs = [(arm64::sidewinder()?, "/sidewinder".to_owned())];
    let root = Root::of(Machine::Arm64, INIT, &arm64::busybox(archive)?, programs, files)?;
    Ok(root.with_variable(OPTION.0, OPTION.1))
}

/// The folder of a suite's Java of this version.
fn home(archive: &Archive, suite: &str, version: u32) -> Result<PathBuf> {
    let folder = unpacked(archive, suite, &[&format!("openjdk-{version}-jre-headless")])?;
    Ok(folder.join(format!("usr/lib/jvm/java-{version}-openjdk-arm64")))
}
