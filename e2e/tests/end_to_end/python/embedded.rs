//! CPython within another program, a server that forks its workers (`workloads/embeds.c`): each request is a call of Python
//! by its own loop.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sidewinder_e2e_judge::python::{Frame, FrameKind, from_otlp};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{paths, python, requirement};

use super::session;

/// CPU time of each worker.
const SECONDS: &str = "1";
const WORKERS: usize = 2;
const ENOUGH: u64 = 600;
/// Of the workers' samples with a known function of Python.
const RIGHT_SHARE: f64 = 0.99;
/// Of the samples of their loop, those with known functions.
const KNOWN_SHARE: f64 = 0.95;
const CHAIN: [&str; 3] = ["handle:8", "respond:13", "burn:"];

/// What a C compiler has to be told to embed an interpreter; `None` if that has no library for it.
pub(crate) fn embedding_flags(interpreter: &Path) -> Result<Option<Vec<String>>> {
    let config = interpreter.with_file_name("python3-config");
    if !config.is_file() {
        return Ok(None);
    }
    let flags = run(Command::new(config).args(["--embed", "--includes", "--ldflags"]))?;
    let library = interpreter.parent().and_then(Path::parent).context("no folder")?.join("lib");
    let path = format!("-Wl,-rpath,{}", library.display());
    Ok(Some(flags.split_whitespace().map(str::to_owned).chain([path]).collect()))
}

/// Builds the server with an interpreter; `None` if that has no library to embed.
fn build(interpreter: &Path) -> Result<Option<PathBuf>> {
    let Some(flags) = embedding_flags(interpreter)? else { return Ok(None) };
    let number: String = interpreter.display().to_string().replace('/', "-");
    let program = paths::compiled()?.join(format!("embeds{number}"));
    let workloads = paths::e2e().join("workloads");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-I"]).arg(&workloads).arg(workloads.join("embeds.c"));
    run(compiler.args(flags).arg("-o").arg(&program))?;
    Ok(Some(program))
}

/// Python's frames with lines; that of `burn` is left out, as it computes.
fn functions(frames: &[Frame]) -> Vec<String> {
    let of_python = frames.iter().filter(|frame| frame.kind == FrameKind::Python);
    let shown = |frame: &Frame| match &*frame.name {
        "burn" => "burn:".to_owned(),
        name => format!("{name}:{}", frame.line),
    };
    of_python.map(shown).collect()
}

fn judge(interpreter: &Path) -> Result<bool> {
    let Some(program) = build(interpreter)? else { return Ok(false) };
    let mut command = Command::new("env");
    // Where it looks for modules: not beside the program.
    let home = interpreter.parent().and_then(Path::parent).context("no folder")?;
    command.arg(format!("PYTHONHOME={}", home.display())).arg("PYTHONDONTWRITEBYTECODE=1").arg(program);
    command.arg(paths::e2e().join("workloads/python")).arg(SECONDS);
    let (mut served, mut named, mut right) = (0, 0, 0);
    let (mut others, mut pids) = (Vec::new(), BTreeSet::new());
    for stack in from_otlp(&session(command, &[])?.received) {
        // Behind this function of the server's there is nothing but requests.
        let Some(at) = stack.frames.iter().position(|frame| frame.name == "serve") else { continue };
        served += stack.count;
        pids.insert(stack.pid);
        let above = functions(&stack.frames[..at]);
        let functions = functions(&stack.frames);
        if stack.frames.iter().any(|frame| frame.kind == FrameKind::Marker) || functions.is_empty() {
            continue;
        }
        named += stack.count;
        // A function may be about to be entered or left: then it, or the one below it, is the last.
        if above.is_empty() && CHAIN.starts_with(&functions.iter().map(|name| &**name).collect::<Vec<_>>()) {
            right += stack.count;
        } else {
            others.push((stack.count, functions));
        }
    }
    let name = interpreter.display();
    eprintln!("{name}: of {served} samples of {} workers, {named} are known and {right} right", pids.len());
    assert!(pids.len() == WORKERS && served >= ENOUGH, "{name}: {served} samples of {pids:?}");
    assert!(named as f64 >= KNOWN_SHARE * served as f64, "{name}: {named} of {served}");
    assert!(right as f64 >= RIGHT_SHARE * named as f64, "{name}: {right} of {named}: {others:?}");
    Ok(true)
}

#[promise(CPython, test_all)]
fn frames_of_an_embedded_interpreter_are_found() -> Result<()> {
    let name = "an embedded Python";
    if !requirement::ebpf(name)? {
        return Ok(());
    }
    let interpreters =
        [11, 13].into_iter().filter_map(python::of_pyenv).chain([PathBuf::from(python::SYSTEM)]);
    let mut tried = 0;
    for interpreter in interpreters {
        tried += u32::from(judge(&interpreter)?);
    }
    if tried == 0 {
        requirement::absent(name, "no CPython to embed here: `apt install python3-dev`, or pyenv")?;
    }
    Ok(())
}
