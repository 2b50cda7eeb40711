//! py-spy and pystack, which stop the process and read it from outside, find the same functions in the same order.
//!
//! pystack has the native functions between them as well, which it unwinds with elfutils: but for those of the interpreter's
//! calls that it takes for plumbing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_judge::python::{Expected, FrameKind, Stack, from_otlp};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::paths;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::session::{Profiler, Settings};
use sidewinder_e2e_support::workload::Gated;

use super::{FREE_THREADED, SAMPLES_PER_SECOND, free_threaded, runs_long, tail_calls};

/// Of pyenv.
const MINORS: std::ops::RangeInclusive<u32> = 8..=14;
/// Of the samples that are known in full, those that have the frames that an oracle sees. The others are from the way to the end
/// of the chain.
const EQUAL_SHARE: f64 = 0.98;
/// The chain with names that are not ASCII. pystack 1.7.2 shows NULs instead, or nothing.
const NOT_ASCII: &str = "identifiers";

/// A package of PyPI, fetched once: the folder.
fn fetched(package: &str, version: &str) -> Result<PathBuf> {
    let folder = paths::cache().join(format!("{package}-{version}"));
    if !folder.is_dir() {
        let scratch = tempfile::tempdir_in(paths::cache())?;
        run(Command::new(python::SYSTEM)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--root-user-action=ignore", "--target"])
            .arg(scratch.path())
            .arg(format!("{package}=={version}")))?;
        std::fs::rename(scratch.keep(), &folder)?;
    }
    Ok(folder)
}

/// What reads a process from outside.
struct Oracles {
    py_spy: PathBuf,
    /// The folder of its modules.
    pystack: PathBuf,
}

/// An interpreter, and how the oracles read it.
struct Subject {
    name: String,
    interpreter: PathBuf,
    /// py-spy 0.4.3 reads no build without the global interpreter lock.
    by_py_spy: bool,
    /// Whether they find the activations of the interpreter's loop among native functions. They know none of tail calls.
    is_native: bool,
}

impl Subject {
    fn new(name: impl Into<String>, interpreter: PathBuf) -> Self {
        Self { name: name.into(), interpreter, by_py_spy: true, is_native: true }
    }

    fn all() -> Result<Vec<Self>> {
        let of_pyenv = |minor| Some(Self::new(format!("CPython 3.{minor}"), python::of_pyenv(minor)?));
        let mut all: Vec<Self> = MINORS.filter_map(of_pyenv).collect();
        all.push(Self::new(python::SYSTEM, PathBuf::from(python::SYSTEM)));
        for minor in FREE_THREADED {
            let found = free_threaded(minor)?.map(|path| Self::new(format!("CPython 3.{minor}t"), path));
            all.extend(found.map(|subject| Self { by_py_spy: false, ..subject }));
        }
        let of_tail_calls = Self::new("CPython 3.14 with tail calls", tail_calls::fetched()?);
        all.push(Self { is_native: false, ..of_tail_calls });
        Ok(all)
    }
}

/// A frame as an oracle says it, or as a sample has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Seen {
    Python { name: String, file: String },
    Native(String),
}

impl Oracles {
    fn fetched() -> Result<Self> {
        std::fs::create_dir_all(paths::cache())?;
        Ok(Self {
            py_spy: fetched("py-spy", "0.4.3")?.join("bin/py-spy"),
            pystack: fetched("pystack", "1.7.2")?,
        })
    }

    /// The functions of the main thread, outermost first; names are qualified from 3.11 on, as ours. With native functions
    /// asked for, it only answers if it finds as many activations of the interpreter's loop as entry frames of Python.
    fn by_py_spy(&self, pid: u32, is_native: bool) -> Result<Vec<Seen>> {
        let mut command = Command::new(&self.py_spy);
        command.args(["dump", "--json", "--pid", &pid.to_string()]).args(is_native.then_some("--native"));
        let text = run(&mut command)?;
        let threads: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        let frames = threads[0]["frames"].as_array().with_context(|| text.clone())?;
        let text = |frame: &Value, key: &str| frame[key].as_str().unwrap_or_default().to_owned();
        // Those of files without a source are native.
        let of_python =
            frames.iter().rev().filter(|frame| frame["line"].as_u64().is_some_and(|line| line > 0));
        let of_python = of_python.filter(|frame| frame["module"].is_null());
        let seen = |frame| Seen::Python { name: text(frame, "name"), file: text(frame, "filename") };
        Ok(of_python.map(seen).collect())
    }

