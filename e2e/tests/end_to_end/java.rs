//! Stacks of Java programs reach the thread's root through compiled, inlined and interpreted methods, each method with its name
//! and each call with its line (`workloads/Chains.java`).
//!
//! `make java-test` does it for longer, and with each version from 8 on.

mod churn;
mod native_methods;
mod users;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sidewinder_e2e_debian::java::Runtime;
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::java::{self, homes};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::{Profiler, Settings, wait_for_cpu_time};
use sidewinder_e2e_support::workload::in_background;
use sidewinder_e2e_support::{paths, requirement};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::{DecodedEvent, DecodedFrame};

const SAMPLES_PER_SECOND: u32 = 997;
/// For how long a program runs, unless it is ended before.
const SECONDS: &str = "300";
/// While the virtual machine starts.
const START: Duration = Duration::from_secs(3);
/// After the first complete stack.
const WARM_UP_NS: u64 = 500_000_000;
/// The outcome of a stack that lacks the unwind table of a file.
const NO_TABLE: &str = "no_table";
/// Of some 4,000, of which a busy machine has fewer.
const ENOUGH: usize = 60;
/// Of stacks that reach the root, and of chains that are whole.
const COMPLETE_SHARE: f64 = 0.995;
const COMPLETE_SHARE_LONG: f64 = 0.999;
/// Of samples with a method that was freed before its name was read.
const UNKNOWN_SHARE: f64 = 0.02;

const UNKNOWN: &str = "[unknown Java method]";
/// What runs at once, each in a thread of its own.
const MODES: &str = "mixed,recursion,inlined,counted";
/// The start of all chains.
const START_OF_CHAIN: [&str; 4] =
    ["Chains.run(String, long)", "Chains.first(String)", "Chains.second(String)", "Chains.third(String)"];
const MAIN: &str = "Chains.main(String[])";
const RECURSE: &str = "Chains.recurse(int)";
/// What `third` calls it with, and the call at 0.
const RECURSIONS: usize = 31;
/// The last is put into the first, and is a loop.
const COUNTED: [&str; 2] = ["Chains.counted()", "Chains.work()"];
/// What it calls at last, and what `INLINED` does. It is not put into others.
const LEAF: &str = "Chains.leaf(int)";
/// All but the last are put into the first, and each calls the next one in a line with this text.
const INLINED: [(&str, &str); 5] = [
    ("Chains.outer(int)", "sum += middle(i);"),
    ("Chains.middle(int)", "return inner(i + 1) + 1;"),
    ("Chains.inner(int)", "return innermost(i) * 3;"),
    ("Chains.innermost(int)", "return i + leaf(i);"),
    (LEAF, ""),
];

/// `1`: each version is taken, and long; else these alone: `11,21`.
const VERSIONS: &str = "SIDEWINDER_JAVA";

/// Whether to take long.
fn is_long() -> bool {
    std::env::var_os(VERSIONS).is_some()
}

fn is_wanted(version: u32) -> bool {
    let named = std::env::var(VERSIONS).unwrap_or_default();
    named.is_empty() || named == "1" || named.split(',').any(|name| name == version.to_string())
}

/// A running program, which ends with this.
struct Java(Child);

