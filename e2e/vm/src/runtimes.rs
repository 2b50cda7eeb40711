//! `vm-test runtimes`: methods of Java and functions of Node.js on Debian's kernels.

use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_support::{java, paths, requirement};

use crate::guest::{Root, Told, busybox, files_below};
use crate::kernels::{Package, Wanted, image};
use crate::machine::Machine;
use crate::recording::{Limits, Recording};
use crate::{FEW_CPUS, Failures};

const JAVA_VERSION: u32 = 17;
const NODE: &str = "/usr/bin/node";
/// Where the guest has Java.
const JAVA_HOME: &str = "/java";
const PATIENCE: Duration = Duration::from_secs(900);
/// Emulated, the virtual machine's own threads take a good part of the time to compile: their stacks are whole, and have nothing of the
/// chain. So has the program's thread in the kernel's first seconds.
const LIMITS: Limits = Limits { complete_percent: 99.0, whole_chain_percent: 50.0 };
/// The script of the guest.
pub(crate) const INIT: &str = "init-runtimes";
/// Where that expects its recordings.
const RECORDINGS_FILE: &str = "/recordings";
/// The functions of a program, outermost first.
pub(crate) type Chain = fn() -> Vec<String>;
/// Recordings, by their names in the guest, each with the chain of its program.
const RECORDINGS: [(&str, Chain); 4] = [
    ("java", deep_java),
    ("java-interpreted", deep_java),
    ("node", deep_node),
    ("node-interpreted", deep_node),
];
/// Of `Deep.java`, the frames of methods, and of `recursion.js`, the calls, as the commands of the guest have them.
const DEPTH: usize = 40;

pub(crate) fn deep_java() -> Vec<String> {
    let calls = iter::repeat_n("Deep.call(int)", DEPTH - 2);
    iter::once("Deep.main(String[])").chain(calls).chain(["Deep.burn()"]).map(str::to_owned).collect()
}

fn deep_node() -> Vec<String> {
    iter::repeat_n("recurse", DEPTH + 1).chain(["work"]).map(str::to_owned).collect()
}

/// Boots each of the kernels, and profiles each program there.
pub(crate) fn test(archive: &Archive, kernels: impl Iterator<Item = Wanted>) -> Result<ExitCode> {
    let Some(home) = java::homes(Some(JAVA_VERSION)).into_iter().next() else {
        requirement::skip("vm-test of runtimes", &format!("no JDK {JAVA_VERSION}"))?;
        return Ok(ExitCode::SUCCESS);
    };
    if !requirement::program("vm-test of runtimes", "node")? {
        return Ok(ExitCode::SUCCESS);
    }
    let root = root(&home)?;
    let mut failures = Failures::default();
    for wanted in kernels {
        let found = image(archive, Package::amd64(wanted))
            .and_then(|kernel| root.boot(&kernel, FEW_CPUS, PATIENCE))
            .and_then(|told| judge(&told, &RECORDINGS))
            .unwrap_or_else(|error| vec![format!("{error:#}")]);
        failures.tell(found.iter().map(|failure| format!("{wanted:?}: {failure}")));
    }
    Ok(failures.exit_code())
}

/// What failed in these recordings, of which it prints a row each.
pub(crate) fn judge(told: &Told, recordings: &[(&str, Chain)]) -> Result<Vec<String>> {
    println!("{}", told.section("release")?.trim());
    let cpus = told.section("cpus")?.trim().parse()?;
    let mut failures = Vec::new();
    for (name, chain) in recordings {
        let recording = Recording::of_chain(told, name, &chain())?;
        print!("{}", recording.row(name));
        failures.extend(recording.failures(LIMITS, cpus).map(|failure| format!("{name}: {failure}")));
    }
    Ok(failures)
}

fn root(home: &Path) -> Result<Root> {
    let classes = java::compiled(&["Deep.java"])?;
    let library = home.join("lib/server/libjvm.so");
    let programs = [
        (paths::sidewinder()?, "/sidewinder".to_owned()),
        (NODE.into(), NODE.to_owned()),
        (home.join("bin/java"), format!("{JAVA_HOME}/bin/java")),
        (library, format!("{JAVA_HOME}/lib/server/libjvm.so")),
    ];
    let mut files = vec![
        recordings_file("recordings-runtimes"),
        (paths::e2e().join("workloads/recursion.js"), "/recursion.js".into()),
    ];
    files.extend(files_below(classes.path(), Path::new("/classes"))?);
    for folder in ["lib", "conf"] {
        files.extend(files_below(&home.join(folder), &Path::new(JAVA_HOME).join(folder))?);
    }
    // Sources, and the classes of other versions for the compiler.
    files.retain(|(file, _)| !file.ends_with("src.zip") && !file.ends_with("ct.sym"));
    Root::of(Machine::Amd64, INIT, &busybox()?, programs, files)
}

/// A list of recordings in this folder, and its place in the guest.
pub(crate) fn recordings_file(name: &str) -> (PathBuf, PathBuf) {
    (paths::e2e().join("vm").join(name), RECORDINGS_FILE.into())
}
