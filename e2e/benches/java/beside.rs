//! async-profiler and Sidewinder on the same Java programs: the share of samples with all callers, and what a sample costs the
//! program.
//!
//! A sample counts if it is of a method that computes and whose callers are known: it is right if these are all in the stack, in
//! their order. The cost is by how much less a program does in the same CPU time while ten thousand samples of that are taken in
//! a second, by the fastest of some turns: others on the machine only slow it down. It has all that happens on the program's own thread; what a profiler does elsewhere is not in it.

use std::fs;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::{java, paths, sidewinder};

use super::{FRAMES, NOT_INLINED};

const VERSION: &str = "4.4";
const TURNS: usize = 2;
const SAMPLES_PER_SECOND: u32 = 997;
/// Where the cost is measured: so many that it is more than what differs from run to run.
const COST_SAMPLES_PER_SECOND: u32 = 10_000;
/// What `Deep` runs last. There are as many frames as it is told.
const BURN: &str = "Deep.burn";
const LEAF: &str = "Chains.leaf";
/// The callers of the latter, in its mode `recursion`, and how often the last of them calls itself.
const CALLERS_OF_LEAF: [&str; 5] =
    ["Chains.run", "Chains.first", "Chains.second", "Chains.third", "Chains.recurse"];
const RECURSIONS: usize = 31;

/// The native library of async-profiler, out of its package.
///
/// # Errors
/// When there is no Maven, no registry, or the package is something else.
pub(super) fn agent() -> Result<PathBuf> {
    let folder = paths::compiled()?.join("async-profiler");
    let agent = folder.join("linux-x64/libasyncProfiler.so");
    if !agent.is_file() {
        fs::create_dir_all(&folder)?;
        let artifact = format!("-Dartifact=tools.profiler:async-profiler:{VERSION}");
        let output = format!("-DoutputDirectory={}", folder.display());
        run(Command::new("mvn").args(["-q", "-B", "dependency:copy", &artifact, &output]))?;
        let home = java::homes(None).into_iter().next().context("no JDK")?;
        let package = format!("async-profiler-{VERSION}.jar");
        run(Command::new(home.join("bin/jar")).args(["xf", &package]).current_dir(&folder))?;
    }
    ensure!(agent.is_file(), "{} is not in the package", agent.display());
    Ok(agent)
}

/// Samples of what computes, and those of them that have all callers.
#[derive(Clone, Copy, Default)]
struct Shares {
    samples: u64,
    right: u64,
}

impl Shares {
    /// Adds samples of a stack, outermost first: names of methods without their parameters.
    fn add(&mut self, names: &[&str], count: u64, is_right: impl Fn(&[&str]) -> Option<bool>) {
        if let Some(is_right) = is_right(names) {
            self.samples += count;
            self.right += if is_right { count } else { 0 };
        }
    }

    /// Of all samples, those that are right.
    fn percent(self) -> f64 {
        100.0 * self.right as f64 / self.samples as f64
    }
}

impl AddAssign for Shares {
    fn add_assign(&mut self, more: Self) {
        self.samples += more.samples;
        self.right += more.right;
    }
}

/// `None`: the stack is not of `burn`. Frames of the virtual machine's start are in front of that of `main`.
fn is_deep(names: &[&str]) -> Option<bool> {
    let end = names.iter().position(|name| *name == BURN)?;
    let calls = FRAMES.parse::<usize>().ok()? - 2;
    let callers = names.get(end.checked_sub(calls + 1).unwrap_or(names.len())..end).unwrap_or_default();
    Some(
        callers.split_first().is_some_and(|(first, calls)| {
            *first == "Deep.main" && calls.iter().all(|name| *name == "Deep.call")
        }),
    )
}

fn is_chain(names: &[&str]) -> Option<bool> {
    let end = names.iter().position(|name| *name == LEAF)?;
    let mut expected = CALLERS_OF_LEAF.to_vec();
    expected.extend([CALLERS_OF_LEAF[4]; RECURSIONS - 1]);
    Some(names[..end].ends_with(&expected))
}

/// A program of Java, whose methods all have a frame: its arguments, and how a stack is judged.
type Program = (&'static [&'static str], fn(&[&str]) -> Option<bool>);
const DEEP: Program = (&["Deep", "3", FRAMES], is_deep);
const CHAINS: Program = (&["Chains", "recursion", "4"], is_chain);

/// What takes samples of a program.
#[derive(Clone, Copy)]
enum Profiler<'a> {
    Nothing,
    /// The native library of the agent.
    Agent(&'a Path),
    Sidewinder,
}

/// What the programs run with.
#[derive(Clone, Copy)]
struct Machine<'a> {
    home: &'a Path,
    classes: &'a Path,
}

