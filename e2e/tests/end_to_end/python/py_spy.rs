//! py-spy, which stops the process and reads it from outside, finds the same functions in the same order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_judge::python::{Expected, Stack, from_pprof};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::Gated;
use sidewinder_e2e_support::{paths, requirement};

use super::record_of;

const VERSION: &str = "0.4.3";
/// The last one that it reads is 3.13.
const MINORS: std::ops::RangeInclusive<u32> = 8..=13;
/// Of the samples, those that have the frames that py-spy sees.
const EQUAL_SHARE: f64 = 0.95;

/// py-spy, fetched from PyPI once.
fn py_spy() -> Result<PathBuf> {
    let folder = paths::cache().join(format!("py-spy-{VERSION}"));
    let program = folder.join("bin/py-spy");
    if !program.is_file() {
        run(Command::new(python::SYSTEM)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .args(["--root-user-action=ignore", "--target"])
            .arg(&folder)
            .arg(format!("py-spy=={VERSION}")))?;
    }
    Ok(program)
}

/// The functions of the main thread, outermost first, each as `name (file)`; names are qualified from 3.11 on, as ours.
fn dumped(py_spy: &Path, pid: u32) -> Result<Vec<String>> {
    let text = run(Command::new(py_spy).args(["dump", "--json", "--pid", &pid.to_string()]))?;
    let threads: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let frames = threads[0]["frames"].as_array().with_context(|| text.clone())?;
    let function = |frame: &Value| {
        let text = |key: &str| frame[key].as_str().unwrap_or_default();
        format!("{} ({})", text("name"), text("filename"))
    };
    Ok(frames.iter().rev().map(function).collect())
}

/// The same of a sample.
fn functions(stack: &Stack) -> Vec<String> {
    stack.python_frames().map(|(_, frame)| format!("{} ({})", frame.name, frame.file)).collect()
}

/// Both look at one chain while it stays at its end.
fn compare(py_spy: &Path, program: &PythonProgram, chain: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.pb.gz");
    let mut held = Gated::start(program.command(&["60", "--hold", "--only", chain]))?;
    let pid = held.pid();
    let recorder = Running::start_sampling(record_of(pid, &output, sidewinder::command()?))?;
    held.open()?;
    std::thread::sleep(Duration::from_secs(1));
    let theirs = dumped(py_spy, pid)?;
    let ended = recorder.stop()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let mut ours = BTreeMap::<Vec<String>, u64>::new();
    for stack in from_pprof(&output)?.iter().filter(|stack| stack.pid == pid) {
        *ours.entry(functions(stack)).or_default() += stack.count;
    }
    let all: u64 = ours.values().sum();
    let equal = ours.get(&theirs).copied().unwrap_or(0);
    eprintln!("{chain}: {equal} of {all} samples have py-spy's frames");
    ensure!(
        all > 100 && equal as f64 >= EQUAL_SHARE * all as f64,
        "{chain}: {equal} of {all}\npy-spy: {theirs:#?}\nSidewinder: {:#?}",
        ours.iter().max_by_key(|(_, count)| **count)
    );
    Ok(())
}

/// It is fetched from PyPI.
#[test]
fn py_spy_finds_the_same_functions() -> Result<()> {
    let name = "Python beside py-spy";
    if std::env::var_os("SIDEWINDER_PYTHON").is_none() {
        return requirement::elsewhere(name, "make python-test");
    }
    if !requirement::python(name)? {
        return Ok(());
    }
    let py_spy = py_spy()?;
    let mut wrong = Vec::new();
    for interpreter in MINORS.filter_map(python::of_pyenv).chain([PathBuf::from(python::SYSTEM)]) {
        let program = PythonProgram::new(&interpreter, "chains.py");
        let Expected { chains, .. } = Expected::of_program(&program, &[])?;
        for chain in &chains {
            if let Err(error) = compare(&py_spy, &program, &chain.name) {
                wrong.push(format!("{}: {error:#}", interpreter.display()));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
