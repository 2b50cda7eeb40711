//! Programs whose call chains are known: compiled on demand, run for a given time, asked what they did.

mod programs;
mod tools;

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::{lock, paths};
pub use programs::*;
pub use tools::{Tool, python, text};

/// How a source file becomes a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiler {
    /// `cc -O2` with these flags.
    C(&'static [&'static str]),
    /// `c++ -O2` with these flags.
    Cxx(&'static [&'static str]),
    /// `musl-gcc -O2`, without frame pointers.
    Musl,
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

impl Program {
    /// The compiled program; compiles it when it is not there or older than its source.
    ///
    /// # Errors
    /// When the compiler is missing or refuses.
    pub fn compiled(&self) -> Result<PathBuf> {
        self.compiled_as(self.name, Compiler::command)
    }

    /// The program for arm64, likewise, by Debian's cross compilers.
    ///
    /// # Errors
    /// When the compiler is missing or refuses, or the program is in another language than C, C++ or Go.
    pub fn compiled_for_arm64(&self) -> Result<PathBuf> {
        ensure!(
            matches!(self.compiler, Compiler::C(_) | Compiler::Cxx(_) | Compiler::Go),
            "{} is not compiled for arm64",
            self.source
        );
        self.compiled_as(&format!("arm64-{}", self.name), Compiler::command_for_arm64)
    }

    fn compiled_as(
        &self,
        name: &str,
        command: impl FnOnce(Compiler, &Path, &Path) -> Command,
    ) -> Result<PathBuf> {
        let folder = paths::e2e().join("workloads");
        let (source, output) = (folder.join(self.source), paths::compiled()?.join(name));
        if is_newer(&output, &[&source, &folder.join("workload.h")]) {
            return Ok(output);
        }
        let _lock = lock::exclusive(&output)?;
        if is_newer(&output, &[&source, &folder.join("workload.h")]) {
            return Ok(output);
        }
        // Written under another name first: a second test must not run half a program.
        let partial = output.with_extension(format!("{}.part", std::process::id()));
        let mut command = command(self.compiler, &source, &partial);
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
    fn command_for_arm64(self, source: &Path, output: &Path) -> Command {
        match self {
            Self::C(flags) => c_command("aarch64-linux-gnu-gcc", flags, source, output),
            Self::Cxx(flags) => c_command("aarch64-linux-gnu-g++", flags, source, output),
            other => {
                let mut command = other.command(source, output);
                command.envs([("GOARCH", "arm64"), ("CGO_ENABLED", "0")]);
                command
            }
        }
    }

    fn command(self, source: &Path, output: &Path) -> Command {
        match self {
            Self::C(flags) => c_command("cc", flags, source, output),
            Self::Cxx(flags) => c_command("c++", flags, source, output),
            Self::Musl => c_command("musl-gcc", &["-fomit-frame-pointer"], source, output),
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

fn c_command(compiler: &str, flags: &[&str], source: &Path, output: &Path) -> Command {
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g0", "-pthread"]).args(flags).arg(source).arg("-o").arg(output);
    command
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
    nice.args(["-n", "10"]);
    append(&mut nice, command);
    nice
}

/// Has a command run another one, in the environment and the folder that this has.
pub(crate) fn append(command: &mut Command, run: &Command) {
    command.arg(run.get_program()).args(run.get_args());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(folder) = run.get_current_dir() {
        command.current_dir(folder);
    }
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
        io::Read::read_to_string(&mut self.output, &mut rest)?;
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

/// A shell that reads a line, and then becomes this program: a gate for programs that have none. Its standard streams are the shell's.
#[must_use]
pub fn behind_gate(program: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "read -r line; exec \"$@\"", "sh"]);
    append(&mut shell, program);
    shell
}

/// Any program behind a gate.
#[derive(Debug)]
pub struct Held {
    process: Child,
    printed: File,
}

impl Held {
    /// Starts a shell that waits.
    ///
    /// # Errors
    /// When it can't be run.
    pub fn start(program: &Command) -> Result<Self> {
        let printed = tempfile::tempfile()?;
        let mut shell = behind_gate(program);
        let process = shell.stdin(Stdio::piped()).stdout(printed.try_clone()?).spawn()?;
        Ok(Self { process, printed })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Opens the gate.
    ///
    /// # Errors
    /// When it is open already, or the shell is gone.
    pub fn open(&mut self) -> Result<()> {
        let mut gate = self.process.stdin.take().context("the gate is open already")?;
        gate.write_all(b"\n").context("the shell is gone")
    }

    /// Waits for its end, or ends it after a time. Returns what it printed.
    ///
    /// # Errors
    /// When it ends by itself with a failure.
    pub fn finish(mut self, ends_within: Option<Duration>) -> Result<String> {
        if let Some(ends_within) = ends_within {
            thread::sleep(ends_within);
            self.process.kill()?;
        }
        let ended = self.process.wait()?;
        ensure!(ended.success() || ends_within.is_some(), "the program ended with {ended}");
        self.printed.rewind()?;
        Ok(io::read_to_string(&self.printed)?)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Ends a program that a failing test left running.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
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
