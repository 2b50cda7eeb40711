//! Interpreters that are installed: what is read of their processes is compared with what they say themselves.
//!
//! Those of pyenv and the system's are tested, and those in `SIDEWINDER_TEST_PYTHONS`, separated by colons.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what goes wrong in a test fails it")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use common::Python;
use sidewinder_address::Avma;
use sidewinder_process::tls::TlsLocation;
use sidewinder_vm::cpython::{Groups, Interpreter};
use sidewinder_vm::{FileRange, FunctionError, Runtime, find_runtimes};

/// Minor versions that are supported and can be had from pyenv.
const MINORS: std::ops::RangeInclusive<u8> = 8..=14;

/// The interpreters that are installed, by path.
fn installed() -> Vec<PathBuf> {
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".pyenv"))).unwrap_or_default();
    let versions = std::fs::read_dir(root.join("versions")).into_iter().flatten();
    let folders: BTreeSet<PathBuf> = versions.map(|entry| entry.unwrap().path()).collect();
    let mut found = Vec::new();
    for minor in MINORS {
        let prefix = format!("3.{minor}.");
        let is_it = |folder: &&PathBuf| folder.file_name().unwrap().to_str().unwrap().starts_with(&prefix);
        match folders.iter().filter(is_it).collect::<Vec<_>>()[..] {
            [] => eprintln!("SKIPPED: no Python 3.{minor} in {}", root.to_string_lossy()),
            ref folders => {
                found.extend(folders.iter().map(|folder| folder.join(format!("bin/python3.{minor}"))));
            }
        }
    }
    match Path::new("/usr/bin/python3").canonicalize() {
        Ok(path) => found.push(path),
        Err(_) => eprintln!("SKIPPED: no /usr/bin/python3"),
    }
    let others = env::var_os("SIDEWINDER_TEST_PYTHONS").unwrap_or_default();
    found.extend(env::split_paths(&others).filter(|path| !path.as_os_str().is_empty()));
    found
}

#[test]
fn functions_are_read_as_their_process_knows_them() {
    for path in installed() {
        let python = Python::start(&path);
        let what = format!("{}, {}", path.to_string_lossy(), python.interpreter.version);
        let (mut functions, mut instructions) = (0, 0);
        for said in python.said.codes.values() {
            let (code, cookie) = (said.code, python.cookie(said.code));
            let read = python.interpreter.layout.read_function(&python.memory, code, cookie);
            let function = read.unwrap_or_else(|error| panic!("{what}: {said:?}: {error:?}"));
            assert_eq!((&*function.name(), function.path()), (&*said.name, &*said.path), "{what}");
            assert_eq!(function.first_line, said.first_line, "{what}: {}", said.name);
            for place in (0..said.bytes).step_by(2) {
                // Modules start in line 0.
                let line = said.line_at(place).filter(|line| *line != 0);
                assert_eq!(function.line_at(place), line, "{what}: {} +{place}", said.name);
                instructions += 1;
            }
            let other = python.interpreter.layout.read_function(&python.memory, code, cookie ^ 2);
            assert!(matches!(other, Err(FunctionError::Replaced)), "{what}: {other:?}");
            functions += 1;
        }
        let cookies: BTreeSet<u32> =
            python.said.codes.values().map(|said| python.cookie(said.code)).collect();
        assert_eq!(cookies.len(), functions, "{what}: two functions have the same cookie");
        assert!(functions > 300, "{what}: {functions}");
        eprintln!("{what}: {functions} functions, {instructions} instructions");
    }
}

#[test]
fn frames_of_all_threads_are_found_from_their_state() {
    for path in installed() {
        let python = Python::start(&path);
        let what = format!("{}, {}", path.to_string_lossy(), python.interpreter.version);
        assert_eq!(python.said.threads.len(), 2, "{what}");
        for thread in &python.said.threads {
            let groups = python.walk(thread.pointer);
            let frames: Vec<_> = groups.iter().flatten().copied().collect();
            assert_eq!(frames, thread.frames, "{what}: {groups:?}");
            let names: Vec<&str> =
                frames.iter().map(|(code, _)| &*python.said.codes[&code.0].name).take(5).collect();
            assert_eq!(names, ["h", "generator", "k", "g", "f"], "{what}");
            if let Some(activations) = thread.activations {
                assert_eq!(groups.len(), activations, "{what}: {groups:?}");
            }
            if python.interpreter.layout.groups == Groups::OneFrame {
                assert!(groups.iter().all(|group| group.len() == 1), "{what}: {groups:?}");
            }
        }
        eprintln!("{what}: {:?}, {:?}", python.location, python.interpreter.loops);
    }
}

