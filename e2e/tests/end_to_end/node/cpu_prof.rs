//! V8's own profiler (`node --cpu-prof`) on the same run of the program: both find the same functions, and the same lines where these
//! are interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Settings, launch};
use sidewinder_e2e_support::workload::in_background;
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::DecodedEvent;

use super::{SAMPLES_PER_SECOND, is_complete, script};

/// For how long the program runs: longer, where that was not enough. On a busy machine, it takes long until the unwind table of
/// `node` is built.
const SECONDS: [&str; 3] = ["8", "20", "60"];
/// Samples in which a function is interrupted. One with fewer may be missing in the other profile.
const ENOUGH: u64 = 20;
/// The program has some more.
const FUNCTIONS: usize = 3;
/// Of our samples, those in a line that both have. V8 takes fewer, so that it may miss a line.
const LINES_SHARE: f64 = 0.9;
/// In the name of a function that has none.
const ANONYMOUS: &str = "(anonymous)";

/// Of each function of the program, the lines in which it was interrupted, and how often.
type Interrupted = BTreeMap<String, BTreeMap<i64, u64>>;

/// What V8 has written for each thread when the program ended.
fn of_v8(folder: &Path) -> Result<Interrupted> {
    let mut interrupted = Interrupted::new();
    for entry in fs::read_dir(folder)? {
        let profile: Value = serde_json::from_slice(&fs::read(entry?.path())?)?;
        for node in profile["nodes"].as_array().context("a profile without nodes")? {
            let url = node["callFrame"]["url"].as_str().unwrap_or_default();
            let name = node["callFrame"]["functionName"].as_str().unwrap_or_default();
            if url.trim_start_matches("file://") != script().to_string_lossy() {
                continue;
            }
            let name = if name.is_empty() { ANONYMOUS } else { name };
            for ticks in node["positionTicks"].as_array().into_iter().flatten() {
                let line = ticks["line"].as_i64().context("ticks without a line")?;
                *interrupted.entry(name.to_owned()).or_default().entry(line).or_default() +=
                    ticks["ticks"].as_u64().context("ticks without a number")?;
            }
        }
    }
    Ok(interrupted)
}

/// The same of our samples: the innermost function of JavaScript, with what it calls of V8's and of the kernel's.
fn of_sidewinder(received: &Received) -> Interrupted {
    let mut interrupted = Interrupted::new();
    let events: Vec<DecodedEvent<'_>> = received.events().filter(is_complete).collect();
    for event in &events {
        let innermost = event.sample.stack.iter().find(|frame| frame.frame_type() == Some(FrameType::V8js));
        let Some(line) = innermost.and_then(|frame| frame.lines.first()) else { continue };
        if *line.filename == *script().to_string_lossy() {
            let lines = interrupted.entry(line.function.to_string()).or_default();
            *lines.entry(line.line).or_default() += 1;
        }
    }
    interrupted
}

/// The functions that were interrupted often.
fn often(interrupted: &Interrupted) -> BTreeSet<&str> {
    let is_often = |lines: &BTreeMap<i64, u64>| lines.values().sum::<u64>() >= ENOUGH;
    interrupted.iter().filter(|(_, lines)| is_often(lines)).map(|(name, _)| name.as_str()).collect()
}

fn lines(interrupted: &Interrupted) -> BTreeSet<i64> {
    interrupted.values().flat_map(|lines| lines.keys().copied()).collect()
}

/// The functions of the first that the second has neither by name nor by one of their lines.
fn only_in_first<'a>(first: &'a Interrupted, second: &Interrupted) -> Vec<&'a str> {
    let lines_of_second = lines(second);
    let is_known = |name: &str| {
        second.contains_key(name) || first[name].keys().any(|line| lines_of_second.contains(line))
    };
    often(first).into_iter().filter(|name| !is_known(name)).collect()
}

/// Runs the program with both, until it ends.
fn profile(seconds: &str) -> Result<(Interrupted, Interrupted)> {
    let folder = tempfile::tempdir()?;
    let profiles = folder.path().join("profiles");
    let mut node = Command::new("node");
    node.arg("--cpu-prof").arg(format!("--cpu-prof-dir={}", profiles.display())).arg(script()).arg(seconds);
    let profiled = launch(Settings::at(SAMPLES_PER_SECOND), &in_background(&node), None)?;
    Ok((of_v8(&profiles)?, of_sidewinder(&profiled.received)))
}

#[promise(V8)]
fn names_and_lines_are_those_of_v8s_own_profiler() -> Result<()> {
    let test = "names_and_lines_are_those_of_v8s_own_profiler";
    if !requirement::ebpf(test)? || !requirement::program(test, "node")? {
        return Ok(());
    }
    for seconds in SECONDS {
        let (theirs, ours) = profile(seconds)?;
        if often(&ours).len() >= FUNCTIONS {
            return judge(&theirs, &ours);
        }
    }
    bail!("too few samples")
}

/// Each function that is interrupted often is in both, unless one of the two counts it as the function into which it was put, or one
/// that was put into it: then its lines are there.
fn judge(theirs: &Interrupted, ours: &Interrupted) -> Result<()> {
    let lines_of_v8 = lines(theirs);
    let only_ours = only_in_first(ours, theirs);
    let only_theirs = only_in_first(theirs, ours);
    let samples = || ours.values().flatten();
    let all: u64 = samples().map(|(_, count)| count).sum();
    let same: u64 = samples().filter(|(line, _)| lines_of_v8.contains(line)).map(|(_, count)| count).sum();
    eprintln!("{} functions, {same} of {all} samples in lines of both", often(ours).len());
    ensure!(
        only_ours.is_empty() && only_theirs.is_empty(),
        "{only_ours:?}, {only_theirs:?}: {ours:?}, {theirs:?}"
    );
    ensure!(same as f64 >= LINES_SHARE * all as f64, "{same} of {all}: {ours:?}, {theirs:?}");
    Ok(())
}
