//! The programs compile for architectures other than this machine's.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::path::Path;

use libbpf_cargo::SkeletonBuilder;
use object::{Object as _, ObjectSymbol as _};

include!("../programs.rs");

/// Compiles an object, and returns the names that it defines.
fn compiled(name: &str, architecture: &str) -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("object");
    let of_architecture = architecture_arguments(architecture, ARCH).unwrap();
    let arguments = COMPILER_ARGUMENTS.into_iter().chain(of_architecture.iter().map(String::as_str));
    SkeletonBuilder::new()
        .source(Path::new("c").join(format!("{name}.bpf.c")))
        .obj(&path)
        .clang(std::env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
        .clang_args(arguments.chain(["-DSW_TEST_PROGRAMS"]))
        .build()
        .unwrap();
    let bytes = std::fs::read(path).unwrap();
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