/// A program that uses many pthread keys before it starts the interpreter.
#[test]
fn frames_are_found_from_a_state_of_a_late_key() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("keys.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keys.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    assert!(compiler.status().expect("cc is installed").success());
    for path in installed() {
        let python = Python::run(Command::new(&path).env("LD_PRELOAD", &library));
        assert!(matches!(python.location, TlsLocation::Indirect { .. }), "{}", path.to_string_lossy());
        for thread in &python.said.threads {
            let frames: Vec<_> = python.walk(thread.pointer).into_iter().flatten().collect();
            assert_eq!(frames, thread.frames, "{}", path.to_string_lossy());
        }
    }
}

#[test]
fn threads_are_listed_with_the_functions_that_they_run() {
    for path in installed() {
        let python = Python::start(&path);
        let what = format!("{}, {}", path.to_string_lossy(), python.interpreter.version);
        let states = python.interpreter.thread_states(python.bias, &python.memory).unwrap();
        for thread in &python.said.threads {
            let state = Avma(python.state(thread.pointer, python.location));
            assert!(states.contains(&state), "{what}: {states:x?}");
            let is_there =
                python.interpreter.is_state_at(python.location, state, &python.memory, None).unwrap();
            let is_dynamic = matches!(python.location, TlsLocation::Dynamic { .. });
            assert_eq!(is_there, (!is_dynamic).then_some(true), "{what}");
            let function = python.interpreter.layout.innermost_function(state, &python.memory).unwrap();
            assert_eq!(function.map(|function| function.name().into_owned()).as_deref(), Some("h"), "{what}");
        }
        let other = TlsLocation::Static { offset: 8 };
        assert_eq!(
            python.interpreter.is_state_at(other, states[0], &python.memory, None).unwrap(),
            Some(false),
            "{what}"
        );
    }
}

#[test]
fn interpreters_are_found_with_their_version() {
    for path in installed() {
        let python = Python::start(&path);
        let (what, version) = (path.to_string_lossy(), python.interpreter.version);
        let found: Vec<_> = python
            .files
            .iter()
            .flat_map(|file| find_runtimes(&File::open(file).unwrap()).unwrap())
            .filter(|(runtime, _)| *runtime == Runtime::CPython)
            .collect();
        let [(_, ref exact)] = found[..] else { panic!("{what}: {found:?}") };
        // Older ones don't export it.
        let exact = exact.as_ref().map(ToString::to_string);
        assert_eq!(exact.is_some(), version.minor >= 11, "{what}: {exact:?}");
        assert!(exact.is_none_or(|exact| exact.starts_with(&format!("{version}."))), "{what}");
    }
}

/// Since 3.12, a thread's variable is null while it does not hold the interpreter's lock.
#[test]
fn the_thread_that_holds_the_lock_is_found() {
    for path in installed() {
        let python = Python::start(&path);
        let (what, version) = (path.to_string_lossy(), python.interpreter.version);
        let Some(attached) = python.attached else {
            assert!(version.minor < 12, "{what}");
            continue;
        };
        assert!(version.minor >= 12, "{what}");
        let holder = python.said.holder;
        let state = python.state(holder, python.location);
        assert_ne!(state, 0, "{what}");
        // It may not have got the lock back yet from the last thread that had it.
        let is_attached = (0..5_000).any(|_| {
            sleep(Duration::from_millis(1));
            python.state(holder, attached) == state
        });
        assert!(is_attached, "{what}: {attached:?}");
        // Without a lock, threads that wait for input are detached as well.
        for thread in &python.said.threads {
            assert_eq!(python.state(thread.pointer, attached), 0, "{what}: {attached:?}");
        }
        eprintln!("{what}, {version}: {attached:?}");
    }
}

#[test]
fn each_version_has_its_own_layout() {
    let mut versions = BTreeMap::new();
    for path in installed() {
        let python = Python::start(&path);
        let layout = python.interpreter.layout;
        assert!(layout.frame_bytes <= 128 && layout.identity.1 <= 96 && layout.identity.1.is_multiple_of(8));
        assert_eq!(layout.identity_has_texts, python.interpreter.version.minor < 12);
        let said = python.said.version;
        assert_eq!(python.interpreter.version.minor, said, "{}", path.to_string_lossy());
        let build = (said, python.said.is_free_threaded);
        assert_eq!(*versions.entry(build).or_insert(layout), layout, "builds of 3.{said} differ");
    }
}