impl Drop for Java {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where a virtual machine comes from.
#[derive(Debug)]
enum Origin {
    /// A JDK of this machine.
    Home(PathBuf),
    Debian(Runtime),
}

impl Origin {
    fn java(&self, classes: &Path) -> Command {
        match self {
            Self::Home(home) => java::java(home, classes),
            Self::Debian(runtime) => runtime.java(classes),
        }
    }
}

/// A frame of Java.
#[derive(Debug)]
struct JavaFrame {
    name: String,
    line: i64,
    /// Whether it is the one that was interrupted, or was put into that, or that into it.
    is_interrupted: bool,
}

#[derive(Debug)]
struct Sample {
    tid: i64,
    /// Why its stack is not complete; `None` if it is.
    outcome: Option<String>,
    /// The outermost first.
    frames: Vec<JavaFrame>,
}

impl Sample {
    fn is_complete(&self) -> bool {
        self.outcome.is_none()
    }
}

fn sample_of(event: &DecodedEvent<'_>) -> Sample {
    let is_of_kernel = |frame: &&Arc<DecodedFrame>| frame.frame_type() == Some(FrameType::Kernel);
    // What was interrupted, at a page that is absent too.
    let interrupted = event.sample.stack.iter().take_while(is_of_kernel).count();
    let stack = event.sample.stack.iter().enumerate().rev();
    let of_java = stack.filter(|(_, frame)| frame.frame_type() == Some(FrameType::Jvm));
    let frames = of_java.flat_map(|(depth, frame)| {
        let lines = frame.lines.iter().rev();
        lines.map(move |line| JavaFrame {
            name: line.function.to_string(),
            line: line.line,
            is_interrupted: depth == interrupted,
        })
    });
    Sample {
        tid: event.sample.thread_id().unwrap_or(0),
        outcome: event.sample.outcome().map(str::to_owned),
        frames: frames.collect(),
    }
}

/// The classes of a program; `None` without a JDK.
fn compiled(test: &str, sources: &[&str]) -> Result<Option<tempfile::TempDir>> {
    if homes(None).is_empty() {
        requirement::absent(test, "no JDK in /usr/lib/jvm")?;
        return Ok(None);
    }
    java::compiled(sources).map(Some)
}

/// The samples of a program that has run for a moment.
fn profile(origin: &Origin, classes: &Path, options: &[&str], program: &[&str]) -> Result<Vec<Sample>> {
    let mut command = origin.java(classes);
    command.args(options).args(program).arg(SECONDS);
    // All its threads compute, and so do its compilers: the profiler reads names on a thread with a low priority.
    let java = Java(in_background(&command).stdout(Stdio::null()).spawn().context("cannot start java")?);
    sleep(START);
    let duration = Duration::from_secs(if is_long() { 15 } else { 4 });
    let pid = java.0.id();
    let profiler = Profiler::start(Form::of_this_run()?, &Settings::at(SAMPLES_PER_SECOND).of(&[pid]))?;
    wait_for_cpu_time(pid, duration);
    samples_of(&profiler.stop()?.received, pid)
}

/// The samples of a process's threads that run Java, in the order of time, from a moment after the first complete stack on, and
/// since all unwind tables are there: on a busy machine, those of large libraries take seconds.
fn samples_of(received: &Received, pid: u32) -> Result<Vec<Sample>> {
    let events: Vec<DecodedEvent<'_>> = received.events_of(pid).collect();
    let is_known = |event: &&DecodedEvent<'_>| {
        let sample = sample_of(event);
        sample.is_complete() && !sample.frames.is_empty()
    };
    let known = events.iter().filter(is_known).map(|event| event.time_unix_ns).min();
    let lacks_table = |event: &&DecodedEvent<'_>| event.sample.outcome() == Some(NO_TABLE);
    let built = events.iter().filter(lacks_table).map(|event| event.time_unix_ns + 1).max();
    let start = (known.context("no complete stack")? + WARM_UP_NS).max(built.unwrap_or(0));
    let mut warm: Vec<_> = events.iter().filter(|event| event.time_unix_ns >= start).collect();
    warm.sort_by_key(|event| event.time_unix_ns);
    let mut samples: Vec<Sample> = warm.into_iter().map(sample_of).collect();
    let of_java: BTreeSet<i64> =
        samples.iter().filter(|sample| !sample.frames.is_empty()).map(|sample| sample.tid).collect();
    samples.retain(|sample| of_java.contains(&sample.tid));
    Ok(samples)
}

/// Whether all but few are among a part. Where there are few, one more or less is no share.
fn is_share(part: usize, all: usize) -> bool {
    part + 2 >= all
        || part as f64 >= if is_long() { COMPLETE_SHARE_LONG } else { COMPLETE_SHARE } * all as f64
}

fn assert_complete(what: &str, samples: &[Sample]) {
    let complete = samples.iter().filter(|sample| sample.is_complete()).count();
    let is_unknown = |sample: &&Sample| sample.frames.iter().any(|frame| frame.name == UNKNOWN);
    let unknown = samples.iter().filter(is_unknown).count();
    eprintln!("{what}: {complete} of {} samples complete, {unknown} with an unknown method", samples.len());
    assert!(samples.len() >= ENOUGH, "{what}: {} samples", samples.len());
    let incomplete: Vec<_> = samples.iter().filter(|sample| !sample.is_complete()).collect();
    assert!(is_share(complete, samples.len()), "{what}: {complete} of {}: {incomplete:#?}", samples.len());
    assert!(unknown as f64 <= UNKNOWN_SHARE * samples.len() as f64, "{what}: {unknown} of {}", samples.len());
}