    /// The functions of the main thread, outermost first, native ones among them, to the innermost one of Python: behind that
    /// one, the program goes on. Names are not qualified.
    fn by_pystack(&self, pid: u32, is_native: bool) -> Result<Vec<Seen>> {
        let mut command = Command::new(python::SYSTEM);
        command.env("PYTHONPATH", &self.pystack).env("NO_COLOR", "1");
        command.args(["-m", "pystack", "remote", &pid.to_string()]).args(is_native.then_some("--native"));
        let text = run(&mut command)?;
        let mut seen: Vec<Seen> = text.lines().filter_map(seen_by_pystack).collect();
        let innermost = seen.iter().rposition(|frame| matches!(frame, Seen::Python { .. }));
        seen.truncate(innermost.with_context(|| text.clone())? + 1);
        Ok(seen)
    }
}

/// A line like `(C) File "Objects/call.c", line 330, in name (inlined) (/usr/lib/libpython3.9.so.1.0)`, or
/// `(Python) File "/a.py", line 3, in name`. Inlined functions are left out.
fn seen_by_pystack(line: &str) -> Option<Seen> {
    let line = line.trim_start();
    let (kind, rest) = line.split_once(" File \"")?;
    let (file, rest) = rest.split_once("\", line ")?;
    let name = rest.split_once(" in ")?.1;
    match kind {
        "(Python)" => Some(Seen::Python { name: name.to_owned(), file: file.to_owned() }),
        // In a stripped file, a function that isn't exported.
        "(C)" if name.starts_with("??? ") => None,
        "(C)" if !name.contains(" (inlined)") => Some(Seen::Native(base_name(name.split(' ').next()?))),
        _ => None,
    }
}

/// A native function without the version of its symbol, and without what the compiler appended.
fn base_name(name: &str) -> String {
    name.split(['@', '.']).next().unwrap_or(name).to_owned()
}

fn seen_in(stack: &Stack) -> Vec<Seen> {
    let seen = |(name, file, kind): (&str, &str, FrameKind)| match kind {
        FrameKind::Python => Seen::Python { name: name.to_owned(), file: file.to_owned() },
        _ => Seen::Native(base_name(name)),
    };
    stack.frames.iter().map(|frame| seen((&frame.name, &frame.file, frame.kind))).collect()
}

fn of_python(frames: &[Seen]) -> Vec<Seen> {
    frames.iter().filter(|frame| matches!(frame, Seen::Python { .. })).cloned().collect()
}

/// Whether `theirs` are among `ours`, in this order, and are all of Python's.
fn are_spliced_alike(ours: &[Seen], theirs: &[Seen]) -> bool {
    let is_same = |ours: &Seen, theirs: &Seen| match (ours, theirs) {
        (Seen::Native(ours), Seen::Native(theirs)) => ours == theirs,
        (Seen::Python { name, file }, Seen::Python { name: plain, file: their_file }) => {
            file == their_file && name.rsplit('.').next() == plain.rsplit('.').next()
        }
        _ => false,
    };
    let mut rest = ours.iter();
    // None of Python's is skipped on the way to the next of theirs.
    let next = |wanted: &Seen| {
        rest.by_ref()
            .find(|frame| is_same(frame, wanted) || matches!(frame, Seen::Python { .. }))
            .is_some_and(|frame| is_same(frame, wanted))
    };
    theirs.iter().all(next) && of_python(ours).len() == of_python(theirs).len()
}

