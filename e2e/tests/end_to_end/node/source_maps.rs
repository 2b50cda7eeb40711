//! Functions of TypeScript, by source maps on disk: compiled by `tsc` as modules of CommonJS, with a map beside each script, and as
//! modules of ECMAScript, with the map in the script; and bundled and minified by `esbuild`, where their names are in the map alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::{Profiler, Settings, Switch};
use sidewinder_e2e_support::{paths, requirement};

use super::{JsFrame, Node, SECONDS, Sample, is_complete, sample_of};

const PROFILED: Duration = Duration::from_secs(6);
const SAMPLES_PER_SECOND: u32 = 499;
/// After the first complete stack: until then functions are interpreted, whose lines are not known so early.
const WARM_UP_NS: u64 = 1_000_000_000;
/// Of samples in the chain of a program.
const ENOUGH: usize = 100;
/// Of these: those whose frames all have the line of their call.
const EXACT_SHARE: f64 = 0.99;

/// The functions, outermost first, each with its source, the text of its first line, and that of its calls of the next.
const FUNCTIONS: [(&str, &str, &str, &str); 5] = [
    ("repeat", "main.ts", "function repeat<", "descend(pool, task) as"),
    ("descend", "main.ts", "const descend =", "pool.run(task)"),
    ("run", "work.ts", "run(task", "each(count, rotate)"),
    ("each", "work.ts", "function each(", "step(sum, i)"),
    ("rotate", "work.ts", "const rotate:", ""),
];
/// Calls of itself.
const RECURSION: (&str, &str) = ("descend", "descend(pool, next) + 1");

/// A program and how it was made.
struct Program {
    what: &'static str,
    node: Node,
}

fn sources() -> PathBuf {
    paths::e2e().join("workloads/node/typescript")
}

/// Compiles the program in each way, and starts it.
fn start(folder: &Path) -> Result<Vec<Program>> {
    let tools = paths::repository().join("receiver/page/node_modules/.bin");
    let main = sources().join("main.ts");
    let compile = |what: &str, options: &[&str]| -> Result<PathBuf> {
        let output = folder.join(what);
        fs::create_dir(&output)?;
        run(Command::new(tools.join("tsc"))
            .args(["--target", "es2022", "--strict", "--types", "", "--outDir"])
            .arg(&output)
            .args(options)
            .arg(&main)
            .current_dir(folder))?;
        Ok(output.join("main.js"))
    };
    let beside = compile("beside", &["--module", "commonjs", "--sourceMap"])?;
    let inline =
        compile("inline", &["--module", "es2022", "--moduleResolution", "bundler", "--inlineSourceMap"])?;
    fs::write(folder.join("inline/package.json"), r#"{"type":"module"}"#)?;
    let minified = folder.join("minified/main.js");
    run(Command::new(tools.join("esbuild"))
        .args(["--bundle", "--minify", "--platform=node", "--sourcemap"])
        .arg(format!("--outfile={}", minified.display()))
        .arg(&main))?;
    let programs = [("beside", beside), ("inline", inline), ("minified", minified)];
    let started = programs.into_iter().map(|(what, script)| {
        let mut command = Command::new("node");
        command.arg(script).arg(SECONDS).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Program { what, node: Node(command.spawn().context("cannot start node")?) })
    });
    started.collect()
}

/// The frames of the program's chain in a sample that is in the innermost function.
fn chain_of(sample: Sample) -> Option<Vec<JsFrame>> {
    let is_of_program = |frame: &JsFrame| !frame.path.starts_with("node:");
    let first = sample.frames.iter().position(|frame| frame.name == FUNCTIONS[0].0);
    let first = first.or_else(|| sample.frames.iter().position(is_of_program).map(|main| main + 1))?;
    let frames: Vec<JsFrame> = sample.frames.into_iter().skip(first).filter(is_of_program).collect();
    (frames.len() >= FUNCTIONS.len() + 4).then_some(frames)
}

