//! Functions of WebAssembly, which call JavaScript and are called by it, compiled by each of V8's two compilers. The program knows its
//! own stack (`workloads/node/wasm.js`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{paths, requirement};

use super::{ENOUGH, JsFrame, Node, PROFILED_SECONDS, Sample, WHOLE_SHARE, command, profile, warm_samples};

/// What is called first, by what V8 makes to call it.
const FIRST: &str = "first";
/// What leads to it, in one call that lasts: with both compilers, its code is replaced meanwhile.
const BEFORE: [&str; 2] = ["turn", "step"];
/// The version of Node.js whose code does not say which function it is.
const WITHOUT_NUMBERS: &str = "v18.";
/// The calls that lead to the innermost of the recursion, and what that calls.
const DEPTH: usize = 9;
const ENDS: [&[&str]; 3] = [&["work"], &["wasm-function[7]"], &["back", "again", "work"]];
/// Functions of JavaScript.
const OF_JAVASCRIPT: [&str; 2] = ["back", "url"];
/// Of samples with a function of the chain whose name is not known: one whose code was replaced by that of the other compiler
/// before its name was read, once for each function.
const UNKNOWN_SHARE: f64 = 0.005;
const UNKNOWN: &str = "[unknown WebAssembly function]";

/// How the program is run.
struct Compilers {
    what: &'static str,
    options: &'static [&'static str],
    /// Both compilers compile what runs often, and V8 publishes names.
    has_map: bool,
}

/// Functions that are inlined have no frames.
const SETS: [Compilers; 3] = [
    Compilers { what: "baseline", options: &["--liftoff-only", "--no-wasm-inlining"], has_map: false },
    Compilers { what: "optimized", options: &["--no-liftoff", "--no-wasm-inlining"], has_map: false },
    Compilers {
        what: "both",
        options: &["--perf-basic-prof", "--no-wasm-inlining", "--wasm-tiering-budget=1000"],
        has_map: true,
    },
];

fn script() -> PathBuf {
    paths::e2e().join("workloads/node/wasm.js")
}

pub(super) fn judge(test: &str, node: &Path, seconds: u64) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let known = run(Command::new(node).arg("--v8-options"))?;
    let has_numbers = !run(Command::new(node).arg("--version"))?.starts_with(WITHOUT_NUMBERS);
    let mut programs = Vec::new();
    for set in &SETS {
        let mut command = command(node, &known, set.options, &script());
        let mut program = command.current_dir(folder.path()).stdout(Stdio::piped()).spawn()?;
        let output = program.stdout.take().context("no output")?;
        programs.push((set, Node(program), BufReader::new(output)));
    }
    let pids: Vec<u32> = programs.iter().map(|(_, node, _)| node.0.id()).collect();
    let received = profile(&pids, seconds)?;
    for (set, node, output) in &mut programs {
        let what = format!("{test}, WebAssembly, {}", set.what);
        let mut url = String::new();
        output.read_line(&mut url)?;
        let samples = warm_samples(&what, &received, node.0.id())?;
        assert_chains(&what, &samples, url.trim());
        if has_numbers || !set.has_map {
            assert_lasting_call(&what, &samples);
        }
        if set.has_map {
            assert_mapped(&what, &samples, &fs::read_to_string(node.map())?);
        }
    }
    Ok(())
}

/// The frames of a sample from the first function of the chain on.
fn in_chain(sample: &Sample) -> Option<&[JsFrame]> {
    let first = sample.frames.iter().position(|frame| frame.name == FIRST)?;
    sample.frames.get(first..)
}

fn names(frames: &[JsFrame]) -> Vec<&str> {
    frames.iter().map(|frame| &*frame.name).collect()
}

/// Whether these are the functions of the chain down to some of them.
fn is_start_of_chain(frames: &[&str]) -> bool {
    let mut whole = vec![FIRST, "second"];
    whole.extend(["descend"; DEPTH]);
    let is_start = |chain: &[&str]| {
        let is_same = |(frame, expected): (&&str, &&str)| frame == expected || *frame == UNKNOWN;
        frames.len() <= chain.len() && frames.iter().zip(chain).all(is_same)
    };
    ENDS.iter().any(|end| is_start(&[&whole, *end].concat())) || is_start(&[FIRST, "url"])
}

fn assert_chains(what: &str, samples: &[Sample], url: &str) {
    let (mut whole, mut unknown, mut others) = (0, 0, BTreeMap::<Vec<&str>, usize>::new());
    let mut ends = BTreeMap::<&str, usize>::new();
    for frames in samples.iter().filter_map(in_chain) {
        unknown += usize::from(frames.iter().any(|frame| frame.name == UNKNOWN));
        for frame in frames.iter().filter(|frame| frame.name != UNKNOWN) {
            let is_right = match OF_JAVASCRIPT.contains(&&*frame.name) {
                true => frame.path == script().to_string_lossy(),
                false => frame.path == url,
            };
            assert!(is_right, "{what}: {frame:?} is in another module than {url}");
        }
        let names = names(frames);
        if is_start_of_chain(&names) {
            whole += 1;
            *ends.entry(names.last().unwrap_or(&"")).or_default() += 1;
        } else {
            *others.entry(names).or_default() += 1;
        }
    }
    let all = whole + others.values().sum::<usize>();
    eprintln!(
        "{what}: {whole} of {all} samples have the chain, {unknown} an unknown function; {ends:?}; others: {others:?}"
    );
    assert!(whole >= ENOUGH, "{what}: {whole} of {all}");
    assert!(whole as f64 >= WHOLE_SHARE * all as f64, "{what}: {whole} of {all}: {others:?}");
    assert!(unknown as f64 <= UNKNOWN_SHARE * all as f64, "{what}: {unknown} of {all}");
    for function in ["work", "wasm-function[7]"] {
        assert!(ends.contains_key(function), "{what}: {ends:?}");
    }
}

/// The function that is called once has its name in each sample, too.
fn assert_lasting_call(what: &str, samples: &[Sample]) {
    let (mut all, mut named) = (0, 0);
    for sample in samples {
        let Some(first) = sample.frames.iter().position(|frame| frame.name == FIRST) else { continue };
        all += 1;
        named += usize::from(names(&sample.frames[..first]).ends_with(&BEFORE));
    }
    eprintln!("{what}: {named} of {all} samples have what leads to the chain");
    assert!(named as f64 >= WHOLE_SHARE * all as f64, "{what}: {named} of {all}");
}

/// V8's own map of the process has each function of the module.
fn assert_mapped(what: &str, samples: &[Sample], map: &str) {
    let frames = samples.iter().filter_map(in_chain).flatten();
    for frame in frames.filter(|frame| frame.path.starts_with("wasm:")) {
        // Their number and their compiler follow.
        let is_mapped = [":", " "].iter().any(|before| map.contains(&format!("{before}{}-", frame.name)));
        assert!(is_mapped, "{what}: {} is not in the map", frame.name);
    }
}

#[promise(WebAssembly)]
fn functions_of_webassembly_have_names() -> Result<()> {
    let test = "functions_of_webassembly_have_names";
    if !requirement::ebpf(test)? || !requirement::program(test, "node")? {
        return Ok(());
    }
    judge(test, Path::new("node"), PROFILED_SECONDS)
}
