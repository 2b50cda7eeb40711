//! `make vm-test`: boots Debian's kernels, from the oldest that is supported to the newest there is, and profiles in
//! each a program whose stacks are known. Names of kernels (`bookworm`, `newest`) on the command line choose among them.
//!
//! `runtimes [KERNEL...]` profiles Java and Node.js there.
//!
//! `make vm-test ARCH=arm64`: `arm64 [KERNEL...]` does it with kernels for arm64, and `arm64-python` and `arm64-java` profile Python
//! and Java there.
//!
//! `make image-test`: `image FOLDER` runs the container image's half for arm64, which `make image` wrote into that folder.
//!
//! `make compilers-test`: `compilers PROGRAM...` has the oldest kernel load what different compilers made of the eBPF programs.
#![forbid(unsafe_code)]

mod arm64;
mod arm64_java;
mod arm64_packages;
mod arm64_python;
mod compilers;
mod container_image;
mod guest;
mod kernels;
mod kinds;
mod machine;
mod recording;
mod runtimes;
mod spans;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use guest::{Root, Told};
use kernels::{Package, Wanted, image};
use kinds::Kinds;
use recording::{Limits, Recording, percent, read_summary};
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_support::conservation::{Summary, has_user_stack};
use sidewinder_e2e_support::{log, requirement};
use sidewinder_e2e_vm::verifier::{Baseline, Verified, series};

const KERNELS: [Wanted; 4] =
    [Wanted::Of("bullseye"), Wanted::Of("bookworm"), Wanted::Of("bookworm-backports"), Wanted::Newest];
const PATIENCE: Duration = Duration::from_secs(480);

/// The machine on which memory per CPU is measured.
const MANY_CPUS: u32 = 64;
const FEW_CPUS: u32 = 2;
const MANY_CPUS_KERNEL: Wanted = Wanted::Of("bookworm");
const MANY_CPUS_PATIENCE: Duration = Duration::from_secs(600);
/// Maps and rings may take this much for each possible CPU: a ring of 128 KiB, as `record` has it (a sidecar's has 32), and
/// 44 KiB of all else: of these, 12 are counts of outcomes by kind, 8 frames that are remembered, and 6 functions and frames of
/// virtual machines.
const BYTES_PER_CPU_MAX: u64 = (128 + 44) << 10;

const LIMITS: Limits = Limits { complete_percent: 99.0, whole_chain_percent: 90.0 };
/// Of the samples of a program that has the kernel work, so many find it there.
const IN_KERNEL_PERCENT: f64 = 50.0;

fn main() -> Result<ExitCode> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("arm64", kernels)) = asked.split_first().map(|(first, others)| (first.as_str(), others)) {
        return arm64::test(kernels);
    }
    if asked == ["arm64-python"] {
        return arm64_python::test();
    }
    if asked == ["arm64-java"] {
        return arm64_java::test();
    }
    if let [first, built] = &*asked
        && first == "image"
    {
        return container_image::test(Path::new(built));
    }
    let Some(archive) = or_skip("vm-test", Archive::open())? else { return Ok(ExitCode::SUCCESS) };
    if let Some(("compilers", loaders)) = asked.split_first().map(|(first, others)| (first.as_str(), others))
    {
        return compilers::test(&archive, loaders);
    }
    let (is_of_runtimes, asked) = match asked.split_first() {
        Some((first, others)) if first == "runtimes" => (true, others),
        _ => (false, &*asked),
    };
    let names = KERNELS.map(|wanted| wanted.name());
    if let Some(unknown) = asked.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("there is no kernel {unknown}: name some of {}", names.join(", "));
    }
    let is_asked = |wanted: &Wanted| asked.is_empty() || asked.iter().any(|name| name == wanted.name());
    if is_of_runtimes {
        return runtimes::test(&archive, KERNELS.into_iter().filter(is_asked));
    }
    let root = Root::build()?;
    let (mut baseline, mut failures) = (Baseline::read()?, Failures::default());
    let is_accepting = std::env::var_os("VERIFIER").is_some_and(|word| word == "accept");

    println!("{:<33} {:<11} {:>7}  instructions verified of each program", "kernel", "walk", "load ms");
    let mut few_cpus_bytes = None;
    for wanted in KERNELS.into_iter().filter(is_asked) {
        let kernel = match image(&archive, Package::amd64(wanted)) {
            Ok(kernel) => kernel,
            Err(error) => {
                requirement::skip(&format!("vm-test: {wanted:?}"), &format!("{error:#}"))?;
                continue;
            }
        };
        let booted = root.boot(&kernel, FEW_CPUS, PATIENCE).and_then(|told| Found::read(&told));
        let found = match booted {
            Ok(found) => found,
            Err(error) => {
                failures.tell([format!("{wanted:?}: {error:#}")]);
                continue;
            }
        };
        print!("{}", found.rows());
        let series = series(&found.first.release);
        failures.tell(found.failures());
        if is_accepting {
            baseline.accept(&series, &found.verified);
        } else {
            failures.tell(baseline.breaches(&series, &found.verified).into_iter().map(|breach| {
                format!("{breach}: say why in the commit, and accept it by `make vm-test VERIFIER=accept`")
            }));
        }
        if wanted == MANY_CPUS_KERNEL {
            few_cpus_bytes = Some((found.first.maps_bytes, kernel));
        }
    }
    if is_accepting {
        baseline.write()?;
    }
    if let Some((few_bytes, kernel)) = few_cpus_bytes {
        match root.boot(&kernel, MANY_CPUS, MANY_CPUS_PATIENCE).and_then(|told| First::read(&told)) {
            Ok(first) => failures.tell(first.judge_memory(few_bytes)),
            Err(error) => failures.tell([format!("{MANY_CPUS} CPUs: {error:#}")]),
        }
    }
    Ok(failures.exit_code())
}

