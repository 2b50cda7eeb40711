//! `make vm-test ARCH=arm64`: Debian's kernels for arm64, with pages of 4 and 16 KiB, each profiling programs whose return
//! addresses are signed or not, with and without frame pointers, in C, C++ and Go.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_support::workload::{
    LADDER, LADDER_FP, LADDER_GO, LADDER_SIGNED, Program, READS, REC, SIGNALS, SIGNALS_SIGNED,
};
use sidewinder_e2e_support::{paths, requirement};
use sidewinder_e2e_vm::verifier::{Baseline, Verified, series};

use crate::guest::{Root, Told};
use crate::kernels::{Package, Wanted, image};
use crate::machine::{Machine, existing};
use crate::recording::{Limits, Recording};
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
const SUITES: [&str; 3] = ["bookworm", "trixie", "sid"];
const PATIENCE: Duration = Duration::from_secs(1200);

/// Of nearly a thousand samples in which a user stack was found, at most one isn't complete.
const LIMITS: Limits = Limits { complete_percent: 99.9, whole_chain_percent: 99.0 };
/// A young process ends, and starts, outside of its chain.
const YOUNG_LIMITS: Limits = Limits { complete_percent: 99.0, whole_chain_percent: 90.0 };

/// The programs, by their names in the guest, which its script knows.
const PROGRAMS: [(&str, Program); 8] = [
    ("ladder", LADDER),
    ("ladder-pac", LADDER_SIGNED),
    ("ladder-fp", LADDER_FP),
    ("ladder-go", LADDER_GO),
    ("rec", REC),
    ("reads", READS),
    ("signals", SIGNALS),
    ("signals-pac", SIGNALS_SIGNED),
];
/// A recording of a program from its start, with the chain of another one.
const YOUNG: (&str, &str) = ("young", "ladder-pac");

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
    let (baseline, mut failures) = (Baseline::read()?, Failures::default());
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
                failures.tell(found.failures(&baseline));
            }
            Err(error) => failures.tell([format!("{name}: {error:#}")]),
        }
    }
    Ok(if failures.count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn root(archive: &Archive) -> Result<Root> {
    let sidewinder = match std::env::var_os("SIDEWINDER") {
        Some(path) => PathBuf::from(path),
        None => paths::target()?.join("arm64/sidewinder"),
    };
    let sidewinder = existing(sidewinder, "`make build-arm64` builds it")?;
    let busybox = archive.folder().join("busybox");
    if !busybox.is_dir() {
        archive.unpack("busybox-static", &busybox)?;
    }
    let places = ["bin/busybox", "usr/bin/busybox"].map(|name| busybox.join(name));
    let [first, other] = places;
    let busybox = if first.is_file() { first } else { existing(other, "busybox-static has no other")? };
    let mut programs = vec![(sidewinder, "/sidewinder".to_owned())];
    for (name, program) in PROGRAMS {
        programs.push((program.compiled_for_arm64()?, format!("/{name}")));
    }
    Root::of(Machine::Arm64, "init-arm64", &busybox, programs, [])
}

/// What came out on one kernel.
struct Found {
    release: String,
    cpus: u64,
    check: String,
    verified: Verified,
    recordings: Vec<(&'static str, Recording)>,
}

impl Found {
    fn read(told: &Told) -> Result<Self> {
        let names = PROGRAMS.map(|(name, _)| (name, name)).into_iter().chain([YOUNG]);
        let recordings = names.map(|(name, chain)| Ok((name, Recording::read(told, name, chain)?)));
        Ok(Self {
            release: told.section("release")?.trim().to_owned(),
            cpus: told.section("cpus")?.trim().parse()?,
            check: told.section("check")?.to_owned(),
            verified: Verified::parse(told.section("verify")?),
            recordings: recordings.collect::<Result<_>>()?,
        })
    }

    fn rows(&self) -> String {
        let mut rows = format!("{}\n", self.release);
        for ((walk, program), instructions) in &self.verified.instructions {
            rows += &format!("  {walk:<11} {program:<20} {instructions:>7} instructions verified\n");
        }
        for (name, recording) in &self.recordings {
            rows += &recording.row(name);
        }
        rows
    }

    fn failures(&self, baseline: &Baseline) -> Vec<String> {
        let mut failures = Vec::new();
        if self.verified.instructions.is_empty() {
            failures.push("no program was loaded".to_owned());
        }
        if !self.check.contains("exit code 0") {
            failures.push(format!("`sidewinder check`: {}", self.check));
        }
        // Its programs take what those of x86-64 take, or less.
        failures.extend(baseline.breaches(&format!("arm64 {}", series(&self.release)), &self.verified));
        for (name, recording) in &self.recordings {
            let limits = if *name == YOUNG.0 { YOUNG_LIMITS } else { LIMITS };
            failures
                .extend(recording.failures(limits, self.cpus).map(|failure| format!("{name}: {failure}")));
        }
        failures.iter().map(|failure| format!("{}: {failure}", self.release)).collect()
    }
}
