//! `make vm-test`: boots Debian's kernels, from the oldest that is supported to the newest there is, and profiles in
//! each a program whose stacks are known. Names of kernels (`bookworm`, `newest`) on the command line choose among them.
//!
//! `make compilers-test`: `compilers PROGRAM...` has the oldest kernel load what different compilers made of the eBPF programs.
#![forbid(unsafe_code)]

mod compilers;
mod guest;
mod kernels;
mod kinds;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use guest::{Root, Told};
use kernels::{Wanted, image};
use kinds::Kinds;
use serde::de::DeserializeOwned;
use sidewinder_e2e_debian::archive::Archive;
use sidewinder_e2e_support::conservation::{Summary, has_user_stack};
use sidewinder_e2e_support::{requirement, workload};
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
/// 36 KiB of all else: of these, 8 are frames that are remembered, 6 counts of outcomes by kind, and 5 functions and frames of
/// virtual machines.
const BYTES_PER_CPU_MAX: u64 = (128 + 36) << 10;

/// Of the samples that found a user stack, so many are complete.
const COMPLETE_PERCENT: f64 = 99.0;
/// Of all samples that are complete, so many show the whole chain: the rest were taken before it began or after it ended.
const WHOLE_CHAIN_PERCENT: f64 = 90.0;
/// Of the samples of a program that has the kernel work, so many find it there.
const IN_KERNEL_PERCENT: f64 = 50.0;