/// All look at one chain while it stays at its end.
fn compare(oracles: &Oracles, subject: &Subject, program: &PythonProgram, chain: &str) -> Result<()> {
    let mut held = Gated::start(program.command(&["60", "--hold", "--only", chain]))?;
    let pid = held.pid();
    let profiler = Profiler::start(Form::of_this_run()?, &Settings::at(SAMPLES_PER_SECOND).of(&[pid]))?;
    held.open()?;
    std::thread::sleep(Duration::from_secs(1));
    let by_pystack = oracles.by_pystack(pid, subject.is_native)?;
    let by_py_spy = match subject.by_py_spy {
        true => Some(oracles.by_py_spy(pid, subject.is_native)?),
        false => None,
    };
    let received = profiler.stop()?.received;
    let mut ours = BTreeMap::<Vec<Seen>, u64>::new();
    let is_known = |stack: &&Stack| stack.frames.iter().all(|frame| frame.kind != FrameKind::Marker);
    for stack in from_otlp(&received).iter().filter(|stack| stack.pid == pid).filter(is_known) {
        *ours.entry(seen_in(stack)).or_default() += stack.count;
    }
    let all: u64 = ours.values().sum();
    let count_of = |is_equal: &dyn Fn(&[Seen]) -> bool| {
        ours.iter().filter(|(frames, _)| is_equal(frames)).map(|(_, count)| count).sum::<u64>()
    };
    let is_py_spys = |frames: &[Seen]| by_py_spy.as_ref().is_none_or(|theirs| of_python(frames) == *theirs);
    let of_py_spy = count_of(&is_py_spys);
    let is_pystacks = |frames: &[Seen]| chain == NOT_ASCII || are_spliced_alike(frames, &by_pystack);
    let of_pystack = count_of(&is_pystacks);
    eprintln!("{chain}: of {all} samples, {of_py_spy} have py-spy's frames and {of_pystack} pystack's");
    let is_enough = |count: u64| count as f64 >= EQUAL_SHARE * all as f64;
    let most_frequent = ours.iter().max_by_key(|(_, count)| **count);
    ensure!(
        all > 100 && is_enough(of_py_spy) && is_enough(of_pystack),
        "{chain}: {of_py_spy} and {of_pystack} of {all}\npy-spy: {by_py_spy:#?}\npystack: {by_pystack:#?}\n\
         Sidewinder: {most_frequent:#?}"
    );
    Ok(())
}

/// They are fetched from PyPI.
#[promise(CPython, test_all)]
fn py_spy_and_pystack_find_the_same_functions() -> Result<()> {
    let name = "Python beside py-spy and pystack";
    if !runs_long(name)? {
        return Ok(());
    }
    let oracles = Oracles::fetched()?;
    let mut wrong = Vec::new();
    for subject in Subject::all()? {
        let whom = if subject.by_py_spy { "py-spy and pystack" } else { "pystack" };
        eprintln!("{}, {}, by {whom}:", subject.name, subject.interpreter.display());
        let program = PythonProgram::new(&subject.interpreter, "chains.py");
        let Expected { chains, .. } = Expected::of_program(&program, &[])?;
        for chain in &chains {
            if let Err(error) = compare(&oracles, &subject, &program, &chain.name) {
                wrong.push(format!("{}: {error:#}", subject.interpreter.display()));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[promise(CPython, test_all)]
fn the_comparison_with_pystack_finds_frames_out_of_order() {
    let python = |name: &str| Seen::Python { name: name.to_owned(), file: "/a.py".to_owned() };
    let native = |name: &str| Seen::Native(name.to_owned());
    let line = "    (C) File \"Objects/listobject.c\", line 2299, in list_sort_impl.cold (/usr/lib/libpython3.12.so.1.0)";
    assert_eq!(seen_by_pystack(line), Some(native("list_sort_impl")));
    assert_eq!(seen_by_pystack("    (C) File \"???\", line 0, in ??? (/usr/bin/python3.11)"), None);
    assert_eq!(seen_by_pystack("    (Python) File \"/a.py\", line 3, in key"), Some(python("key")));
    let theirs = [native("main"), python("sort"), native("list_sort"), python("key")];
    let ours = [
        native("_start"),
        native("main"),
        python("A.sort"),
        native("vectorcall"),
        native("list_sort"),
        python("key"),
        native("sha256"),
    ];
    assert!(are_spliced_alike(&ours, &theirs));
    for (a, b) in [(1, 2), (2, 4), (4, 5), (2, 5)] {
        let mut swapped = ours.clone();
        swapped.swap(a, b);
        assert!(!are_spliced_alike(&swapped, &theirs), "{swapped:?}");
    }
    let one_more = [&ours[..], &[python("key")]].concat();
    assert!(!are_spliced_alike(&one_more, &theirs));
    assert!(!are_spliced_alike(&ours[..5], &theirs));
}
