// How the eBPF programs are compiled: for the build script, and for the test that compiles them for other architectures.

/// The objects, each made of `c/NAME.bpf.c`.
const OBJECTS: [&str; 5] = ["sample", "cgroup", "fields", "foreign_memory", "kernel_names"];

/// What clang is given for any architecture.
const COMPILER_ARGUMENTS: [&str; 6] =
    ["-mcpu=v3", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];

/// What clang is given for an architecture by Rust's name: libbpf's name for it, and where its kernel headers are. `-target
/// bpf` has no multiarch include directory, which holds <asm/types.h> on Debian. Those of another architecture than `host`
/// come with Debian's cross compilers.
fn architecture_arguments(target: &str, host: &str) -> Result<[String; 2], String> {
    let kernel_name = match target {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => return Err(format!("no eBPF registers for {other}: see c/arch")),
    };
    let headers = match target == host {
        true => format!("/usr/include/{target}-linux-gnu"),
        false => format!("/usr/{target}-linux-gnu/include"),
    };
    Ok([format!("-D__TARGET_ARCH_{kernel_name}"), format!("-I{headers}")])
}
