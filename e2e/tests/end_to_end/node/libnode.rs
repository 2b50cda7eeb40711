//! Debian's Node.js: a stripped shared library, in which walks find compiled functions. Its packages are unpacked into a folder, and
//! run in a mount namespace of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{paths, requirement};

use super::{LONG_PROFILED_SECONDS, SETS, Set, judge};

/// The library, that of the newest Debian first.
const LIBRARIES: [&str; 2] = ["libnode115", "libnode108"];
/// What the library depends on and the machine has: of another version, they would not fit its dynamic linker.
const OF_THE_MACHINE: [&str; 3] = ["libc6", "libgcc-s1", "libstdc++6"];
/// Runs `node` with its library, beside which it expects scripts in `/usr/share`.
const SCRIPT: &str = r#"#!/bin/sh
root=$(dirname "$(readlink -f "$0")")
export root LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu"
exec unshare --mount sh -c '
    mount -t overlay overlay -o "lowerdir=$root/usr/share:/usr/share" /usr/share &&
    exec "$root/usr/bin/node" "$@"' sh "$@"
"#;

/// The values of the fields of this name that `apt-cache` prints.
fn fields(arguments: &[&str], name: &str) -> Result<Vec<String>> {
    let text = run(Command::new("apt-cache").args(arguments))?;
    let values = text.lines().filter_map(|line| line.trim().strip_prefix(name));
    Ok(values.map(|value| value.trim().to_owned()).collect())
}

/// Downloads the packages of a library and its program, and unpacks them. Returns a program that runs it.
fn unpack(library: &str, folder: &Path) -> Result<PathBuf> {
    let program = folder.join("run-node");
    if program.is_file() {
        return Ok(program);
    }
    let versions = fields(&["show", "--no-all-versions", library], "Version:")?;
    let version = versions.first().with_context(|| format!("no version of {library}"))?;
    let mut packages = fields(&["depends", library], "Depends:")?;
    packages.retain(|package| !package.starts_with('<') && !OF_THE_MACHINE.contains(&&**package));
    packages.extend([format!("{library}={version}"), format!("nodejs={version}")]);
    fs::create_dir_all(folder)?;
    run(Command::new("apt-get").arg("download").args(&packages).current_dir(folder))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("-x").args([&path, folder]))?;
            fs::remove_file(path)?;
        }
    }
    fs::write(&program, SCRIPT)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

#[promise(V8, test_all)]
fn compiled_functions_of_debians_library_have_names() -> Result<()> {
    let test = "compiled_functions_of_debians_library_have_names";
    if std::env::var_os("SIDEWINDER_NODE").is_none() {
        return requirement::elsewhere(test, "make node-test");
    }
    let is_known = |library: &&str| fields(&["show", library], "Version:").is_ok();
    let Some(library) = LIBRARIES.into_iter().find(is_known) else {
        return requirement::skip(test, &format!("apt knows none of {}", LIBRARIES.join(", ")));
    };
    let program = match unpack(library, &paths::target()?.join("node").join(library)) {
        Ok(program) => program,
        Err(error) => return requirement::skip(test, &format!("{library} can't be unpacked: {error:#}")),
    };
    let sets: Vec<Set> = SETS.into_iter().filter(Set::is_compiled).collect();
    judge(library, &program, &sets, LONG_PROFILED_SECONDS)
}
