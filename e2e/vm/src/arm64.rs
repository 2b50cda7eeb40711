//! `make vm-test ARCH=arm64`: Debian's kernels for arm64, with pages of 4 and 16 KiB, each profiling programs whose return
//! addresses are signed or not, with and without frame pointers, in C, C++, Rust and Go.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, bail};
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::workload::{
    LADDER, LADDER_FP, LADDER_GO, LADDER_SIGNED, LOADER, PLUGIN, PRIVILEGES, Program, READS, REC, SIGNALS,
    SIGNALS_SIGNED, THROWS,
};
use sidewinder_e2e_support::{paths, requirement};
use sidewinder_e2e_vm::verifier::Verified;

use crate::guest::{Root, Told};
use crate::kernels::{Package, Wanted, image};
use crate::machine::{Machine, existing};
use crate::recording::{Limits, Recording};
use crate::spans::Spans;
use crate::{FEW_CPUS, Failures};

/// The kernel with small pages, and that with larger ones.
const SMALL_PAGES: &str = "linux-image-cloud-arm64";
const LARGE_PAGES: &str = "linux-image-arm64-16k";

/// By the name that the command line has for each.
const KERNELS: [(&str, Package); 4] = [
    ("bookworm", Package { name: SMALL_PAGES, wanted: Wanted::Of("bookworm") }),
    ("trixie", Package { name: SMALL_PAGES, wanted: Wanted::Of("trixie") }),
    ("trixie-16k", Package { name: LARGE_PAGES, wanted: Wanted::Of("trixie") }),
    ("newest", Package { name: SMALL_PAGES, wanted: Wanted::Newest }),
];
pub(crate) const SUITES: [&str; 3] = ["bookworm", "trixie", "sid"];
const PATIENCE: Duration = Duration::from_secs(1200);

/// Emulated, programs take a good part of their time to climb up and down their chains: such a stack is whole, but not the whole
/// chain.
pub(crate) const LIMITS: Limits = Limits { complete_percent: 99.9, whole_chain_percent: 75.0 };
/// While the C++ runtime passes control to a handler, the return address of a frame is already that of the handler, whose frame is
/// not the next one.
const THROWS_LIMITS: Limits = Limits { complete_percent: 99.0, ..LIMITS };
/// A young process ends, and starts, outside of its chain. Emulated it takes a while until its table is there: until then its
/// stacks are walked from snapshots, which the outcomes don't count as complete.
const YOUNG_LIMITS: Limits = Limits { complete_percent: 50.0, ..LIMITS };
/// What a kernel's verifier may follow of a program: a quarter of its limit.
const INSTRUCTIONS_MAX: u64 = 250_000;

/// The programs, by their names in the guest, which its script knows.
const PROGRAMS: [(&str, Program); 12] = [
    ("ladder", LADDER),
    ("ladder-pac", LADDER_SIGNED),
    ("ladder-fp", LADDER_FP),
    ("ladder-go", LADDER_GO),
    ("rec", REC),
    ("reads", READS),
    ("signals", SIGNALS),
    ("signals-pac", SIGNALS_SIGNED),
    ("throws", THROWS),
    ("loader", LOADER),
    ("plugin.so", PLUGIN),
    ("privileges", PRIVILEGES),
];
/// Programs that are built by other means: by Rust's compiler for arm64, and as a static file with musl.
const LADDER_RUST: &str = "ladder-rust";
const REC_MUSL: &str = "rec-musl";
/// Recordings, by the names that the script has for them: those of programs that run already, that of one by a user without
/// privileges but those that a sidecar has, and that of a process from its start.
const RECORDINGS: [(&str, Limits); 13] = [
    ("ladder", LIMITS),
    ("ladder-pac", LIMITS),
    ("ladder-fp", LIMITS),
    ("ladder-go", LIMITS),
    ("ladder-rust", LIMITS),
    ("rec", LIMITS),
    ("rec-musl", LIMITS),
    ("reads", LIMITS),
    ("signals", LIMITS),
    ("signals-pac", LIMITS),
    ("throws", THROWS_LIMITS),
    ("loader", LIMITS),
    ("sidecar", LIMITS),
];
/// A recording of a process from its start.
const YOUNG: &str = "young";