/// The lines of the sources, by file.
struct SourceLines(BTreeMap<&'static str, Vec<String>>);

impl SourceLines {
    fn read() -> Result<Self> {
        let read = |file: &'static str| -> Result<_> {
            let text = fs::read_to_string(sources().join(file))?;
            Ok((file, text.lines().map(str::to_owned).collect()))
        };
        Ok(Self(["main.ts", "work.ts"].into_iter().map(read).collect::<Result<_>>()?))
    }

    /// The line with a text, from 1.
    fn line_of(&self, file: &str, text: &str) -> i64 {
        let lines = &self.0[file];
        lines.iter().position(|line| line.contains(text)).map_or(0, |line| line as i64 + 1)
    }

    /// Whether a frame is of one of the functions, in its file and within its lines.
    fn has(&self, frame: &JsFrame) -> bool {
        let Some((_, file, text, _)) = FUNCTIONS.iter().find(|(name, ..)| *name == frame.name) else {
            return false;
        };
        let first = self.line_of(file, text);
        let lines = &self.0[file];
        let indent = |line: &str| line.len() - line.trim_start().len();
        let own = indent(&lines[first as usize - 1]);
        let is_end = |line: &String| line.trim_start().starts_with('}') && indent(line) == own;
        let length = lines[first as usize..].iter().position(is_end).unwrap_or(0) as i64;
        frame.path == sources().join(file).to_string_lossy()
            && (first..=first + length + 1).contains(&frame.line)
    }

    /// Whether the line of the first of two frames is that of its call of the second.
    fn is_call(&self, pair: &[JsFrame]) -> bool {
        let [caller, callee] = pair else { return false };
        let at = FUNCTIONS.iter().position(|(name, ..)| *name == caller.name);
        at.is_some_and(|at| {
            let (name, file, _, text) = FUNCTIONS[at];
            let text = if callee.name == name { RECURSION.1 } else { text };
            caller.line == self.line_of(file, text)
        })
    }
}

/// Profiles the programs twice at the same time: with source maps, and without.
fn profile(programs: &[Program]) -> Result<(Received, Received)> {
    let pids: Vec<u32> = programs.iter().map(|program| program.node.0.id()).collect();
    let start = |switches: &[Switch]| {
        Profiler::start(Form::of_this_run()?, &Settings::at(SAMPLES_PER_SECOND).of(&pids).with(switches))
    };
    let (with, without) = (start(&[Switch::SourceMaps])?, start(&[])?);
    thread::sleep(PROFILED);
    Ok((with.stop()?.received, without.stop()?.received))
}

fn warm_chains(received: &Received, program: &Program, enough: usize) -> Result<Vec<Vec<JsFrame>>> {
    let events: Vec<_> = received.events_of(program.node.0.id()).filter(is_complete).collect();
    let start = events.iter().map(|event| event.time_unix_ns).min();
    let start = start.with_context(|| format!("{}: no complete stack", program.what))? + WARM_UP_NS;
    let warm = events.iter().filter(|event| event.time_unix_ns >= start);
    let chains: Vec<_> = warm.filter_map(|event| chain_of(sample_of(event))).collect();
    assert!(chains.len() >= enough, "{}: {} samples in the chain", program.what, chains.len());
    Ok(chains)
}

#[promise(V8)]
fn functions_of_typescript_have_their_sources() -> Result<()> {
    let test = "functions_of_typescript_have_their_sources";
    if !requirement::ebpf(test)? || !requirement::packages(test, &paths::repository().join("receiver/page"))?
    {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let programs = start(folder.path())?;
    let (with, without) = profile(&programs)?;
    let lines = SourceLines::read()?;
    for program in &programs {
        let what = program.what;
        let chains = warm_chains(&with, program, ENOUGH)?;
        let mut exact = 0;
        for chain in &chains {
            let wrong = chain.iter().find(|frame| !lines.has(frame));
            assert!(wrong.is_none(), "{what}: {wrong:?} of {chain:?}");
            exact += usize::from(chain.windows(2).all(|pair| lines.is_call(pair)));
        }
        eprintln!("{what}: {exact} of {} samples have the lines of all calls", chains.len());
        assert!(exact as f64 >= EXACT_SHARE * chains.len() as f64, "{what}: {exact} of {}", chains.len());
        for chain in warm_chains(&without, program, 1)? {
            let is_of_script = |frame: &JsFrame| frame.path.ends_with(".js");
            assert!(chain.iter().all(is_of_script), "{what}, without maps: {chain:?}");
        }
    }
    Ok(())
}
