//! Runtimes whose own frames walks don't find: what they generate is visible as far as they publish it.

use sidewinder_profile::FrameType;
use sidewinder_vm_runtime::description::{BY_FRAME_POINTER, INTERPRETER_ONLY, PUBLISHED};
use sidewinder_vm_runtime::{Runtime, RuntimeDescription, VersionSymbols};

pub(crate) const DOTNET: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::Dotnet),
    id: "dotnet",
    label: ".NET",
    name: ".NET",
    frames: BY_FRAME_POINTER,
    names: PUBLISHED,
    frames_advice: None,
    advice: Some("run it with DOTNET_PerfMapEnabled=1 and DOTNET_EnableWriteXorExecute=0"),
    parts: None,
    frame_type: FrameType::Dotnet,
    // The second is of programs that contain the runtime.
    symbols: &[b"coreclr_initialize", b"DotNetRuntimeInfo", b"mono_jit_init"],
    version: None,
};

pub(crate) const GO: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::Go),
    id: "go",
    label: "Go",
    name: "Go, Rust, C, C++",
    frames: "native",
    names: "symbols and debug information; Go's own tables, even if stripped",
    frames_advice: None,
    advice: None,
    parts: None,
    frame_type: FrameType::Go,
    // Its files have build information instead.
    symbols: &[],
    version: None,
};

pub(crate) const RUBY: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::Ruby),
    id: "ruby",
    label: "Ruby",
    name: "Ruby",
    frames: INTERPRETER_ONLY,
    names: "the interpreter's; for YJIT's code, from a perf map",
    frames_advice: None,
    advice: Some("run it with --yjit-perf (Ruby 3.3 and later)"),
    parts: None,
    frame_type: FrameType::Ruby,
    symbols: &[b"ruby_run_node"],
    // `const char ruby_version[]`.
    version: Some(VersionSymbols { names: &[b"ruby_version"], bytes: 16, parse: ruby_version }),
};

pub(crate) const PHP: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::Php),
    id: "php",
    label: "PHP",
    name: "PHP",
    frames: INTERPRETER_ONLY,
    names: "the interpreter's; for JIT-compiled code, from a perf map",
    frames_advice: None,
    advice: Some("run it with -d opcache.jit_debug=0x10"),
    parts: None,
    frame_type: FrameType::Php,
    symbols: &[b"execute_ex"],
    version: None,
};

pub(crate) const BEAM: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::Beam),
    id: "beam",
    label: "Erlang's virtual machine",
    name: "Erlang, Elixir",
    frames: BY_FRAME_POINTER,
    names: PUBLISHED,
    frames_advice: None,
    advice: Some("run it with +JPperf true (ERL_FLAGS=\"+JPperf true\")"),
    parts: None,
    frame_type: FrameType::Beam,
    symbols: &[b"beam_normal_exit", b"erts_frame_layout"],
    version: None,
};

pub(crate) const LUAJIT: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::LuaJit),
    id: "luajit",
    label: "LuaJIT",
    name: "LuaJIT",
    frames: INTERPRETER_ONLY,
    names: "the interpreter's; for traces, from a perf map",
    frames_advice: None,
    advice: Some("build LuaJIT with XCFLAGS=-DLUAJIT_USE_PERFTOOLS"),
    parts: None,
    frame_type: FrameType::LuaJit,
    symbols: &[b"luaJIT_setmode"],
    version: None,
};

pub(crate) const PYPY: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::PyPy),
    id: "pypy",
    label: "PyPy",
    name: "PyPy",
    frames: INTERPRETER_ONLY,
    names: INTERPRETER_ONLY,
    frames_advice: None,
    advice: Some(
        "the code that PyPy generates has no names: run the program with CPython to see its functions",
    ),
    parts: None,
    // The conventions have no type for it.
    frame_type: FrameType::Native,
    symbols: &[b"pypy_main_startup"],
    version: None,
};

pub(crate) const PERL: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::Perl),
    id: "perl",
    label: "Perl",
    name: "Perl",
    frames: INTERPRETER_ONLY,
    names: INTERPRETER_ONLY,
    frames_advice: None,
    advice: None,
    parts: None,
    frame_type: FrameType::Perl,
    symbols: &[b"perl_run"],
    version: None,
};

/// Those that are not known.
pub(crate) const OTHER: RuntimeDescription = RuntimeDescription {
    runtime: None,
    id: "other",
    label: "generated code",
    name: "LLVM's JIT compilers and others",
    frames: BY_FRAME_POINTER,
    names: "from a perf map, a jitdump, or the GDB JIT interface",
    frames_advice: None,
    advice: Some("make its runtime write /tmp/perf-PID.map or a jitdump: see its manual on perf(1)"),
    parts: None,
    frame_type: FrameType::Native,
    symbols: &[],
    version: None,
};

fn ruby_version(values: &[Vec<u8>]) -> Option<String> {
    let text = values.first()?.split(|byte| *byte == 0).next()?;
    let is_version = !text.is_empty() && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.'));
    is_version.then(|| String::from_utf8_lossy(text).into_owned())
}
