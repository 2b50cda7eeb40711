//! `make vm-test ARCH=arm64`: kernels for arm64 of Debian and Ubuntu, with pages of 4, 16 and 64 KiB, each profiling programs whose return
//! addresses are signed or not, with and without frame pointers, in C, C++, Rust and Go.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, bail};
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_debian::arm64::compiled_with_musl;
use sidewinder_e2e_instrumented::examples::build_go_for_arm64;
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::conservation::Summary;
use sidewinder_e2e_support::workload::{
    HIGH, LADDER, LADDER_FP, LADDER_GO, LADDER_SIGNED, LOADER, PLUGIN, PRIVILEGES, Program, READS, REC,
    SIGNALS, SIGNALS_SIGNED, TAGGED, THROWS,
};
use sidewinder_e2e_support::{paths, requirement};
use sidewinder_e2e_vm::verifier::Verified;

use crate::guest::{Root, Told};
use crate::kernels::{Distribution, Package, Wanted, image};
use crate::machine::{Machine, existing};
use crate::recording::{Limits, Recording, read_summary};
use crate::spans::Spans;
use crate::{FEW_CPUS, Failures, or_skip};

/// The kernel with small pages, that with larger ones, and Ubuntu's with the largest ones.
const SMALL_PAGES: &str = "linux-image-cloud-arm64";
const LARGE_PAGES: &str = "linux-image-arm64-16k";
const LARGEST_PAGES: &str = "linux-image-generic-64k";

/// By the name that the command line has for each.
const KERNELS: [(&str, Package); 5] = [
    ("bookworm", debian(SMALL_PAGES, Wanted::Of("bookworm"))),
    ("trixie", debian(SMALL_PAGES, Wanted::Of("trixie"))),
    ("trixie-16k", debian(LARGE_PAGES, Wanted::Of("trixie"))),
    ("newest", debian(SMALL_PAGES, Wanted::Newest)),
    (
        "resolute-64k",
        Package { name: LARGEST_PAGES, wanted: Wanted::Of(UBUNTU_SUITE), distribution: Distribution::Ubuntu },
    ),
];
const UBUNTU_SUITE: &str = "resolute";
const SUITES: [&str; 3] = ["bookworm", "trixie", "sid"];

const fn debian(name: &'static str, wanted: Wanted) -> Package {
    Package { name, wanted, distribution: Distribution::Debian }
}

const PATIENCE: Duration = Duration::from_secs(1800);

/// Emulated, programs take a good part of their time to climb up and down their chains: such a stack is whole, but not the whole
/// chain.
pub(crate) const LIMITS: Limits = Limits { complete_percent: 99.9, whole_chain_percent: 75.0 };
/// While the C++ runtime passes control to a handler, the return address of a frame is already that of the handler, whose frame is
/// not the next one.
const THROWS_LIMITS: Limits = Limits { complete_percent: 99.0, ..LIMITS };
/// What a kernel's verifier may follow of a program: a quarter of its limit.
const INSTRUCTIONS_MAX: u64 = 250_000;

/// The programs, by their names in the guest, which its script knows.
const PROGRAMS: [(&str, Program); 14] = [
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
    ("high", HIGH),
    ("tagged", TAGGED),
    ("privileges", PRIVILEGES),
];
/// Programs that are built by other means: by Rust's compiler for arm64, and as a static file with musl.
const LADDER_RUST: &str = "ladder-rust";
const REC_MUSL: &str = "rec-musl";
/// Recordings, by the names that the script has for them: those of programs that run already, that of one by a user without
/// privileges but those that a sidecar has, and that of a process from its start.
const RECORDINGS: [(&str, Limits); 14] = [
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
    (HIGH_ADDRESSES, LIMITS),
    (SIDECAR, LIMITS),
];
/// A recording of a process from its start.
const YOUNG: &str = "young";
/// No recording: what the kernel's verifier counts.
const VERIFY: &str = "verify";
const SIDECAR: &str = "sidecar";

/// Code and a stack above 2^48, where the kernel has them: those that were built for 48 bits (`CONFIG_ARM64_VA_BITS`) have no such
/// addresses, the older one, of 6.1, and Ubuntu's.
const HIGH_ADDRESSES: &str = "high";
const WITHOUT_HIGH_ADDRESSES: &str = "6.1.";
/// In the release of the kernel with the largest pages.
const HAS_LARGEST_PAGES: &str = "-64k";
/// A recording of a 32-bit program, which the kernel with the largest pages may not run.
const FOREIGN: &str = "foreign";
const FOREIGN_PROGRAM: &str = "rec-armhf";
/// Recordings of spans that a program publishes: in thread-local storage, in the second one through pointers with tags in their
/// highest bytes; and as labels of goroutines, in programs without cgo and with it.
const SPANS: [&str; 4] = ["spans", "tagged", "spans-go", "spans-cgo"];
/// The outcome of its stacks.
const FOREIGN_ABI: &str = "foreign_abi";
/// Names of recordings, separated by commas: those to make, where not all are wanted.
const WANTED: &str = "RECORDINGS";

