//! Compiles the eBPF programs into a skeleton, and `c/intf.h` into its Rust view.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=c");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let kernel_arch = match arch.as_str() {
        "x86_64" => "x86",
        other => return Err(format!("no eBPF registers for {other}: see c/regs.bpf.h").into()),
    };
    // `-target bpf` has no multiarch directory of its own; <asm/types.h> lives there on Debian.
    let multiarch = format!("-I/usr/include/{arch}-linux-gnu");

    SkeletonBuilder::new()
        .source("c/sample.bpf.c")
        .clang_args([
            "-mcpu=v3",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
            &format!("-D__TARGET_ARCH_{kernel_arch}"),
            &multiarch,
        ])
        .build_and_generate(out.join("sample.skel.rs"))?;

    bindgen::Builder::default()
        .header("c/intf.h")
        .clang_arg(multiarch)
        .use_core()
        .allowlist_item("sw_.*|SW_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .layout_tests(true)
        .generate()?
        .write_to_file(out.join("intf.rs"))?;
    Ok(())
}