/// An archive; `None` where it can't be had, for which `test` is skipped.
fn or_skip(test: &str, archive: Result<Archive>) -> Result<Option<Archive>> {
    archive.map_or_else(
        |error| requirement::skip(test, &format!("{error:#}")).map(|()| None),
        |archive| Ok(Some(archive)),
    )
}

/// What went wrong, each told as soon as it is known: the next kernel takes a minute or more.
#[derive(Default)]
struct Failures {
    count: usize,
}

impl Failures {
    fn tell(&mut self, found: impl IntoIterator<Item = String>) {
        for failure in found {
            eprintln!("FAILED: {failure}");
            self.count += 1;
        }
    }

    fn exit_code(&self) -> ExitCode {
        if self.count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The first recording on a kernel, of a deep chain of calls: all that is asked of a machine with many CPUs.
struct First {
    release: String,
    cpus: u32,
    recording: Recording,
    /// Of its maps and rings.
    maps_bytes: u64,
}

impl First {
    fn read(told: &Told) -> Result<Self> {
        let summary = read_summary::<serde_json::Value>(told, "known")?;
        let maps_bytes = summary.get("maps_bytes").and_then(serde_json::Value::as_u64);
        Ok(Self {
            release: told.section("release")?.trim().to_owned(),
            cpus: told.section("cpus")?.trim().parse()?,
            recording: Recording::read(told, "known", "known")?,
            maps_bytes: maps_bytes.context("the summary has no maps_bytes")?,
        })
    }

    /// Judges what each CPU adds to the memory of a machine with few of them.
    fn judge_memory(&self, few_bytes: u64) -> Option<String> {
        let per_cpu = self.maps_bytes.saturating_sub(few_bytes) / u64::from(MANY_CPUS - FEW_CPUS);
        println!(
            "{} on {} CPUs: maps and rings take {} KiB, {} KiB on {FEW_CPUS}: {} KiB for each CPU; {:.2}% of {} samples are complete",
            self.release,
            self.cpus,
            self.maps_bytes >> 10,
            few_bytes >> 10,
            per_cpu >> 10,
            100.0 * self.recording.summary.complete_share(),
            self.recording.summary.with_user_stack(),
        );
        let is_whole = self.cpus == MANY_CPUS && per_cpu <= BYTES_PER_CPU_MAX;
        (!is_whole).then(|| format!("{} CPUs of {MANY_CPUS}, {per_cpu} bytes for each", self.cpus))
    }
}

/// What came out on one kernel.
struct Found {
    first: First,
    verified: Verified,
    /// Of a program that is mostly in the kernel.
    kernel: Recording,
    /// Of a chain of Python functions.
    python: Recording,
    /// Of a recursion deeper than tail calls reach.
    deep: Summary,
    /// Of all kinds of profile but CPU time.
    kinds: Kinds,
    /// Whether eBPF programs read the memory of processes, rather than a system call.
    reads_memory: bool,
    /// While a CPU went and came back, where there are few.
    cpus_change: Option<CpusChange>,
}

/// What a daemon and a recording make of a CPU that goes and comes back.
struct CpusChange {
    /// What the daemon said.
    log: String,
    recorded: Summary,
}

impl CpusChange {
    fn read(told: &Told) -> Result<Self> {
        Ok(Self { log: told.section("daemon.log")?.to_owned(), recorded: read_summary(told, "cpus")? })
    }

    fn failure(&self) -> Option<String> {
        let recorded = &self.recorded;
        let entries: Vec<_> = log::entries(&self.log).collect();
        let starts = entries.iter().filter(|entry| entry.number("samples_per_second").is_some());
        let ends = entries.iter().filter(|entry| entry.counts("counters").is_some());
        let is_whole = starts.count() == 3
            && ends.count() == 3
            && self.log.contains("exit code 0")
            && recorded.with_user_stack() > 100
            && recorded.check(recorded.events_exported, FEW_CPUS.into()).is_ok();
        (!is_whole).then(|| format!("a CPU went and came back: {}, {recorded:?}", self.log))
    }
}

impl Found {
    fn read(told: &Told) -> Result<Self> {
        let first = First::read(told)?;
        let cpus_change = (first.cpus == FEW_CPUS).then(|| CpusChange::read(told)).transpose()?;
        Ok(Self {
            first,
            verified: Verified::parse(told.section("verify")?),
            kernel: Recording::read(told, "kernel", "kernel")?,
            python: Recording::read(told, "python", "python")?,
            deep: read_summary(told, "deep")?,
            kinds: Kinds::read(told)?,
            reads_memory: told.section("memory")?.trim().is_empty(),
            cpus_change,
        })
    }

    /// The way that `record` walked: the best one of the kernel.
    fn walk(&self) -> &str {
        if self.verified.load_ms.contains_key("loop") { "loop" } else { "tail-calls" }
    }

    fn rows(&self) -> String {
        let mut rows = String::new();
        for (walk, load_ms) in &self.verified.load_ms {
            let programs = self.verified.instructions.iter().filter(|((of, _), _)| of == walk);
            let programs: Vec<String> =
                programs.map(|((_, program), instructions)| format!("{program} {instructions}")).collect();
            let _ =
                writeln!(rows, "{:<33} {walk:<11} {load_ms:>7}  {}", self.first.release, programs.join(", "));
        }
        let deep = self.deep.outcomes.iter().filter(|(name, count)| has_user_stack(name) && **count > 0);
        let deep: Vec<String> = deep.map(|(outcome, count)| format!("{count} {outcome}")).collect();
        for (name, recording) in
            [("chain", &self.first.recording), ("in kernel", &self.kernel), ("Python", &self.python)]
        {
            rows += &recording.row(name);
        }
        let _ = writeln!(rows, "  3,000 deep {}", deep.join(", "));
        for row in self.kinds.rows() {
            let _ = writeln!(rows, "{row}");
        }
        let way = if self.reads_memory { "eBPF programs" } else { "process_vm_readv" };
        let _ = writeln!(rows, "  memory of processes is read by {way}");
        rows
    }

    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.verified.instructions.is_empty() {
            failures.push("no program was loaded".to_owned());
        }
        failures.extend(self.first.recording.failures(LIMITS, self.first.cpus.into()));
        failures.extend(self.kernel.failures(LIMITS, self.first.cpus.into()));
        failures.extend(self.python.failures(LIMITS, self.first.cpus.into()));
        let in_kernel = percent(self.kernel.chains.in_kernel, self.kernel.chains.received);
        if in_kernel < IN_KERNEL_PERCENT {
            failures.push(format!("{in_kernel:.2}% of a program that is in the kernel were found there"));
        }
        let end = if self.walk() == "loop" { "complete" } else { "frame_limit" };
        let share = percent(self.deep.outcome(end), self.deep.with_user_stack());
        if share < LIMITS.whole_chain_percent {
            failures.push(format!("{share:.2}% of 3,000 deep are {end}: {:?}", self.deep));
        }
        failures.extend(self.kinds.failures());
        // Links that name a process are new in Linux 6.1.
        if !self.reads_memory && !self.first.release.starts_with("5.") {
            failures.push("memory of processes is not read by eBPF programs".to_owned());
        }
        failures.extend(self.cpus_change.as_ref().and_then(CpusChange::failure));
        failures.iter().map(|failure| format!("{}: {failure}", self.first.release)).collect()
    }
}
