//! The programs of `workloads/`.

use super::{Compiler, Program};

const OMIT_FRAME_POINTER: &[&str] = &["-fomit-frame-pointer"];
const KEEP_FRAME_POINTER: &[&str] = &["-fno-omit-frame-pointer"];

/// For arm64.
const SIGN_RETURN_ADDRESSES: &[&str] = &["-fomit-frame-pointer", "-mbranch-protection=standard"];

const fn c(name: &'static str, source: &'static str) -> Program {
    Program { name, source, compiler: Compiler::C(OMIT_FRAME_POINTER) }
}

/// A chain of distinct functions in C++, without frame pointers.
pub const LADDER: Program =
    Program { name: "ladder", source: "ladder.cc", compiler: Compiler::Cxx(OMIT_FRAME_POINTER) };
/// The same chain, with frame pointers.
pub const LADDER_FP: Program =
    Program { name: "ladder-fp", source: "ladder.cc", compiler: Compiler::Cxx(KEEP_FRAME_POINTER) };
/// The same chain for arm64, without frame pointers, and with signed return addresses and checked branches.
pub const LADDER_SIGNED: Program =
    Program { name: "ladder-signed", source: "ladder.cc", compiler: Compiler::Cxx(SIGN_RETURN_ADDRESSES) };
/// A chain of distinct functions in Rust.
pub const LADDER_RUST: Program =
    Program { name: "ladder-rust", source: "ladder.rs", compiler: Compiler::Rust };
/// A chain of distinct functions in Go.
pub const LADDER_GO: Program = Program { name: "ladder-go", source: "ladder.go", compiler: Compiler::Go };
/// The client of an API server, or of a Collector.
pub const REQUESTS: Program = Program { name: "requests", source: "requests.go", compiler: Compiler::Go };
/// One function that calls itself.
pub const REC: Program = c("rec", "rec.c");
/// The same with frame pointers.
pub const REC_FP: Program =
    Program { name: "rec-fp", source: "rec.c", compiler: Compiler::C(KEEP_FRAME_POINTER) };
/// The same on a stack in pieces: a call that has no room is made on a new one ("Split Stacks" in GCC's manual).
pub const REC_SPLIT: Program = Program {
    name: "rec-split",
    source: "rec.c",
    compiler: Compiler::C(&["-fomit-frame-pointer", "-fsplit-stack"]),
};
/// 512 different functions in random order.
pub const DIV: Program =
    Program { name: "div", source: "div.cc", compiler: Compiler::Cxx(OMIT_FRAME_POINTER) };
/// A given number of different stacks, each equally likely.
pub const DISTINCT: Program =
    Program { name: "distinct", source: "distinct.cc", compiler: Compiler::Cxx(OMIT_FRAME_POINTER) };
/// Real work with the C++ library, with frame pointers.
pub const WORDS_FP: Program =
    Program { name: "words-fp", source: "words.cc", compiler: Compiler::Cxx(KEEP_FRAME_POINTER) };
/// The same with all of its libraries in one file, which were built without frame pointers; loaded where its
/// headers state.
pub const WORDS_FP_STATIC: Program = Program {
    name: "words-fp-static",
    source: "words.cc",
    compiler: Compiler::Cxx(&["-fno-omit-frame-pointer", "-static", "-no-pie"]),
};
/// Real work with the C++ library, with debug information.
pub const WORDS_DEBUG: Program = Program {
    name: "words-debug",
    source: "words.cc",
    compiler: Compiler::Cxx(&["-fomit-frame-pointer", "-g"]),
};
/// Sampled in the kernel for the most part.
pub const READS: Program = c("reads", "reads.c");
/// Threads that wait, and say for how long.
pub const WAITS: Program = c("waits", "waits.c");
/// Threads that wait for three locks, and say for how long.
pub const CONVOYS: Program = c("convoys", "convoys.c");
/// Goroutines that wait for three locks.
pub const CONVOYS_GO: Program = Program { name: "convoys-go", source: "convoys.go", compiler: Compiler::Go };
/// Two hundred threads in all states, until it is killed.
pub const STATES: Program = c("states", "states.c");
/// An eBPF program for perf events that has the kernel walk its own stack, and nothing else.
pub const GET_STACK: Program =
    Program { name: "get_stack.bpf.o", source: "get_stack.bpf.c", compiler: Compiler::Ebpf };
