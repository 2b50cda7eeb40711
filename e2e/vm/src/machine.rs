//! The machines that are emulated.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::command::{libraries_of, run};

/// An architecture with its emulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Machine {
    Amd64,
    Arm64,
}

/// Where Debian's cross compilers for arm64 have libraries.
const ARM64_LIBRARIES: &str = "/usr/aarch64-linux-gnu/lib";

impl Machine {
    /// The machine, which writes what a guest says to `told`, and what its kernel says to `console`. The kernel passes `variables`,
    /// each a `NAME=VALUE`, to its first process.
    pub(crate) fn emulator(self, console: &Path, told: &Path, variables: &str) -> Command {
        let append = |terminal: &str| format!("console={terminal} panic=-1 quiet {variables}");
        let serial = |path: &Path| format!("file:{}", path.display());
        let mut machine = Command::new(self.program());
        // Emulated: no test machine needs to offer virtualisation.
        machine.args(["-accel", "tcg"]);
        match self {
            // QEMU 7.2 emulates cmpxchg16b wrongly on more than one CPU, and kernels do without it.
            Self::Amd64 => machine
                .args(["-cpu", "qemu64,-cx16", "-serial", &serial(console), "-serial", &serial(told)])
                .args(["-append", &append("ttyS0")]),
            // With all extensions: return addresses are signed, and branches are checked. They are signed by an algorithm of QEMU's:
            // emulating that of CPUs takes half of a guest's time. There is one serial line.
            Self::Arm64 => machine
                .args(["-M", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on", "-serial", &serial(told)])
                .args(["-append", &append("ttyAMA0")]),
        };
        machine
    }

    /// The name of the emulator.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// The libraries that a program loads at its start, and its dynamic linker: each file, and its place in the guest.
    pub(crate) fn libraries_of(self, program: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
        if self == Self::Amd64 {
            return Ok(libraries_of(program)?
                .into_iter()
                .map(|library| (library.clone(), library))
                .collect());
        }
        let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
        let mut files = vec![program.to_owned()];
        while let Some(file) = files.pop() {
            let headers = run(Command::new("readelf").args(["-W", "-d", "-l"]).arg(&file))?;
            for name in named_in(&headers) {
                let library = (Path::new(ARM64_LIBRARIES).join(name), Path::new("/lib").join(name));
                if !found.contains(&library) {
                    files.push(library.0.clone());
                    found.push(library);
                }
            }
        }
        Ok(found)
    }
}

/// The names of files that a program's headers ask for, as `readelf` shows them.
fn named_in(headers: &str) -> impl Iterator<Item = &str> {
    headers.lines().filter_map(|line| {
        let interpreter = line.split_once("[Requesting program interpreter: /lib/").map(|(_, name)| name);
        let library = line.split_once("(NEEDED)").and_then(|(_, rest)| Some(rest.split_once('[')?.1));
        interpreter.or(library)?.strip_suffix(']')
    })
}

/// The file, which has to be there.
pub(crate) fn existing(path: PathBuf, remedy: &str) -> Result<PathBuf> {
    path.is_file().then_some(()).with_context(|| format!("no {}: {remedy}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_the_libraries_and_the_linker() {
        let headers = "      [Requesting program interpreter: /lib/ld-linux-aarch64.so.1]\n\
             \x20 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n\
             \x20 0x000000000000000c (INIT)               0x5f8\n";
        assert_eq!(named_in(headers).collect::<Vec<_>>(), ["ld-linux-aarch64.so.1", "libc.so.6"]);
    }
}