#[test]
fn parts_of_a_split_loop_are_found_without_symbols() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libpython3.13.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/split.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-nostdlib", "-s", "-o"]).arg(&library).arg(source);
    assert!(compiler.status().expect("cc is installed").success());
    let interpreter = Interpreter::read(&File::open(library).unwrap()).unwrap().unwrap();
    let lengths: Vec<u64> = interpreter.loops.iter().map(|range| range.bytes).collect();
    assert_eq!(lengths, [22, 10, 4], "{:x?}", interpreter.loops);
    assert_eq!(interpreter.version.to_string(), "3.13");
}

/// Its own function, two calls in the copy, and what the copy jumps to on the way to them.
#[test]
fn copies_of_a_loop_of_tail_calls_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("python3.14");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tail_calls.c");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O1", "-no-pie", "-nostartfiles", "-Wl,--no-as-needed", "-s", "-Wl,--export-dynamic", "-o"])
        .arg(&program)
        .arg(source);
    assert!(compiler.status().expect("cc is installed").success());
    let interpreter = Interpreter::read(&File::open(program).unwrap()).unwrap().unwrap();
    let lengths: Vec<u64> = interpreter.loops.iter().map(|range| range.bytes).collect();
    assert_eq!(lengths, [14, 27, 7, 10], "{:x?}", interpreter.loops);
    assert_eq!(interpreter.version.to_string(), "3.14");
}

/// Each activation pushes registers before its frame is the current one; up to 3.10, it returns after its caller's is that.
#[test]
fn code_of_the_loop_without_a_current_frame_is_found() {
    for path in installed() {
        let python = Python::start(&path);
        let Interpreter { loops, unlinked, layout, .. } = &python.interpreter;
        let what = format!("{}: {unlinked:x?} of {loops:x?}", path.to_string_lossy());
        let count = match (layout.groups, layout.cframe) {
            (Groups::OneFrame, _) => 2..=4,
            (_, Some(_)) => 1..=1,
            (_, None) => 0..=0,
        };
        assert!(count.contains(&unlinked.len()), "{what}");
        let end = |range: &FileRange| range.start.0 + range.bytes;
        assert!(unlinked.is_sorted_by(|a, b| end(a) < b.start.0), "{what}");
        let is_inside =
            |range: &FileRange| loops.iter().any(|all| range.start >= all.start && end(range) <= end(all));
        assert!(unlinked.iter().all(is_inside), "{what}");
        assert!(unlinked.iter().map(|range| range.bytes).sum::<u64>() < 256, "{what}");
        eprintln!("{what}");
    }
}

#[test]
fn other_files_contain_no_interpreter() {
    let none = |file: &[u8]| Interpreter::read(&file).unwrap().is_none();
    assert!(none(b""));
    assert!(none(b"#!/usr/bin/python3\n"));
    // This program mentions the names, and has none of them.
    let own = std::fs::read(env::current_exe().unwrap()).unwrap();
    assert!(own.windows(10).any(|bytes| bytes == b"_PyRuntime"));
    assert!(none(&own));
}

/// For prefixes of an executable, and for bytes changed in each of its parts, the reader terminates, with a result or without.
#[test]
fn broken_files_are_read_to_their_end() {
    let Ok(whole) = std::fs::read("/usr/bin/python3") else {
        eprintln!("SKIPPED: no /usr/bin/python3");
        return;
    };
    if Interpreter::read(&&whole[..]).unwrap().is_none() {
        eprintln!("SKIPPED: /usr/bin/python3 does not contain its interpreter");
        return;
    }
    for end in (0..whole.len()).step_by(whole.len() / 20) {
        let _ = Interpreter::read(&&whole[..end]).unwrap();
    }
    let headers = (16..1024).step_by(17).chain((whole.len() - 2048..whole.len()).step_by(37));
    for at in headers.chain((1024..whole.len()).step_by(whole.len() / 40)) {
        for byte in [0, 0x7f, 0xff] {
            let mut broken = whole.clone();
            broken[at..].iter_mut().take(8).for_each(|to| *to = byte);
            if let Some(interpreter) = Interpreter::read(&&broken[..]).unwrap() {
                let layout = interpreter.layout;
                assert!(layout.frame_bytes <= 128 && layout.identity.1 <= 96, "{layout:?}");
                assert!(interpreter.loops.iter().all(|range| range.bytes > 0));
                assert!(interpreter.loops.is_sorted(), "{:?}", interpreter.loops);
            }
        }
    }
}