/// An eBPF program that does nothing at each switch of the machine.
pub const AT_SWITCH: Program =
    Program { name: "at_switch.bpf.o", source: "at_switch.bpf.c", compiler: Compiler::Ebpf };
/// Threads that compute.
pub const THREADS: Program = c("threads", "threads.c");
/// [`REC`] with musl's libc.so, which has no unwind information.
pub const REC_MUSL: Program = Program { name: "rec-musl", source: "rec.c", compiler: Compiler::Musl };
/// [`THREADS`] likewise.
pub const THREADS_MUSL: Program =
    Program { name: "threads-musl", source: "threads.c", compiler: Compiler::Musl };
/// Memory that is never given to whoever reads it.
pub const SILENT: Program = c("silent", "silent.c");
/// Threads that write down when they were in which of two functions.
pub const TURNS: Program = c("turns", "turns.c");
/// Touches new memory in two functions, and says how many page faults each of them had.
pub const FAULTS: Program = c("faults", "faults.c");
/// Lives for five milliseconds.
pub const BRIEF: Program = c("brief", "brief.c");
/// Does so on a stack that was entered from the process's own.
pub const ASIDE: Program =
    Program { name: "aside", source: "aside.c", compiler: Compiler::C(KEEP_FRAME_POINTER) };
/// Runs another program many times.
pub const SPAWNER: Program = c("spawner", "spawner.c");
/// Runs another program with few privileges.
pub const PRIVILEGES: Program = c("privileges", "privileges.c");
/// Runs a program of a container's root as a runtime does.
pub const CONTAINER: Program = c("container", "container.c");
/// Computes within a signal handler.
pub const SIGNALS: Program = c("signals", "signals.c");
/// The same for arm64, with signed return addresses and checked branches.
pub const SIGNALS_SIGNED: Program =
    Program { name: "signals-signed", source: "signals.c", compiler: Compiler::C(SIGN_RETURN_ADDRESSES) };
/// Computes above 2^48, where a kernel for arm64 has such addresses.
pub const HIGH: Program = c("high", "high.c");
/// Publishes spans through pointers that have tags, on arm64.
pub const TAGGED: Program =
    Program { name: "tagged", source: "tagged.c", compiler: Compiler::C(&["-rdynamic"]) };
/// Computes in a function whose unwind information contradicts its code.
pub const MISSTATED: Program = c("misstated", "misstated.c");
/// Calls itself with frames of 40 kB.
pub const FRAMES: Program = c("frames", "frames.c");
/// Computes on stacks that belong to no thread.
pub const COROUTINES: Program = c("coroutines", "coroutines.c");
/// Throws and catches exceptions.
pub const THROWS: Program =
    Program { name: "throws", source: "throws.cc", compiler: Compiler::Cxx(OMIT_FRAME_POINTER) };
/// A search by recursion in OCaml.
pub const QUEENS: Program = Program { name: "queens", source: "queens.ml", compiler: Compiler::Ocaml };
/// A chain of functions in Free Pascal, whose compiler writes no unwind information.
pub const LADDER_PASCAL: Program =
    Program { name: "ladder-pascal", source: "ladder.pas", compiler: Compiler::Pascal(&["-Xs-"]) };
/// Functions of which neither tables nor instructions tell where their frames are.
pub const GUESSES: Program =
    Program { name: "guesses", source: "guesses.c", compiler: Compiler::C(KEEP_FRAME_POINTER) };
/// Lines whose costs are known, with debug information.
pub const LINES: Program = Program { name: "lines", source: "lines.c", compiler: Compiler::C(&["-g"]) };
/// Loads a library, uses it, unloads it.
pub const LOADER: Program = c("loader", "loader.c");
/// The library for [`LOADER`].
pub const PLUGIN: Program = Program {
    name: "plugin.so",
    source: "plugin.c",
    compiler: Compiler::C(&["-fomit-frame-pointer", "-shared", "-fPIC"]),
};