/// Boots the kernels that are asked for, or all of them.
pub(crate) fn test(asked: &[String]) -> Result<ExitCode> {
    let recordings = wanted_recordings()?;
    if let Some(unknown) = asked.iter().find(|name| KERNELS.iter().all(|(known, _)| known != name)) {
        let names = KERNELS.map(|(name, _)| name);
        bail!("there is no kernel {unknown}: name some of {}", names.join(", "));
    }
    let Some(archive) = or_skip("vm-test of arm64", archive())? else { return Ok(ExitCode::SUCCESS) };
    let mut root = root(&archive)?;
    if let Some(names) = &recordings {
        root = root.with_variable("recordings", &names.join(","));
    }
    let mut failures = Failures::default();
    for (name, package) in KERNELS {
        if !asked.is_empty() && asked.iter().all(|asked| asked != name) {
            continue;
        }
        let kernel = match package.distribution {
            Distribution::Debian => image(&archive, package),
            Distribution::Ubuntu => Archive::open_foreign_of_ubuntu("arm64", "vm-arm64-ubuntu", UBUNTU_SUITE)
                .and_then(|archive| image(&archive, package)),
        };
        let kernel = match kernel {
            Ok(kernel) => kernel,
            Err(error) => {
                requirement::skip(&format!("vm-test of arm64: {name}"), &format!("{error:#}"))?;
                continue;
            }
        };
        match root
            .boot(&kernel, FEW_CPUS, PATIENCE)
            .and_then(|told| Found::read(&told, recordings.as_deref()))
        {
            Ok(found) => {
                print!("{}", found.rows());
                failures.tell(found.failures());
            }
            Err(error) => failures.tell([format!("{name}: {error:#}")]),
        }
    }
    Ok(failures.exit_code())
}

/// The names in [`WANTED`]; `None`: all.
fn wanted_recordings() -> Result<Option<Vec<String>>> {
    let Some(names) = std::env::var(WANTED).ok().filter(|names| !names.is_empty()) else { return Ok(None) };
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    let known: Vec<&str> =
        RECORDINGS.iter().map(|(name, _)| *name).chain([VERIFY, YOUNG, FOREIGN]).chain(SPANS).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no recording {unknown}: name some of {}", known.join(","));
    }
    Ok(Some(names))
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
    programs.push((compiled_with_musl(REC)?, format!("/{REC_MUSL}")));
    programs.push((spans()?, "/spans".to_owned()));
    programs.push((build_go_for_arm64(false)?, "/spans-go".to_owned()));
    programs.push((build_go_for_arm64(true)?, "/spans-cgo".to_owned()));
    programs.push((foreign()?, format!("/{FOREIGN_PROGRAM}")));
    Root::of(Machine::Arm64, "init-arm64", &busybox, programs, [])
}

