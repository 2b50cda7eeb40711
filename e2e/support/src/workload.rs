//! Programs whose call chains are known: compiled on demand, run for a given time, asked what they did.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::{lock, paths};

/// How a source file becomes a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiler {
    /// `cc -O2` with these flags.
    C(&'static [&'static str]),
    /// `c++ -O2` with these flags.
    Cxx(&'static [&'static str]),
    /// `rustc` with the options of a release build.
    Rust,
    /// `go build`.
    Go,
    /// `ocamlopt`.
    Ocaml,
    /// `fpc -O2` with these flags.
    Pascal(&'static [&'static str]),
    /// `clang`, for the kernel.
    Ebpf,
}

/// A program of `workloads/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    /// The name of the compiled file.
    pub name: &'static str,
    /// The source, in `workloads/`.
    pub source: &'static str,
    /// How it is built.
    pub compiler: Compiler,
}

const OMIT_FRAME_POINTER: &[&str] = &["-fomit-frame-pointer"];
const KEEP_FRAME_POINTER: &[&str] = &["-fno-omit-frame-pointer"];

const fn c(name: &'static str, source: &'static str) -> Program {
    Program { name, source, compiler: Compiler::C(OMIT_FRAME_POINTER) }
}

/// A chain of distinct functions in C++, without frame pointers.
pub const LADDER: Program =
    Program { name: "ladder", source: "ladder.cc", compiler: Compiler::Cxx(OMIT_FRAME_POINTER) };
/// The same chain, with frame pointers.
pub const LADDER_FP: Program =
    Program { name: "ladder-fp", source: "ladder.cc", compiler: Compiler::Cxx(KEEP_FRAME_POINTER) };
/// A chain of distinct functions in Rust.
pub const LADDER_RUST: Program =
    Program { name: "ladder-rust", source: "ladder.rs", compiler: Compiler::Rust };
/// A chain of distinct functions in Go.
pub const LADDER_GO: Program = Program { name: "ladder-go", source: "ladder.go", compiler: Compiler::Go };
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
/// Threads that compute.
pub const THREADS: Program = c("threads", "threads.c");
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
/// Computes within a signal handler.
pub const SIGNALS: Program = c("signals", "signals.c");
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

impl Program {
    /// The compiled program; compiles it when it is not there or older than its source.
    ///
    /// # Errors
    /// When the compiler is missing or refuses.
    pub fn compiled(&self) -> Result<PathBuf> {
        let folder = paths::e2e().join("workloads");
        let (source, output) = (folder.join(self.source), paths::compiled()?.join(self.name));
        if is_newer(&output, &[&source, &folder.join("workload.h")]) {
            return Ok(output);
        }
        let _lock = lock::exclusive(&output)?;
        if is_newer(&output, &[&source, &folder.join("workload.h")]) {
            return Ok(output);
        }
        // Written under another name first: a second test must not run half a program.
        let partial = output.with_extension(format!("{}.part", std::process::id()));
        let mut command = self.compiler.command(&source, &partial);
        let done = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
        if !done.status.success() {
            bail!("{} does not compile:\n{}", source.display(), String::from_utf8_lossy(&done.stderr));
        }
        fs::rename(&partial, &output)?;
        Ok(output)
    }

    /// A command that runs the program with these arguments.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn command<A: ToString>(&self, arguments: &[A]) -> Result<Command> {
        let mut command = Command::new(self.compiled()?);
        command.args(arguments.iter().map(ToString::to_string));
        Ok(command)
    }
}

impl Compiler {
    fn command(self, source: &Path, output: &Path) -> Command {
        let c_like = |compiler: &str, flags: &[&str]| {
            let mut command = Command::new(compiler);
            command.args(["-O2", "-g0", "-pthread"]).args(flags).arg(source).arg("-o").arg(output);
            command
        };
        match self {
            Self::C(flags) => c_like("cc", flags),
            Self::Cxx(flags) => c_like("c++", flags),
            Self::Rust => {
                let mut command = Command::new("rustc");
                command.args(["--edition", "2024", "-C", "opt-level=3"]).arg(source).arg("-o").arg(output);
                command
            }
            Self::Go => {
                let mut command = Command::new("go");
                command.arg("build").arg("-o").arg(output).arg(source);
                command
            }
            Self::Ocaml => {
                // It leaves what it compiles beside the source.
                let mut command = Command::new("sh");
                let copy_and_compile = r#"mkdir -p "$2.d" && cp "$1" "$2.d/main.ml" && ocamlopt "$2.d/main.ml" -o "$2"; \
                    status=$?; rm -rf "$2.d"; exit $status"#;
                command.args(["-c", copy_and_compile, "sh"]).arg(source).arg(output);
                command
            }
            Self::Pascal(flags) => {
                // It leaves what it compiles in a folder, and names units by it.
                let mut command = Command::new("sh");
                let compile = r#"source=$1 output=$2; shift 2; mkdir -p "$output.d" && \
                    fpc -O2 "$@" "-FU$output.d" "-o$output" "$source"; status=$?; rm -rf "$output.d"; exit $status"#;
                command.args(["-c", compile, "sh"]).arg(source).arg(output).args(flags);
                command
            }
            Self::Ebpf => {
                let mut command = Command::new("clang");
                // Maps are described to the kernel by type information.
                command.args(["-target", "bpf", "-O2", "-g", "-c"]).arg(source).arg("-o").arg(output);
                command
            }
        }
    }
}

