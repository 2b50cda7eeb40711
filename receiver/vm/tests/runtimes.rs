//! Runtimes that are installed are recognized by their files' symbols, whatever the files are called.
#![expect(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sidewinder_vm::{Runtime, find_runtimes};

/// What Debian's packages install, and Go's own.
const INSTALLED: [(Runtime, &str); 9] = [
    (Runtime::V8, "/usr/bin/node"),
    (Runtime::Jvm, "/usr/lib/jvm/*/lib/server/libjvm.so"),
    (Runtime::Ruby, "/usr/lib/x86_64-linux-gnu/libruby-*.so"),
    (Runtime::Php, "/usr/bin/php*"),
    (Runtime::Perl, "/usr/bin/perl"),
    (Runtime::LuaJit, "/usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"),
    (Runtime::PyPy, "/usr/lib/x86_64-linux-gnu/libpypy3*-c.so"),
    (Runtime::Beam, "/usr/lib/erlang/erts-*/bin/beam.smp"),
    (Runtime::Go, "/usr/local/go/bin/go"),
];

/// The files that match a path in which `*` stands for any characters of one name.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/")];
    for part in pattern.split('/').skip(1) {
        let (start, end) = part.split_once('*').unwrap_or((part, ""));
        paths = paths
            .iter()
            .filter_map(|folder| fs::read_dir(folder).ok())
            .flatten()
            .map(|entry| entry.unwrap())
            .filter(|entry| {
                let name = entry.file_name().into_string().unwrap();
                name == part
                    || part.contains('*') && name.starts_with(start) && name[start.len()..].ends_with(end)
            })
            .map(|entry| entry.path())
            .collect();
    }
    paths.into_iter().filter(|path| path.is_file()).collect()
}

#[test]
fn runtimes_are_recognized_by_their_symbols() {
    for (runtime, pattern) in INSTALLED {
        let paths = matching(pattern);
        if paths.is_empty() {
            eprintln!("SKIPPED: no {pattern}");
        }
        for path in paths {
            let found = find_runtimes(&File::open(&path).unwrap()).unwrap();
            let [(first, version)] = &found[..] else { panic!("{}: {found:?}", path.to_string_lossy()) };
            assert_eq!(*first, runtime, "{}", path.to_string_lossy());
            let has_version = [Runtime::V8, Runtime::Ruby, Runtime::Go].contains(&runtime);
            assert_eq!(version.is_some(), has_version, "{}: {version:?}", path.to_string_lossy());
            assert!(
                version.as_ref().is_none_or(|text| text.starts_with(|first: char| first.is_ascii_digit()))
            );
            eprintln!("{}: {runtime:?} {version:?}", path.to_string_lossy());
        }
    }
}

#[test]
fn other_files_contain_no_runtime() {
    let none = |file: &[u8]| find_runtimes(&file).unwrap().is_empty();
    assert!(none(b"") && none(b"\x7fELF") && none(b"#!/usr/bin/node\n"));
    assert!(find_runtimes(&File::open(Path::new("/bin/sh")).unwrap()).unwrap().is_empty());
    // This program mentions the names, and has none of them.
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(own.windows(16).any(|bytes| bytes == b"JNI_CreateJavaVM"));
    assert!(none(&own));
}

#[test]
fn broken_files_are_read_to_their_end() {
    let Ok(whole) = fs::read("/usr/bin/perl") else {
        eprintln!("SKIPPED: no /usr/bin/perl");
        return;
    };
    for end in (0..whole.len()).step_by(whole.len() / 50) {
        let _ = find_runtimes(&&whole[..end]).unwrap();
    }
    for at in (16..1024).step_by(17).chain((whole.len() - 2048..whole.len()).step_by(37)) {
        let mut broken = whole.clone();
        broken[at..].iter_mut().take(8).for_each(|to| *to = 0xff);
        let _ = find_runtimes(&&broken[..]).unwrap();
    }
}