/// What Debian has for arm64.
pub(crate) fn archive() -> Result<Archive> {
    Archive::open_foreign("arm64", "vm-arm64", &SUITES)
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

/// [`REC`] as a static 32-bit program.
fn foreign() -> Result<PathBuf> {
    let output = paths::compiled()?.join("armhf-rec");
    run(Command::new("arm-linux-gnueabihf-gcc")
        .args(["-O2", "-static"])
        .arg(paths::e2e().join("workloads").join(REC.source))
        .arg("-o")
        .arg(&output))?;
    Ok(output)
}

/// What came out on one kernel.
struct Found {
    release: String,
    cpus: u64,
    check: String,
    /// These are there where they were asked for.
    check_of_sidecar: Option<String>,
    verified: Option<Verified>,
    /// Each with what it has to reach, and an error where a recording failed.
    recordings: Vec<(&'static str, Limits, Result<Recording>)>,
    /// Of the 32-bit program; `None`: not asked for, or the kernel doesn't run it.
    foreign: Option<Result<Summary>>,
    has_high_addresses: bool,
    /// Those that were asked for.
    spans: Vec<(&'static str, Result<Spans>)>,
}

impl Found {
    /// Of the recordings with these names, or of all.
    fn read(told: &Told, wanted: Option<&[String]>) -> Result<Self> {
        let is_wanted = |name: &str| wanted.is_none_or(|names| names.iter().any(|wanted| wanted == name));
        let section_of = |name, section| is_wanted(name).then(|| told.section(section)).transpose();
        let all = RECORDINGS.into_iter().chain([(YOUNG, LIMITS)]);
        let recordings = all
            .filter(|(name, _)| is_wanted(name))
            .map(|(name, limits)| (name, limits, Recording::read(told, name, name)));
        Ok(Self {
            release: told.section("release")?.trim().to_owned(),
            cpus: told.section("cpus")?.trim().parse()?,
            check: told.section("check")?.to_owned(),
            check_of_sidecar: section_of(SIDECAR, "sidecar.check")?.map(str::to_owned),
            verified: section_of(VERIFY, VERIFY)?.map(Verified::parse),
            recordings: recordings.collect(),
            foreign: is_wanted(FOREIGN).then(|| read_foreign(told)).flatten(),
            has_high_addresses: !is_wanted(HIGH_ADDRESSES)
                || told.section("high.chain").is_ok_and(|chain| chain.contains("above")),
            spans: SPANS
                .into_iter()
                .filter(|name| is_wanted(name))
                .map(|name| (name, Spans::read(told, name)))
                .collect(),
        })
    }

    fn rows(&self) -> String {
        let mut rows = format!("{}\n", self.release);
        let verified = self.verified.iter().flat_map(|verified| &verified.instructions);
        for ((walk, program), instructions) in verified {
            rows += &format!("  {walk:<11} {program:<20} {instructions:>7} instructions verified\n");
        }
        for (name, _, recording) in &self.recordings {
            rows += &recording.as_ref().map(|recording| recording.row(name)).unwrap_or_default();
        }
        if let Some(Ok(foreign)) = &self.foreign {
            let (count, all) = (foreign.outcome(FOREIGN_ABI), foreign.with_user_stack());
            rows += &format!("  {FOREIGN:<11} {all:>5} samples, {count} of a 32-bit program\n");
        }
        for (name, spans) in &self.spans {
            rows += &spans.as_ref().map(|spans| spans.row(name)).unwrap_or_default();
        }
        rows
    }

    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.verified.as_ref().is_some_and(|verified| verified.instructions.is_empty()) {
            failures.push("no program was loaded".to_owned());
        }
        for (who, check) in [("root", Some(&self.check)), ("a sidecar", self.check_of_sidecar.as_ref())] {
            if let Some(check) = check.filter(|check| !check.contains("exit code 0")) {
                failures.push(format!("`sidewinder check` of {who}: {check}"));
            }
        }
        let verified = self.verified.iter().flat_map(|verified| &verified.instructions);
        let large = verified.filter(|(_, count)| **count > INSTRUCTIONS_MAX);
        failures.extend(large.map(|((_, program), count)| format!("{program} takes {count} instructions")));
        for (name, limits, recording) in &self.recordings {
            match recording {
                Ok(recording) => failures.extend(
                    recording.failures(*limits, self.cpus).map(|failure| format!("{name}: {failure}")),
                ),
                Err(error) => failures.push(format!("{name}: {error:#}")),
            }
        }
        for (name, spans) in &self.spans {
            match spans {
                Ok(spans) => failures.extend(spans.failures().map(|failure| format!("{name}: {failure}"))),
                Err(error) => failures.push(format!("{name}: {error:#}")),
            }
        }
        failures.extend(self.foreign_failure());
        let may_have_none =
            self.release.starts_with(WITHOUT_HIGH_ADDRESSES) || self.release.contains(HAS_LARGEST_PAGES);
        if !self.has_high_addresses && !may_have_none {
            failures.push("nothing was mapped above 2^48".to_owned());
        }
        failures.iter().map(|failure| format!("{}: {failure}", self.release)).collect()
    }
    /// All stacks of the 32-bit program have to end as those of one.
    fn foreign_failure(&self) -> Option<String> {
        match &self.foreign {
            Some(Ok(foreign)) => {
                let (count, all) = (foreign.outcome(FOREIGN_ABI), foreign.with_user_stack());
                (count < 100 || count < all).then(|| format!("{FOREIGN}: {foreign:?}"))
            }
            Some(Err(error)) => Some(format!("{FOREIGN}: {error:#}")),
            None => None,
        }
    }
}

/// What the profiler says of the 32-bit program; `None`: the kernel doesn't run it, and needn't.
fn read_foreign(told: &Told) -> Option<Result<Summary>> {
    let needs_none = told.section("release").is_ok_and(|release| release.contains(HAS_LARGEST_PAGES));
    match told.section("foreign.json") {
        Err(_) if needs_none => None,
        _ => Some(read_summary(told, FOREIGN)),
    }
}