fn is_newer(output: &Path, sources: &[&Path]) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let Some(built) = modified(output) else { return false };
    sources.iter().all(|source| modified(source).is_some_and(|changed| changed <= built))
}

/// What a workload says of itself at its end.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Report {
    /// Its process id.
    pub pid: u32,
    /// CPU time of all its threads, user and system, since the gate opened; [`SPAWNER`]: of its children.
    pub cpu_ns: u64,
    /// How many rounds of its work it did, where it counts them.
    #[serde(default)]
    pub rounds: u64,
    /// The threads that computed.
    pub tids: Vec<u32>,
    /// The functions that its stacks go through, outermost first.
    pub chain: Vec<String>,
}

#[derive(Deserialize)]
struct Ready {
    ready: u32,
}

/// Reads the two lines that a workload prints, from whatever its output passed through.
///
/// # Errors
/// When the second line is missing or is not a report.
pub fn report_in(output: &str) -> Result<Report> {
    let line = output
        .lines()
        .find(|line| line.starts_with("{\"pid\":"))
        .with_context(|| format!("the workload said nothing of itself:\n{output}"))?;
    Ok(serde_json::from_str(line)?)
}

/// A thread of [`WAITS`], as it describes itself.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct WaitingThread {
    /// Its id.
    pub tid: i64,
    /// The function in which it waits, or computes.
    pub function: String,
    /// How often it waited there.
    pub waits: u64,
    /// For how long it was neither running nor runnable there, by its own clock.
    pub waited_ns: i64,
    /// How long it lived.
    pub wall_ns: i64,
    /// How long it ran.
    pub on_cpu_ns: i64,
    /// How long it waited for a CPU, by the kernel's accounts.
    pub runnable_ns: i64,
}

/// What the threads of [`WAITS`] say of themselves.
///
/// # Errors
/// When they say nothing.
pub fn waiting_threads_in(output: &str) -> Result<Vec<WaitingThread>> {
    #[derive(Deserialize)]
    struct Threads {
        threads: Vec<WaitingThread>,
    }
    let line = output.lines().find(|line| line.starts_with("{\"threads\":"));
    let line = line.with_context(|| format!("the threads said nothing of themselves:\n{output}"))?;
    Ok(serde_json::from_str::<Threads>(line)?.threads)
}

/// The same command, but for its standard streams, with a tenth of the CPU time that a thread of others has: for programs of many
/// threads, and for those that only have to be there for as long as a test looks.
#[must_use]
pub fn in_background(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "10"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

/// A lock of [`CONVOYS`], as the program describes it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Convoy {
    /// The function in which threads wait for it.
    pub function: String,
    /// How often a thread gave up its CPU there.
    pub waits: i64,
    /// For how long threads were neither running nor runnable there, by their own clock.
    pub waited_ns: i64,
    /// Its address, in hexadecimal.
    pub address: String,
}

/// What [`CONVOYS`] says of its locks.
///
/// # Errors
/// When it says nothing.
pub fn convoys_in(output: &str) -> Result<Vec<Convoy>> {
    #[derive(Deserialize)]
    struct Convoys {
        locks: Vec<Convoy>,
    }
    let line = output.lines().find(|line| line.starts_with("{\"locks\":"));
    let line = line.with_context(|| format!("the program said nothing of its locks:\n{output}"))?;
    Ok(serde_json::from_str::<Convoys>(line)?.locks)
}

/// A workload that runs and waits at its gate.
#[derive(Debug)]
pub struct Gated {
    process: Child,
    output: BufReader<ChildStdout>,
    pid: u32,
}

