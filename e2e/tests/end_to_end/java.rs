//! Stacks of Java programs reach the thread's root through compiled and interpreted methods, each method with its name
//! (`workloads/Chains.java`). Methods that the compiler has put into their callers are not shown.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::{paths, requirement};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::DecodedEvent;

const SAMPLES_PER_SECOND: &str = "997";
/// For how long a program runs, unless it is ended before.
const SECONDS: &str = "300";
/// While the virtual machine starts.
const START: Duration = Duration::from_secs(2);
const RECORDING: &str = "5s";
/// After the first complete stack: until then the unwind table of its library is built, which a busy machine takes seconds for.
const WARM_UP_NS: u64 = 1_000_000_000;
/// Of up to 4,000.
const ENOUGH: usize = 300;
const COMPLETE_SHARE: f64 = 0.99;
const RIGHT_SHARE: f64 = 0.99;
/// Of samples with a method that was freed before its name was read.
const UNKNOWN_SHARE: f64 = 0.02;

const UNKNOWN: &str = "[unknown Java method]";
/// The chain from the thread's root on; the next to last calls itself.
const CHAIN: [&str; 7] = [
    "Chains.main(String[])",
    "Chains.run(String, long)",
    "Chains.first(String)",
    "Chains.second(String)",
    "Chains.third(String)",
    "Chains.recurse(int)",
    "Chains.work()",
];
/// What `third` calls it with, and the call at 0.
const RECURSIONS: usize = 31;

/// A running program, which ends with this.
struct Java(Child);

impl Drop for Java {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The JDKs of this machine with the given version in their name, as `java-17-openjdk-amd64` and `temurin-25-jdk-amd64`.
fn homes(version: u32) -> Vec<PathBuf> {
    let folders = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let part = format!("-{version}-");
    let is_home = |path: &PathBuf| {
        let is_version = path.file_name().is_some_and(|name| name.to_string_lossy().contains(&part));
        is_version && !path.is_symlink() && path.join("bin/javac").is_file()
    };
    folders.filter(is_home).collect()
}

/// A frame of Java, outermost first.
#[derive(Debug)]
struct JavaFrame {
    name: String,
    line: i64,
}

#[derive(Debug)]
struct Sample {
    tid: i64,
    is_complete: bool,
    frames: Vec<JavaFrame>,
}

fn sample_of(event: &DecodedEvent<'_>) -> Sample {
    let of_java = event.sample.stack.iter().rev().filter(|frame| frame.frame_type() == Some(FrameType::Jvm));
    let lines = of_java.flat_map(|frame| frame.lines.iter().rev());
    Sample {
        tid: event.sample.thread_id().unwrap_or(0),
        is_complete: event.sample.outcome().is_none(),
        frames: lines.map(|line| JavaFrame { name: line.function.to_string(), line: line.line }).collect(),
    }
}

/// The samples of the threads that run Java, once the profiler knows the program.
fn profile(home: &Path, options: &[&str], mode: &str) -> Result<Vec<Sample>> {
    let folder = tempfile::tempdir()?;
    let source = paths::e2e().join("workloads/Chains.java");
    run(Command::new(home.join("bin/javac")).args(["--release", "17", "-d"]).arg(folder.path()).arg(source))?;
    let mut command = Command::new(home.join("bin/java"));
    command.args(options).arg("-cp").arg(folder.path()).args(["Chains", mode, SECONDS]).stdout(Stdio::null());
    let java = Java(command.spawn().context("cannot start java")?);
    sleep(START);
    let output = folder.path().join("out.otlp");
    let mut recorder = sidewinder::command()?;
    recorder.args([
        "record",
        "-F",
        SAMPLES_PER_SECOND,
        "-d",
        RECORDING,
        "-p",
        &java.0.id().to_string(),
        "-o",
    ]);
    recorder.arg(&output);
    let ended = Running::start(recorder)?.wait(Duration::from_secs(120))?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let received = Received::from_otlp_file(&output)?;
    let events: Vec<DecodedEvent<'_>> = received.events_of(java.0.id()).collect();
    let is_known = |event: &&DecodedEvent<'_>| {
        let sample = sample_of(event);
        sample.is_complete && !sample.frames.is_empty()
    };
    let known = events.iter().filter(is_known).map(|event| event.time_unix_ns).min();
    let start = known.context("no complete stack")?;
    let warm = events.iter().filter(|event| event.time_unix_ns >= start + WARM_UP_NS);
    let mut samples: Vec<Sample> = warm.map(sample_of).collect();
    let of_java: BTreeSet<i64> =
        samples.iter().filter(|sample| !sample.frames.is_empty()).map(|sample| sample.tid).collect();
    samples.retain(|sample| of_java.contains(&sample.tid));
    Ok(samples)
}

