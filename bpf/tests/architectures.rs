//! The programs compile for architectures other than this machine's.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::path::Path;
use std::process::Command;

use libbpf_rs::libbpf_sys::API_HEADERS;
use object::{Object as _, ObjectSymbol as _};

include!("../programs.rs");

/// Compiles an object, and returns the names that it defines.
fn compiled(name: &str, architecture: &str) -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let headers = directory.path().join("bpf");
    fs::create_dir(&headers).unwrap();
    for (name, content) in API_HEADERS {
        fs::write(headers.join(name), content).unwrap();
    }
    let path = directory.path().join("object");
    let status = Command::new(std::env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
        .args(["-target", "bpf", "-g", "-fno-stack-protector", "-DSW_TEST_PROGRAMS", "-c"])
        .args(COMPILER_ARGUMENTS)
        .args(architecture_arguments(architecture, ARCH).unwrap())
        .arg("-I")
        .arg(directory.path())
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

#[test]
fn the_programs_compile_for_arm64() {
    if ARCH == "aarch64" {
        return;
    }
    if !Path::new("/usr/aarch64-linux-gnu/include/asm/ptrace.h").is_file() {
        return eprintln!("SKIPPED: no kernel headers of arm64 here (linux-libc-dev-arm64-cross)");
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