/// The frames of the program's own methods, below `main`.
fn own_frames(sample: &Sample) -> Vec<&JavaFrame> {
    sample.frames.iter().filter(|frame| frame.name.starts_with("Chains.") && frame.name != MAIN).collect()
}

/// The samples with a method; of each, the frames are those of the chain in its order up to one of them. Returns those that have
/// the last one: most are whole, unless that is put into its caller, and so may be missing where it is interrupted.
fn assert_chain<'a>(
    what: &str,
    samples: &'a [Sample],
    any_of: &[&str],
    chain: &[&str],
    is_approximate: bool,
) -> Vec<Vec<&'a JavaFrame>> {
    let complete = samples.iter().filter(|sample| sample.is_complete()).map(own_frames);
    let has_it = |frames: &Vec<&JavaFrame>| frames.iter().any(|frame| any_of.contains(&&*frame.name));
    let found: Vec<_> = complete.filter(has_it).collect();
    let expected = [&START_OF_CHAIN, chain].concat();
    // Callers are exact. In an interrupted method may be one call of a method to itself more.
    let mut order = expected.clone();
    order.dedup();
    let is_right = |frames: &&Vec<&JavaFrame>| {
        let mut names: Vec<&str> = frames.iter().map(|frame| &*frame.name).collect();
        let callers = frames.iter().take_while(|frame| !frame.is_interrupted).count();
        let is_caller_right = expected.starts_with(&names[..callers]);
        names.dedup();
        is_caller_right && frames.len() <= expected.len() + 1 && order.starts_with(&names)
    };
    let wrong = found.iter().find(|frames| !is_right(frames));
    assert!(wrong.is_none(), "{what}: {wrong:#?}");
    let is_without_line = |frames: &&Vec<&JavaFrame>| {
        frames.last().is_some_and(|frame| frame.is_interrupted && frame.line == 0)
    };
    let (without_line, all) = (found.iter().filter(is_without_line).count(), found.len());
    let last = chain.last().copied().unwrap_or_default();
    let ended: Vec<_> =
        found.into_iter().filter(|frames| frames.iter().any(|frame| frame.name == last)).collect();
    let whole = ended.iter().filter(|frames| frames.len() == expected.len()).count();
    let summary = format!(
        "{what}: {whole} of {} chains to {last} are whole, {without_line} of {all} in all have no innermost line",
        ended.len()
    );
    eprintln!("{summary}");
    let is_whole = ended.len() >= ENOUGH && is_share(whole, ended.len());
    assert!(is_approximate || is_whole, "{summary}");
    ended
}

/// The chain of methods of which all but the last are put into the first.
fn assert_inlined<'a>(what: &str, samples: &'a [Sample]) -> Vec<Vec<&'a JavaFrame>> {
    let names = INLINED.map(|(name, _)| name);
    assert_chain(what, samples, &names[..names.len() - 1], &names, false)
}

/// The lines of calls are those of the source.
fn assert_lines(what: &str, chains: &[Vec<&JavaFrame>], calls: &[(&str, &str)]) -> Result<()> {
    let source = fs::read_to_string(paths::e2e().join("workloads/Chains.java"))?;
    for (name, text) in calls {
        let expected = source.lines().position(|line| line.contains(text)).map_or(0, |at| at as i64 + 1);
        let mut frames = chains.iter().flatten().filter(|frame| frame.name == *name);
        let wrong = frames.find(|frame| frame.line != expected);
        assert!(expected > 0 && wrong.is_none(), "{what}: {text} is in line {expected}: {wrong:?}");
    }
    Ok(())
}