fn assert_complete(what: &str, samples: &[Sample]) {
    let complete = samples.iter().filter(|sample| sample.is_complete).count();
    let is_unknown = |sample: &&Sample| sample.frames.iter().any(|frame| frame.name == UNKNOWN);
    let unknown = samples.iter().filter(is_unknown).count();
    eprintln!("{what}: {complete} of {} samples complete, {unknown} with an unknown method", samples.len());
    assert!(samples.len() >= ENOUGH, "{what}: {} samples", samples.len());
    assert!(
        complete as f64 >= COMPLETE_SHARE * samples.len() as f64,
        "{what}: {complete} of {}",
        samples.len()
    );
    assert!(unknown as f64 <= UNKNOWN_SHARE * samples.len() as f64, "{what}: {unknown} of {}", samples.len());
}

/// Whether frames are those of the chain in its order, some of which may be missing.
fn is_in_chain(frames: &[JavaFrame]) -> bool {
    let mut at = 0;
    let known = frames.iter().filter(|frame| frame.name.starts_with("Chains."));
    known.into_iter().all(|frame| match CHAIN.iter().position(|name| *name == frame.name) {
        Some(place) if place >= at && (place > at || at == CHAIN.len() - 2 || at == 0) => {
            at = place;
            true
        }
        _ => false,
    })
}

/// Whether the frames up to the innermost recursion are the whole chain.
fn is_whole_chain(frames: &[JavaFrame]) -> bool {
    let names: Vec<&str> = frames.iter().map(|frame| &*frame.name).collect();
    let mut expected = CHAIN[..5].to_vec();
    expected.extend([CHAIN[5]; RECURSIONS]);
    expected.push(CHAIN[6]);
    names.starts_with(&expected)
}

fn judge(version: u32, test: &str) -> Result<()> {
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let Some(home) = homes(version).into_iter().next() else {
        return requirement::absent(test, &format!("no JDK {version} in /usr/lib/jvm"));
    };
    let sets: [&[&str]; 4] = [&[], &["-XX:TieredStopAtLevel=1"], &["-Xint"], &["-XX:+UseZGC"]];
    for options in sets {
        let what = format!("{version} {options:?}");
        let samples = profile(&home, options, "mixed")?;
        assert_complete(&what, &samples);
        let rooted = samples.iter().filter(|sample| {
            sample.is_complete && sample.frames.first().is_some_and(|frame| frame.name == CHAIN[0])
        });
        let of_main =
            samples.iter().filter(|sample| sample.frames.iter().any(|frame| frame.name == CHAIN[1]));
        let (rooted, of_main) = (rooted.count(), of_main.count());
        assert!(rooted as f64 >= RIGHT_SHARE * of_main as f64, "{what}: {rooted} of {of_main} from main");
    }
    for options in [&[][..], &["-Xint"]] {
        let what = format!("{version} {options:?}, recursion");
        let samples = profile(&home, options, "recursion")?;
        assert_complete(&what, &samples);
        let wrong = samples.iter().find(|sample| !is_in_chain(&sample.frames));
        assert!(wrong.is_none(), "{what}: {wrong:?}");
        if options.is_empty() {
            continue;
        }
        let computing: Vec<&Sample> = samples
            .iter()
            .filter(|sample| sample.frames.iter().any(|frame| frame.name == CHAIN[6]))
            .collect();
        let whole = computing.iter().filter(|sample| is_whole_chain(&sample.frames)).count();
        assert!(
            computing.len() >= ENOUGH && whole == computing.len(),
            "{what}: {whole} of {}",
            computing.len()
        );
        assert_lines(&what, &computing)?;
    }
    if version >= 21 {
        let samples = profile(&home, &[], "virtual-mixed")?;
        assert_complete(&format!("{version}, virtual threads"), &samples);
    }
    Ok(())
}

/// The lines of calls in interpreted methods are those of the source.
fn assert_lines(what: &str, samples: &[&Sample]) -> Result<()> {
    let source = fs::read_to_string(paths::e2e().join("workloads/Chains.java"))?;
    let line_of =
        |text: &str| source.lines().position(|line| line.contains(text)).map_or(0, |at| at as i64 + 1);
    for (number, text) in
        [(2, "        second(mode);"), (3, "        third(mode);"), (4, "sink += recurse(30);")]
    {
        let expected = line_of(text);
        let wrong = samples
            .iter()
            .find(|sample| sample.frames.get(number).is_none_or(|frame| frame.line != expected));
        assert!(expected > 0 && wrong.is_none(), "{what}: {text} is in line {expected}: {wrong:?}");
    }
    Ok(())
}

#[test]
fn stacks_of_java_17_reach_the_root() -> Result<()> {
    judge(17, "stacks_of_java_17_reach_the_root")
}

#[test]
fn stacks_of_java_25_reach_the_root() -> Result<()> {
    judge(25, "stacks_of_java_25_reach_the_root")
}