impl Machine<'_> {
    fn program(self, (arguments, _): Program, option: Option<&str>) -> Command {
        let mut command = java::java(self.home, self.classes);
        command.arg(NOT_INLINED).args(option).args(arguments);
        command
    }

    /// Runs a program. Returns what it has said, and its samples.
    fn run(
        self,
        profiler: Profiler<'_>,
        samples_per_second: u32,
        program: Program,
    ) -> Result<(String, Shares)> {
        let folder = tempfile::tempdir()?;
        let output = folder.path().join("out.otlp");
        match profiler {
            Profiler::Nothing => Ok((run(&mut self.program(program, None))?, Shares::default())),
            Profiler::Agent(agent) => {
                let interval_ns = 1_000_000_000 / samples_per_second;
                let (agent, file) = (agent.display(), output.display());
                let option = format!(
                    "-agentpath:{agent}=start,event=cpu,interval={interval_ns},collapsed,file={file}"
                );
                let said = run(&mut self.program(program, Some(&option)))?;
                Ok((said, shares_in_text(&fs::read_to_string(&output)?, program)?))
            }
            Profiler::Sidewinder => {
                let mut recorder = sidewinder::command()?;
                recorder.args(["record", "-F", &samples_per_second.to_string(), "-o"]).arg(&output).arg("--");
                let command = self.program(program, None);
                recorder.arg(command.get_program()).args(command.get_args());
                let said = run(&mut recorder)?;
                Ok((said, shares_in(&Received::from_otlp_file(&output)?, program)))
            }
        }
    }

    /// Runs `Deep` while many samples are taken. Returns its rounds in a nanosecond of its thread's CPU time, and the samples.
    fn speed(self, profiler: Profiler<'_>) -> Result<(f64, Shares)> {
        let (said, shares) = self.run(profiler, COST_SAMPLES_PER_SECOND, DEEP)?;
        let line = said.lines().find(|line| line.starts_with('{')).context("Deep has said nothing")?;
        let said: Value = serde_json::from_str(line)?;
        let number = |key: &str| said[key].as_f64().with_context(|| format!("no {key} in {said}"));
        Ok((number("rounds")? / number("cpu_ns")?, shares))
    }
}

/// The samples of the agent: a line for each stack, with their number.
fn shares_in_text(collapsed: &str, (_, is_right): Program) -> Result<Shares> {
    let mut shares = Shares::default();
    for line in collapsed.lines() {
        let (stack, count) = line.rsplit_once(' ').with_context(|| format!("{line:?} is no stack"))?;
        shares.add(&stack.split(';').collect::<Vec<_>>(), count.parse()?, is_right);
    }
    Ok(shares)
}

fn shares_in(received: &Received, (_, is_right): Program) -> Shares {
    let mut shares = Shares::default();
    for event in received.events() {
        let lines = event.sample.stack.iter().rev().flat_map(|frame| frame.lines.iter().rev());
        let names: Vec<_> = lines.map(|line| line.function.split('(').next().unwrap_or_default()).collect();
        shares.add(&names, 1, is_right);
    }
    shares
}

fn fastest(speeds: Vec<f64>) -> f64 {
    speeds.into_iter().fold(f64::NAN, f64::max)
}

/// Prints a row for each profiler. A share of no samples is NaN: the machine was too busy for unwind tables to be there in time.
///
/// # Errors
/// When a program or a profiler fails.
pub(super) fn measure(name: &str, home: &Path, classes: &Path, agent: &Path) -> Result<()> {
    let machine = Machine { home, classes };
    let profilers = [Profiler::Agent(agent), Profiler::Sidewinder];
    let mut plain = Vec::new();
    let mut profiled = profilers.map(|_| (Vec::new(), Shares::default()));
    for _ in 0..TURNS {
        plain.push(machine.speed(Profiler::Nothing)?.0);
        for (profiler, (speeds, deep)) in profilers.into_iter().zip(&mut profiled) {
            let (speed, shares) = machine.speed(profiler)?;
            speeds.push(speed);
            *deep += shares;
        }
    }
    let plain = fastest(plain);
    let labels = [format!("async-profiler {VERSION}"), "sidewinder".to_owned()];
    for ((profiler, label), (speeds, deep)) in profilers.into_iter().zip(labels).zip(profiled) {
        let (_, chains) = machine.run(profiler, SAMPLES_PER_SECOND, CHAINS)?;
        let us_per_sample = (1.0 - fastest(speeds) / plain) * 1e6 / f64::from(COST_SAMPLES_PER_SECOND);
        println!(
            "{name:<24} {label:<20} {:>8} {:>8.2} {:>8} {:>8.2} {us_per_sample:>10.2}",
            deep.samples,
            deep.percent(),
            chains.samples,
            chains.percent()
        );
    }
    Ok(())
}