/// Boots the kernels that are asked for, or all of them.
pub(crate) fn test(asked: &[String]) -> Result<ExitCode> {
    if let Some(unknown) = asked.iter().find(|name| KERNELS.iter().all(|(known, _)| known != name)) {
        let names = KERNELS.map(|(name, _)| name);
        bail!("there is no kernel {unknown}: name some of {}", names.join(", "));
    }
    let archive = match Archive::open_foreign("arm64", "vm-arm64", &SUITES) {
        Ok(archive) => archive,
        Err(error) => {
            requirement::skip("vm-test of arm64", &format!("{error:#}"))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let root = root(&archive)?;
    let mut failures = Failures::default();
    for (name, package) in KERNELS {
        if !asked.is_empty() && asked.iter().all(|asked| asked != name) {
            continue;
        }
        let kernel = match image(&archive, package) {
            Ok(kernel) => kernel,
            Err(error) => {
                requirement::skip(&format!("vm-test of arm64: {name}"), &format!("{error:#}"))?;
                continue;
            }
        };
        match root.boot(&kernel, FEW_CPUS, PATIENCE).and_then(|told| Found::read(&told)) {
            Ok(found) => {
                print!("{}", found.rows());
                failures.tell(found.failures());
            }
            Err(error) => failures.tell([format!("{name}: {error:#}")]),
        }
    }
    Ok(if failures.count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn root(archive: &Archive) -> Result<Root> {
    let sidewinder = sidewinder()?;
    let busybox = busybox(archive)?;
    let mut programs = vec![(sidewinder, "/sidewinder".to_owned())];
    for (name, program) in PROGRAMS {
        programs.push((program.compiled_for_arm64()?, format!("/{name}")));
    }
    let rust = existing(paths::target()?.join("arm64").join(LADDER_RUST), "`make build-arm64` builds it")?;
    programs.push((rust, format!("/{LADDER_RUST}")));
    programs.push((with_musl(archive)?, format!("/{REC_MUSL}")));
    programs.push((spans()?, "/spans".to_owned()));
    Root::of(Machine::Arm64, "init-arm64", &busybox, programs, [])
}

/// The profiler: `$SIDEWINDER`, or else what `make build-arm64` built.
pub(crate) fn sidewinder() -> Result<PathBuf> {
    let path = match std::env::var_os("SIDEWINDER") {
        Some(path) => PathBuf::from(path),
        None => paths::target()?.join("arm64/sidewinder"),
    };
    existing(path, "`make build-arm64` builds it")
}

/// The kernel that the command line has this name for.
pub(crate) fn kernel(name: &str) -> Option<Package> {
    KERNELS.into_iter().find_map(|(known, package)| (known == name).then_some(package))
}

/// Debian's for arm64.
pub(crate) fn busybox(archive: &Archive) -> Result<PathBuf> {
    let folder = archive.folder().join("busybox");
    if !folder.is_dir() {
        archive.unpack("busybox-static", &folder)?;
    }
    let [first, other] = ["bin/busybox", "usr/bin/busybox"].map(|name| folder.join(name));
    if first.is_file() { Ok(first) } else { existing(other, "busybox-static has no other") }
}

/// The example that publishes spans.
fn spans() -> Result<PathBuf> {
    let output = paths::compiled()?.join("arm64-spans");
    run(Command::new("aarch64-linux-gnu-gcc")
        .args(["-O2", "-pthread", "-rdynamic"])
        .arg(paths::e2e().join("examples/c/spans.c"))
        .arg("-o")
        .arg(&output))?;
    Ok(output)
}

/// [`REC`] as a static file with Debian's musl.
fn with_musl(archive: &Archive) -> Result<PathBuf> {
    let folder = archive.folder().join("musl");
    if !folder.is_dir() {
        archive.unpack("musl-dev", &folder)?;
    }
    let (headers, library) =
        (folder.join("usr/include/aarch64-linux-musl"), folder.join("usr/lib/aarch64-linux-musl"));
    let (source, output) =
        (paths::e2e().join("workloads").join(REC.source), paths::compiled()?.join("arm64-rec-musl"));
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

/// What came out on one kernel.
struct Found {
    release: String,
    cpus: u64,
    check: String,
    check_of_sidecar: String,
    verified: Verified,
    /// Each with what it has to reach, and an error where a recording failed.
    recordings: Vec<(&'static str, Limits, Result<Recording>)>,
    spans: Result<Spans>,
}

impl Found {
    fn read(told: &Told) -> Result<Self> {
        let wanted = RECORDINGS.into_iter().chain([(YOUNG, YOUNG_LIMITS)]);
        let recordings = wanted.map(|(name, limits)| (name, limits, Recording::read(told, name, name)));
        Ok(Self {
            release: told.section("release")?.trim().to_owned(),
            cpus: told.section("cpus")?.trim().parse()?,
            check: told.section("check")?.to_owned(),
            check_of_sidecar: told.section("sidecar.check")?.to_owned(),
            verified: Verified::parse(told.section("verify")?),
            recordings: recordings.collect(),
            spans: Spans::read(told),
        })
    }

    fn rows(&self) -> String {
        let mut rows = format!("{}\n", self.release);
        for ((walk, program), instructions) in &self.verified.instructions {
            rows += &format!("  {walk:<11} {program:<20} {instructions:>7} instructions verified\n");
        }
        for (name, _, recording) in &self.recordings {
            rows += &recording.as_ref().map(|recording| recording.row(name)).unwrap_or_default();
        }
        rows + &self.spans.as_ref().map(Spans::row).unwrap_or_default()
    }

    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.verified.instructions.is_empty() {
            failures.push("no program was loaded".to_owned());
        }
        for (who, check) in [("root", &self.check), ("a sidecar", &self.check_of_sidecar)] {
            if !check.contains("exit code 0") {
                failures.push(format!("`sidewinder check` of {who}: {check}"));
            }
        }
        let large = self.verified.instructions.iter().filter(|(_, count)| **count > INSTRUCTIONS_MAX);
        failures.extend(large.map(|((_, program), count)| format!("{program} takes {count} instructions")));
        for (name, limits, recording) in &self.recordings {
            match recording {
                Ok(recording) => failures.extend(
                    recording.failures(*limits, self.cpus).map(|failure| format!("{name}: {failure}")),
                ),
                Err(error) => failures.push(format!("{name}: {error:#}")),
            }
        }
        match &self.spans {
            Ok(spans) => failures.extend(spans.failures()),
            Err(error) => failures.push(format!("spans: {error:#}")),
        }
        failures.iter().map(|failure| format!("{}: {failure}", self.release)).collect()
    }
}
