//! The programs compile for architectures other than this machine's, and each of their headers compiles by itself.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_rs::libbpf_sys::API_HEADERS;
use object::{Object as _, ObjectSymbol as _};

include!("../programs.rs");

/// The architectures that there are programs for, by Rust's names.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// Whether this machine has the kernel headers of an architecture.
fn has_headers_of(architecture: &str) -> bool {
    let has_headers = ARCH == architecture
        || Path::new(&format!("/usr/{architecture}-linux-gnu/include/asm/ptrace.h")).is_file();
    if !has_headers {
        eprintln!("SKIPPED: no kernel headers of {architecture} here (linux-libc-dev-*-cross)");
    }
    has_headers
}

/// clang, with what the build gives it for an architecture, and libbpf's headers, which it writes into `directory`.
fn clang(architecture: &str, directory: &Path) -> Command {
    let headers = directory.join("bpf");
    fs::create_dir_all(&headers).unwrap();
    for (name, content) in API_HEADERS {
        fs::write(headers.join(name), content).unwrap();
    }
    let mut clang = Command::new(std::env::var_os("CLANG").unwrap_or_else(|| "clang".into()));
    clang
        .args(["-target", "bpf", "-g", "-fno-stack-protector", "-DSW_TEST_PROGRAMS"])
        .args(COMPILER_ARGUMENTS)
        .args(architecture_arguments(architecture, ARCH).unwrap())
        .arg("-I")
        .arg(directory);
    clang
}

/// Compiles an object, and returns the names that it defines.
fn compiled(name: &str, architecture: &str) -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("object");
    let status = clang(architecture, directory.path())
        .arg("-c")
        .arg(Path::new("c").join(format!("{name}.bpf.c")))
        .arg("-o")
        .arg(&path)
        .status()
        .unwrap();
    assert!(status.success(), "{name}.bpf.c for {architecture}: clang: {status}");
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    file.symbols()
        .filter(|symbol| !symbol.is_undefined())
        .map(|symbol| symbol.name().unwrap().to_owned())
        .collect()
}

/// The headers in a folder, and in those below it, that programs for an architecture may include.
fn headers_in(folder: &Path, architecture: &str) -> Vec<PathBuf> {
    let is_foreign =
        |name: &str| ARCHITECTURES.iter().any(|other| *other != architecture && name.starts_with(other));
    let mut headers = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            headers.append(&mut headers_in(&path, architecture));
        } else if path.extension().is_some_and(|extension| extension == "h")
            && !is_foreign(path.file_name().unwrap().to_str().unwrap())
        {
            headers.push(path);
        }
    }
    headers
}

#[test]
fn the_programs_compile_for_arm64() {
    if ARCH == "aarch64" || !has_headers_of("aarch64") {
        return;
    }
    for name in OBJECTS {
        let names = compiled(name, "aarch64");
        if name == "sample" {
            let has = |function: &str| names.contains(function);
            assert!(has("sample_cpu") && has("guess_by_link_register") && has("signature_mask"), "{names:?}");
            assert!(has("find_hotspot_frame") && has("stub_state"), "{names:?}");
            assert!(!has("has_left_native") && !has("step_in_v8"), "code of x86-64: {names:?}");
        }
    }
}

/// A header includes what it uses: nothing depends on what is included before it.
#[test]
fn each_header_compiles_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    for architecture in ARCHITECTURES.into_iter().filter(|it| has_headers_of(it)) {
        let headers = headers_in(Path::new("c"), architecture);
        assert!(headers.contains(&PathBuf::from(format!("c/arch/{architecture}.bpf.h"))), "{headers:?}");
        let failed: Vec<_> = headers
            .into_iter()
            .filter(|header| {
                let mut clang = clang(architecture, directory.path());
                // What one header defines, another one uses.
                clang.args(["-Wno-unused-function", "-fsyntax-only", "-include"]).arg(header);
                !clang.args(["-x", "c", "/dev/null"]).status().unwrap().success()
            })
            .collect();
        assert!(
            failed.is_empty(),
            "for {architecture}, these depend on what is included before them: {failed:?}"
        );
    }
}

/// What runtimes share is in headers outside of their folders, and one header knows all of them.
#[test]
fn a_runtime_uses_no_header_of_another() {
    const RUNTIMES: [&str; 3] = ["cpython", "hotspot", "v8"];
    let directory = tempfile::tempdir().unwrap();
    let is_of = |header: &Path, runtime: &str| {
        header.parent().unwrap().ends_with(runtime) || header.ends_with(format!("{runtime}.bpf.h"))
    };
    for runtime in RUNTIMES {
        let listed =
            clang(ARCH, directory.path()).arg("-MM").arg(format!("c/{runtime}.bpf.h")).output().unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let listed = String::from_utf8(listed.stdout).unwrap();
        let paths = listed.split_whitespace().filter(|word| word.ends_with(".h"));
        let headers: BTreeSet<_> = paths.map(|path| fs::canonicalize(path).unwrap()).collect();
        assert!(headers.iter().filter(|header| is_of(header, runtime)).count() > 1, "{headers:?}");
        // Slots and scratch memory have the state of each.
        let foreign = headers.iter().filter(|header| !header.ends_with("state.bpf.h"));
        let foreign = foreign.filter(|header| RUNTIMES.iter().any(|it| *it != runtime && is_of(header, it)));
        assert_eq!(foreign.collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "in c/{runtime}.bpf.h");
    }
}