/// One file that several pods run, each in a function of its own.
pub const TENANT: Program = Program {
    name: "tenant",
    source: "tenant.c",
    compiler: Compiler::C(&["-fomit-frame-pointer", "-static"]),
};
/// The same with frame pointers.
pub const TENANT_FP: Program = Program {
    name: "tenant-fp",
    source: "tenant.c",
    compiler: Compiler::C(&["-fno-omit-frame-pointer", "-static"]),
};
/// Has many children that end at once, then others.
pub const FORKS: Program =
    Program { name: "forks", source: "forks.c", compiler: Compiler::C(&["-fomit-frame-pointer", "-static"]) };
/// Two callers of a method in C++, with a trace point, which counts what probes should count.
pub const SALES: Program =
    Program { name: "sales", source: "sales.cc", compiler: Compiler::Cxx(OMIT_FRAME_POINTER) };
/// The same callers in Rust.
pub const SALES_RUST: Program = Program { name: "sales-rust", source: "sales.rs", compiler: Compiler::Rust };
/// The same callers in Go.
pub const SALES_GO: Program = Program { name: "sales-go", source: "sales.go", compiler: Compiler::Go };
/// Calls a function as often as it can.
pub const TICKS: Program = c("ticks", "ticks.c");
/// Two callers of write(2), which count what they write.
pub const WRITES: Program = c("writes", "writes.c");
/// Two processes that wait for each other.
pub const PINGPONG: Program = c("pingpong", "pingpong.c");
/// The first process of a pod.
pub const PAUSE: Program = Program { name: "pause", source: "pause.c", compiler: Compiler::C(&["-static"]) };

/// Much of one thing: processes, execs or mappings.
pub const CROWD: Program = c("crowd", "crowd.c");
/// Computes in 32-bit mode, without any library.
pub const FOREIGN: Program = Program {
    name: "foreign",
    source: "foreign.s",
    compiler: Compiler::C(&["-m32", "-nostdlib", "-static"]),
};
/// Is its entry point and one function that this calls, without any library.
pub const ENTRY: Program = Program {
    name: "entry",
    source: "entry.s",
    compiler: Compiler::C(&["-nostdlib", "-static", "-Wl,-e,begin"]),
};
/// Computes on a stack of its own, whose first frame returns to 0.
pub const FIBRE: Program = c("fibre", "fibre.c");
/// Computes in a fibre of Boost.Context.
pub const FIBRES: Program = Program {
    name: "fibres",
    source: "fibres.cc",
    compiler: Compiler::Cxx(&["-std=c++17", "-fomit-frame-pointer", "-Wl,--no-as-needed,-lboost_context"]),
};
/// Has a kernel's worker work on its memory.
pub const URING: Program = c("uring", "uring.c");
/// Changes what it runs while it computes.
pub const CHANGES: Program = c("changes", "changes.c");
/// The same with other names and frames.
pub const CHANGES_OTHER: Program = Program {
    name: "changes-other",
    source: "changes.c",
    compiler: Compiler::C(&["-fomit-frame-pointer", "-DOTHER"]),
};
/// A library for [`CHANGES`].
pub const CHANGE_PLUGIN_A: Program = Program {
    name: "change-plugin-a.so",
    source: "change_plugin.c",
    compiler: Compiler::C(&["-fomit-frame-pointer", "-shared", "-fPIC", "-DPLUGIN=a", "-DFRAME_BYTES=40"]),
};
/// The same with other names and frames.
pub const CHANGE_PLUGIN_B: Program = Program {
    name: "change-plugin-b.so",
    source: "change_plugin.c",
    compiler: Compiler::C(&["-fomit-frame-pointer", "-shared", "-fPIC", "-DPLUGIN=b", "-DFRAME_BYTES=88"]),
};

/// A virtual machine that is taken for CPython.
pub const TOY_VM: Program = Program {
    name: "toy-vm",
    source: "toy_vm.c",
    // Interpreters are found by what they export.
    compiler: Compiler::C(&["-fomit-frame-pointer", "-rdynamic"]),
};

/// The same, with a loop as that of CPython 3.14 that consists of tail calls.
pub const TOY_VM_OF_TAIL_CALLS: Program = Program {
    name: "toy-vm-of-tail-calls",
    source: TOY_VM.source,
    compiler: Compiler::C(&["-fomit-frame-pointer", "-rdynamic", "-DTAIL_CALLS"]),
};
/// Runs code of files that it maps, without any of their other content.
pub const MAPS_CODE: Program = c("maps-code", "maps_code.c");