/// Profiles the program with each set of options.
fn judge(origin: &Origin, version: u32, classes: &Path, sets: &[&[&str]]) -> Result<()> {
    for options in sets {
        let what = format!("{version} {options:?}");
        let is_approximate = !options.iter().any(|option| EXACT.contains(option));
        let samples = profile(origin, classes, options, &["Chains", MODES])?;
        assert_complete(&what, &samples);
        let has = |sample: &&Sample, name| sample.frames.iter().any(|frame: &JavaFrame| frame.name == name);
        let of_main = samples.iter().filter(|sample| has(sample, "Chains.mixed()")).count();
        let rooted = samples.iter().filter(|sample| {
            has(sample, "Chains.mixed()")
                && sample.is_complete()
                && sample.frames.first().is_some_and(|frame| frame.name == MAIN)
        });
        let rooted = rooted.count();
        assert!(of_main > 0 && is_share(rooted, of_main), "{what}: {rooted} of {of_main} from main");
        let mut recursion = vec![RECURSE; RECURSIONS];
        recursion.push(LEAF);
        assert_chain(&what, &samples, &[RECURSE], &recursion, false);
        assert_chain(&what, &samples, &COUNTED, &COUNTED, is_approximate);
        let chains = assert_inlined(&what, &samples);
        assert_lines(&what, &chains, &INLINED[..INLINED.len() - 1])?;
        assert_lines(&what, &chains, &[(START_OF_CHAIN[1], "        second(mode);")])?;
    }
    if version >= 21 {
        let samples = profile(origin, classes, &[], &["Chains", "virtual-mixed"])?;
        assert_complete(&format!("{version}, virtual threads"), &samples);
        let names =
            |sample: &Sample| sample.frames.iter().map(|frame| frame.name.clone()).collect::<Vec<_>>();
        let mounted = samples.iter().filter(|sample| sample.is_complete()).map(names);
        let mounted: Vec<_> =
            mounted.filter(|names| names.iter().any(|name| *name == START_OF_CHAIN[0])).collect();
        let marked = mounted.iter().filter(|names| {
            let place = |wanted: &str| names.iter().position(|name| name == wanted);
            place("[continuation]").is_some_and(|marker| Some(marker) < place(START_OF_CHAIN[0]))
        });
        let marked = marked.count();
        assert!(is_share(marked, mounted.len()), "{version}: {marked} of {} marked", mounted.len());
    }
    Ok(())
}

/// With these, each instruction has its methods.
const EXACT: [&str; 2] = ["-Xint", "-XX:+DebugNonSafepoints"];
const C2: &[&str] = &[];
const C1: &[&str] = &["-XX:TieredStopAtLevel=1"];
const INTERPRETED: &[&str] = &["-Xint"];
const DEBUG: &[&str] = &["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"];
const ALL: [&[&str]; 4] = [C2, C1, INTERPRETED, DEBUG];
const ZGC_DEBUG: &[&str] = &["-XX:+UseZGC", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"];
/// Since 15.
const ALL_ZGC: [&[&str]; 4] =
    [&["-XX:+UseZGC"], &["-XX:+UseZGC", "-XX:TieredStopAtLevel=1"], &["-XX:+UseZGC", "-Xint"], ZGC_DEBUG];

fn all_of(version: u32) -> Vec<&'static [&'static str]> {
    ALL.into_iter().chain(ALL_ZGC.into_iter().filter(|_| version >= 15)).collect()
}

fn judge_installed(version: u32, sets: &[&[&str]], test: &str) -> Result<()> {
    if !requirement::ebpf(test)? || !is_wanted(version) {
        return Ok(());
    }
    let Some(home) = homes(Some(version)).into_iter().next() else {
        return requirement::absent(test, &format!("no JDK {version} in /usr/lib/jvm"));
    };
    let Some(classes) = compiled(test, &["Chains.java"])? else { return Ok(()) };
    let all = all_of(version);
    judge(&Origin::Home(home), version, classes.path(), if is_long() { &all } else { sets })
}

#[promise(HotSpot)]
fn stacks_of_java_17_reach_the_root() -> Result<()> {
    judge_installed(17, &[C2, C1, INTERPRETED], "stacks_of_java_17_reach_the_root")
}

#[promise(HotSpot, test_all)]
fn stacks_of_java_25_reach_the_root() -> Result<()> {
    judge_installed(25, &[ZGC_DEBUG, INTERPRETED], "stacks_of_java_25_reach_the_root")
}

/// Each version of a suite of Debian, with what it has.
#[promise(HotSpot, test_all)]
fn stacks_of_each_other_version_of_java_reach_the_root() -> Result<()> {
    let test = "every version of Java";
    if !is_long() {
        return requirement::elsewhere(test, "make java-test");
    }
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let Some(classes) = compiled(test, &["Chains.java"])? else { return Ok(()) };
    let suites = [(8, "sid"), (11, "bullseye"), (21, "trixie"), (26, "sid")];
    for (version, suite) in suites.into_iter().filter(|(version, _)| is_wanted(*version)) {
        let origin = Origin::Debian(Runtime::open(suite, version)?);
        judge(&origin, version, classes.path(), &all_of(version))?;
    }
    Ok(())
}