fn main() -> Result<ExitCode> {
    let archive = match Archive::open() {
        Ok(archive) => archive,
        Err(error) => {
            requirement::skip("vm-test", &format!("{error:#}"))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("compilers", loaders)) = asked.split_first().map(|(first, others)| (first.as_str(), others))
    {
        return compilers::test(&archive, loaders);
    }
    let root = Root::build()?;
    let (mut baseline, mut failures) = (Baseline::read()?, Failures::default());
    let is_accepting = std::env::var_os("VERIFIER").is_some_and(|word| word == "accept");

    println!("{:<33} {:<11} {:>7}  instructions verified of each program", "kernel", "walk", "load ms");
    let mut few_cpus_bytes = None;
    let names = KERNELS.map(|wanted| wanted.name());
    if let Some(unknown) = asked.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("there is no kernel {unknown}: name some of {}", names.join(", "));
    }
    let is_asked = |wanted: &Wanted| asked.is_empty() || asked.iter().any(|name| name == wanted.name());
    for wanted in KERNELS.into_iter().filter(is_asked) {
        let kernel = match image(&archive, wanted) {
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
        let series = series(&found.release);
        failures.tell(found.failures());
        if is_accepting {
            baseline.accept(&series, &found.verified);
        } else {
            failures.tell(baseline.breaches(&series, &found.verified).into_iter().map(|breach| {
                format!("{breach}: say why in the commit, and accept it by `make vm-test VERIFIER=accept`")
            }));
        }
        if wanted == MANY_CPUS_KERNEL {
            few_cpus_bytes = Some((found.map_bytes, kernel));
        }
    }
    if is_accepting {
        baseline.write()?;
    }
    if let Some((few_bytes, kernel)) = few_cpus_bytes {
        match root.boot(&kernel, MANY_CPUS, MANY_CPUS_PATIENCE).and_then(|told| Found::read(&told)) {
            Ok(found) => failures.tell(judge_memory(few_bytes, &found)),
            Err(error) => failures.tell([format!("{MANY_CPUS} CPUs: {error:#}")]),
        }
    }
    Ok(if failures.count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
}

/// What came out on one kernel.
struct Found {
    release: String,
    cpus: u32,
    verified: Verified,
    /// Of a deep chain of calls.
    known: Recording,
    /// Of a program that is mostly in the kernel.
    kernel: Recording,
    /// Of a chain of Python functions.
    python: Recording,
    /// Of a recursion deeper than tail calls reach.
    deep: Summary,
    /// Of all kinds of profile but CPU time.
    kinds: Kinds,
    map_bytes: u64,
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
        let is_whole = self.log.matches("restarting profiling").count() == 2
            && self.log.matches(" profiling receiver").count() == 3
            && self.log.matches(" profiling ended").count() == 3
            && self.log.contains("exit code 0")
            && recorded.with_user_stack() > 100
            && recorded.check(recorded.events_exported, FEW_CPUS.into()).is_ok();
        (!is_whole).then(|| format!("a CPU went and came back: {}, {recorded:?}", self.log))
    }
}

/// What the profiler says of a program whose chain of calls is known.
struct Recording {
    summary: Summary,
    chains: Chains,
}

impl Recording {
    fn read(told: &Told, name: &str) -> Result<Self> {
        let chain = workload::report_in(told.section(&format!("{name}.chain"))?)?.chain;
        let chains = judge_chains(told.section(&format!("{name}.folded"))?, &chain);
        Ok(Self { summary: read_summary(told, name)?, chains })
    }

    fn failures(&self, cpus: u32) -> Vec<String> {
        let summary = &self.summary;
        let complete = 100.0 * summary.complete_share();
        let whole = percent(self.chains.whole, summary.outcome("complete"));
        let law = summary.check(self.chains.received, u64::from(cpus));
        [
            (summary.with_user_stack() < 100).then(|| format!("too few samples: {summary:?}")),
            (complete < COMPLETE_PERCENT).then(|| format!("{complete:.2}% are complete: {summary:?}")),
            (whole < WHOLE_CHAIN_PERCENT).then(|| format!("{whole:.2}% show the whole chain")),
            (self.chains.wrong > 0).then(|| format!("{} stacks were never there", self.chains.wrong)),
            law.err().map(|breach| breach.to_string()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// What `record --summary-json` wrote.
fn read_summary<T: DeserializeOwned>(told: &Told, name: &str) -> Result<T> {
    serde_json::from_str(told.section(&format!("{name}.json"))?)
        .with_context(|| format!("no summary: {}", told.section(&format!("{name}.log")).unwrap_or_default()))
}

impl Found {
    fn read(told: &Told) -> Result<Self> {
        let map_bytes = read_summary::<serde_json::Value>(told, "known")?;
        let map_bytes = map_bytes.get("map_bytes").and_then(serde_json::Value::as_u64);
        let cpus = told.section("cpus")?.trim().parse()?;
        Ok(Self {
            release: told.section("release")?.trim().to_owned(),
            cpus,
            verified: Verified::parse(told.section("verify")?),
            known: Recording::read(told, "known")?,
            kernel: Recording::read(told, "kernel")?,
            python: Recording::read(told, "python")?,
            deep: read_summary(told, "deep")?,
            kinds: Kinds::read(told)?,
            map_bytes: map_bytes.context("the summary has no map_bytes")?,
            reads_memory: told.section("memory")?.trim().is_empty(),
            cpus_change: (cpus == FEW_CPUS).then(|| CpusChange::read(told)).transpose()?,
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
            let _ = writeln!(rows, "{:<33} {walk:<11} {load_ms:>7}  {}", self.release, programs.join(", "));
        }
        let deep = self.deep.outcomes.iter().filter(|(name, count)| has_user_stack(name) && **count > 0);
        let deep: Vec<String> = deep.map(|(outcome, count)| format!("{count} {outcome}")).collect();
        for (name, recording) in
            [("chain", &self.known), ("in kernel", &self.kernel), ("Python", &self.python)]
        {
            let Recording { summary, chains } = recording;
            let _ = writeln!(
                rows,
                "  {name:<10} {:>5} samples, {:>6.2}% complete, {:>6.2}% of these with the whole chain, {} wrong, {:.2}% in the kernel",
                summary.with_user_stack(),
                100.0 * summary.complete_share(),
                percent(chains.whole, summary.outcome("complete")),
                chains.wrong,
                percent(chains.in_kernel, chains.received),
            );
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
        failures.extend(self.known.failures(self.cpus));
        failures.extend(self.kernel.failures(self.cpus));
        failures.extend(self.python.failures(self.cpus));
        let in_kernel = percent(self.kernel.chains.in_kernel, self.kernel.chains.received);
        if in_kernel < IN_KERNEL_PERCENT {
            failures.push(format!("{in_kernel:.2}% of a program that is in the kernel were found there"));
        }
        let end = if self.walk() == "loop" { "complete" } else { "frame_limit" };
        let share = percent(self.deep.outcome(end), self.deep.with_user_stack());
        if share < WHOLE_CHAIN_PERCENT {
            failures.push(format!("{share:.2}% of 3,000 deep are {end}: {:?}", self.deep));
        }
        failures.extend(self.kinds.failures());
        // Links that name a process are new in Linux 6.1.
        if !self.reads_memory && !self.release.starts_with("5.") {
            failures.push("memory of processes is not read by eBPF programs".to_owned());
        }
        failures.extend(self.cpus_change.as_ref().and_then(CpusChange::failure));
        failures.iter().map(|failure| format!("{}: {failure}", self.release)).collect()
    }
}

/// Samples of a profile, by what they show of a chain of calls.
#[derive(Default)]
struct Chains {
    received: u64,
    whole: u64,
    wrong: u64,
    in_kernel: u64,
}

/// Judges stacks in folded form. One that is marked as cut keeps its leaf end, so it says nothing of the chain's start.
fn judge_chains(folded: &str, chain: &[String]) -> Chains {
    let mut chains = Chains::default();
    for (stack, count) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
        let count: u64 = count.parse().unwrap_or(0);
        // The first name is the process's.
        let frames = stack.split(';').skip(1).filter(|frame| chain.iter().any(|name| name == frame));
        let frames: Vec<&str> = frames.collect();
        let is_on_chain =
            chain.len() >= frames.len() && frames.iter().zip(chain).all(|(frame, name)| frame == name);
        chains.received += count;
        chains.in_kernel += if stack.ends_with("_[k]") { count } else { 0 };
        if is_on_chain {
            chains.whole += if frames.len() == chain.len() { count } else { 0 };
        } else if !stack.contains("[truncated: ") {
            chains.wrong += count;
        }
    }
    chains
}

fn judge_memory(few_bytes: u64, found: &Found) -> Option<String> {
    let per_cpu = found.map_bytes.saturating_sub(few_bytes) / u64::from(MANY_CPUS - FEW_CPUS);
    println!(
        "{} on {} CPUs: maps and rings take {} KiB, {} KiB on {FEW_CPUS}: {} KiB for each CPU; {:.2}% of {} samples are complete",
        found.release,
        found.cpus,
        found.map_bytes >> 10,
        few_bytes >> 10,
        per_cpu >> 10,
        100.0 * found.known.summary.complete_share(),
        found.known.summary.with_user_stack(),
    );
    let is_whole = found.cpus == MANY_CPUS && per_cpu <= BYTES_PER_CPU_MAX;
    (!is_whole).then(|| format!("{} CPUs of {MANY_CPUS}, {per_cpu} bytes for each", found.cpus))
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_follows_the_chain_from_its_start_or_is_wrong_unless_it_is_cut() {
        let chain = ["main", "outer", "inner"].map(str::to_owned);
        let folded = "p;_start;main;outer;inner;clock 5\np;_start;main 3\np;_start;outer;inner 2\n\
                      p;[truncated: frame_limit];outer;inner 7\np;_start;main;inner 1\n";
        let chains = judge_chains(folded, &chain);
        assert_eq!((chains.received, chains.whole, chains.wrong), (18, 5, 3));
    }
}