impl Gated {
    /// Starts a workload and waits until it stands at its gate.
    ///
    /// # Errors
    /// When it does not start, or is no workload.
    pub fn start(mut command: Command) -> Result<Self> {
        let mut process = command
            .env("WORKLOAD_GATE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {:?}", command.get_program()))?;
        let mut output = BufReader::new(process.stdout.take().context("no standard output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let Ready { ready } = serde_json::from_str(&line)
            .with_context(|| format!("{:?} is not how a workload starts", line.trim()))?;
        Ok(Self { process, output, pid: ready })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Opens the gate; the workload starts to work.
    ///
    /// # Errors
    /// When it is gone.
    pub fn open(&mut self) -> Result<()> {
        let mut input = self.process.stdin.take().context("the gate is open already")?;
        input.write_all(b"\n").context("the workload is gone")
    }

    /// Waits for its end and returns what it said.
    ///
    /// # Errors
    /// When it fails or says nothing.
    pub fn finish(mut self) -> Result<Report> {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest)?;
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the workload ended with {status}");
        }
        report_in(&rest)
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        // Ends a workload that a failing test left running.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program of the system that is started, profiled, and ended from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// `openssl speed` on one algorithm.
    Openssl,
    /// `xz -9` on a long text.
    Xz,
    /// `sqlite3` in a recursive query.
    Sqlite,
}

impl Tool {
    /// The program's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Openssl => "openssl",
            Self::Xz => "xz",
            Self::Sqlite => "sqlite3",
        }
    }

    /// Exported functions that its stacks go through, outermost first; others may stand between them.
    #[must_use]
    pub fn chain(self) -> &'static [&'static str] {
        match self {
            Self::Openssl => &["__libc_start_main", "EVP_Digest"],
            Self::Xz => &["__libc_start_main", "lzma_code"],
            Self::Sqlite => &["__libc_start_main", "sqlite3_step"],
        }
    }

    /// A command that computes for at least `seconds`; it may go on until it is killed.
    ///
    /// # Errors
    /// When its input cannot be prepared.
    pub fn command(self, seconds: u32) -> Result<Command> {
        let mut command = Command::new(self.name());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        match self {
            Self::Openssl => {
                let seconds = seconds.to_string();
                command.args(["speed", "-seconds", &seconds, "-bytes", "16384", "-evp", "sha256"]);
            }
            Self::Xz => {
                command.args(["-9", "-T1", "-c"]).arg(text()?);
            }
            Self::Sqlite => {
                let query = fs::File::open(paths::e2e().join("workloads/primes.sql"))?;
                command.arg(":memory:").stdin(query);
            }
        }
        Ok(command)
    }
}

/// A recursive script under the system's `python3`, which is built without frame pointers.
///
/// # Errors
/// Never today; other programs need preparation.
pub fn python(seconds: f64) -> Result<Command> {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(paths::e2e().join("workloads/recursive.py")).arg(seconds.to_string());
    Ok(command)
}

/// A text of 64 MiB that compresses about as well as prose.
///
/// # Errors
/// When it can't be written.
pub fn text() -> Result<PathBuf> {
    const WORDS: [&str; 16] = [
        "stack ", "frame ", "row ", "rule ", "table ", "sample ", "outcome ", "mapping ", "of ", "the ",
        "a ", "in ", "is ", "and ", "to ", "\n",
    ];
    const BYTES: usize = 64 << 20;
    let path = paths::compiled()?.join("corpus.txt");
    let is_whole = || fs::metadata(&path).is_ok_and(|metadata| metadata.len() >= BYTES as u64);
    if is_whole() {
        return Ok(path);
    }
    let _lock = lock::exclusive(&path)?;
    if is_whole() {
        return Ok(path);
    }
    let mut text = String::with_capacity(BYTES + 16);
    let mut random = 1_u64;
    while text.len() < BYTES {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS.get((random >> 60) as usize).copied().unwrap_or_default());
    }
    fs::write(&path, text)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_waits_at_its_gate_and_reports_the_cpu_time_behind_it() -> Result<()> {
        let mut gated = Gated::start(REC.command(&["0.2", "3"])?)?;
        let pid = gated.pid();
        gated.open()?;
        let report = gated.finish()?;
        assert_eq!(report.pid, pid);
        assert_eq!(report.chain, ["main", "recurse", "recurse", "recurse", "burn"]);
        assert!(report.cpu_ns > 20_000_000 && report.cpu_ns < 400_000_000, "{}", report.cpu_ns);
        Ok(())
    }

    #[test]
    fn the_chain_of_the_ladder_has_as_many_rungs_as_asked_for() -> Result<()> {
        for program in [LADDER, LADDER_FP, LADDER_RUST] {
            let mut gated = Gated::start(program.command(&["0.01", "30"])?)?;
            gated.open()?;
            let rungs = gated.finish()?.chain.iter().filter(|name| name.starts_with("rung_")).count();
            assert_eq!(rungs, 30, "{}", program.name);
        }
        Ok(())
    }
}
