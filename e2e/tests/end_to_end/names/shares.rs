//! Nearly every frame has a name, whatever the program is written in: of native frames those whose file has any symbols, and of
//! code that a runtime makes and writes a map of, all.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use object::{Object as _, ObjectSymbol as _, SymbolKind};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::{paths, requirement, session, workload};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::DecodedFrame;

use super::{NODE, frames};

const NAMED_SHARE: f64 = 0.99;
/// Frames below which a share says nothing.
const FRAMES_MIN: usize = 300;

/// How many frames there are, and which of them have no name.
#[derive(Default)]
pub(super) struct Share {
    pub(super) all: usize,
    unnamed: BTreeMap<String, usize>,
}

impl Share {
    pub(super) fn of<'a>(frames: impl Iterator<Item = &'a Arc<DecodedFrame>>) -> Self {
        let mut share = Self::default();
        for frame in frames {
            share.all += 1;
            if frame.function().is_none_or(|name| name.starts_with("[anonymous]")) {
                let file = frame.mapping.as_ref().map_or("", |mapping| &mapping.filename);
                *share.unnamed.entry(format!("{file}+{:#x}", frame.address)).or_default() += 1;
            }
        }
        share
    }

    pub(super) fn must_be_named(&self, title: &str) -> Result<()> {
        let named = self.all - self.unnamed.values().sum::<usize>();
        eprintln!("{title}: {named} of {} frames named; {:?}", self.all, self.unnamed);
        ensure!(
            self.all > FRAMES_MIN && named as f64 >= NAMED_SHARE * self.all as f64,
            "{title}: {named} of {} frames named; {:?}",
            self.all,
            self.unnamed
        );
        Ok(())
    }
}

/// Whether a file names any function, for other programs or by the table that Go's runtime has.
fn has_symbols(path: &str) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    let Ok(file) = object::File::parse(&*bytes) else { return false };
    let is_function =
        |symbol: object::Symbol<'_, '_>| symbol.kind() == SymbolKind::Text && symbol.is_definition();
    let has_go_table = [".gopclntab", ".data.rel.ro.gopclntab"];
    file.symbols().any(is_function)
        || file.dynamic_symbols().any(is_function)
        || has_go_table.iter().any(|name| file.section_by_name(name).is_some())
}

/// The frames of a process in files that name any function.
pub(super) fn in_files_with_symbols(
    received: &Received,
    pid: u32,
) -> impl Iterator<Item = &Arc<DecodedFrame>> {
    let mut symbols = HashMap::<Arc<str>, bool>::new();
    frames(received, pid).filter(move |frame| {
        let Some(mapping) = &frame.mapping else { return false };
        let name = &mapping.filename;
        *symbols.entry(Arc::clone(name)).or_insert_with(|| has_symbols(name))
    })
}

/// How long programs are profiled, in CPU time: each sample has several frames.
const COMPUTED: Duration = Duration::from_millis(1500);

/// Profiles a program that ends by itself, and looks at its native frames.
fn native(title: &str, mut command: Command) -> Result<()> {
    command.stdout(Stdio::null());
    let (pid, received) = session::profile_running(command, COMPUTED)?;
    Share::of(in_files_with_symbols(&received, pid)).must_be_named(title)
}

#[promise(Names, test_all)]
fn native_frames_of_c_cpp_rust_and_go_have_names() -> Result<()> {
    if !requirement::ebpf("names of native frames")? {
        return Ok(());
    }
    native("C", workload::THREADS.command(&["30", "2"])?)?;
    native("C++, stripped libraries", workload::WORDS_FP.command(&["30"])?)?;
    native("C++, static", workload::WORDS_FP_STATIC.command(&["30"])?)?;
    native("Rust", workload::LADDER_RUST.command(&["30", "30"])?)?;
    native("Go", workload::LADDER_GO.command(&["30", "30"])?)?;
    let stripped = tempfile::tempdir()?;
    let program = stripped.path().join("ladder-go-stripped");
    let status =
        Command::new("strip").arg("-o").arg(&program).arg(workload::LADDER_GO.compiled()?).status()?;
    ensure!(status.success());
    let mut command = Command::new(program);
    command.args(["30", "30"]);
    native("Go, stripped", command)
}

/// Runs a program, whose runtime writes a map of its code, and looks at its native frames and at those in that code.
fn with_runtime(title: &str, command: Command, of_runtime: FrameType, function: &str) -> Result<()> {
    let (pid, received) = run_with_map(command)?;
    Share::of(in_files_with_symbols(&received, pid)).must_be_named(&format!("{title}, native"))?;
    made_at_run_time(title, &received, pid, of_runtime, function)
}

fn run_with_map(mut command: Command) -> Result<(u32, Received)> {
    let folder = tempfile::tempdir()?;
    command.current_dir(&folder).stdout(Stdio::null());
    let (pid, received) = session::profile_running(command, Duration::from_secs(3))?;
    for written in [format!("/tmp/perf-{pid}.map"), format!("/tmp/perfinfo-{pid}.map")] {
        let _ = std::fs::remove_file(written);
    }
    Ok((pid, received))
}

fn made_at_run_time(
    title: &str,
    received: &Received,
    pid: u32,
    of_runtime: FrameType,
    function: &str,
) -> Result<()> {
    let made: Vec<_> = frames(received, pid)
        .filter(|frame| frame.mapping.is_none() && frame.frame_type() != Some(FrameType::Kernel))
        .filter(|frame| frame.frame_type().is_some())
        .collect();
    let is_it = |frame: &&&Arc<DecodedFrame>| {
        frame.frame_type() == Some(of_runtime) && frame.function().is_some_and(|name| name.contains(function))
    };
    let found = made.iter().filter(is_it).count();
    eprintln!("{title}: {found} of {} frames without a file are {function}", made.len());
    ensure!(found > 30, "{title}: {found} of {} frames", made.len());
    Share::of(made.into_iter()).must_be_named(&format!("{title}, made at run time"))
}

/// The newest Python that is installed and can write a map.
fn python() -> Option<String> {
    let can_write = "import sys; sys.activate_stack_trampoline('perf')";
    let of_pyenv = std::env::var("HOME").map(|home| format!("{home}/.pyenv/versions")).ok();
    let installed = of_pyenv.and_then(|versions| std::fs::read_dir(versions).ok()).into_iter().flatten();
    let mut programs: Vec<String> = installed
        .filter_map(|version| Some(version.ok()?.path().join("bin/python3").display().to_string()))
        .collect();
    programs.sort_unstable();
    programs.insert(0, "python3".to_owned());
    programs.into_iter().rev().find(|program| {
        let mut command = Command::new(program);
        command.args(["-c", can_write]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

#[promise(CPython, test_all)]
fn frames_of_python_have_names() -> Result<()> {
    let title = "names of python -X perf";
    if !requirement::ebpf(title)? {
        return Ok(());
    }
    let Some(program) = python() else {
        // Says so, or fails where nothing may be left out.
        requirement::program(title, "python3.12")?;
        return Ok(());
    };
    let mut python = Command::new(program);
    python.args(["-X", "perf"]).arg(Path::new(paths::e2e()).join("workloads/recursive.py")).arg("30");
    with_runtime("python -X perf", python, FrameType::CPython, "fibonacci")
}

#[promise(V8)]
fn frames_of_node_have_names() -> Result<()> {
    let title = "names of node --perf-basic-prof";
    if !requirement::ebpf(title)? || !requirement::program(title, "node")? {
        return Ok(());
    }
    let mut node = Command::new("node");
    node.args(["--perf-basic-prof", "-e", NODE]);
    with_runtime("node --perf-basic-prof", node, FrameType::V8js, "fib")
}

const DOTNET: &str = "public static class Burn {
    static int Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }
    public static void Main() { while (true) Fib(25); }
}";

/// .NET as PyPI has it, and Mono's compiler: `e2e/setup.sh --tests` installs both. Its libraries are stripped of what they do
/// not export, which is most of their code.
#[promise(PerfMaps, test_all)]
fn frames_of_dotnet_have_names() -> Result<()> {
    let title = "names of .NET";
    let home = paths::compiled()?.join("tools/dotnet/dotnetcore2/bin");
    let program = home.join("dotnet").display().to_string();
    if !requirement::ebpf(title)?
        || !requirement::program(title, "mcs")?
        || !requirement::program(title, &program)?
    {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("Burn.cs"), DOTNET)?;
    let version = "3.1.23";
    let library = home.join(format!("shared/Microsoft.NETCore.App/{version}/System.Private.CoreLib.dll"));
    let mut compile = Command::new("mcs");
    compile.args(["-nostdlib", "-noconfig", "-out:Burn.dll", "Burn.cs"]).current_dir(&folder);
    ensure!(compile.arg(format!("-r:{}", library.display())).status()?.success());
    let framework = format!(r#"{{ "name": "Microsoft.NETCore.App", "version": "{version}" }}"#);
    let settings = format!(r#"{{ "runtimeOptions": {{ "framework": {framework} }} }}"#);
    std::fs::write(folder.path().join("Burn.runtimeconfig.json"), settings)?;
    let mut dotnet = Command::new(program);
    dotnet.arg(folder.path().join("Burn.dll"));
    // The second name is that of versions before 6.
    dotnet.envs([("DOTNET_PerfMapEnabled", "1"), ("COMPlus_PerfMapEnabled", "1")]);
    dotnet.env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
    let (pid, received) = run_with_map(dotnet)?;
    made_at_run_time(".NET", &received, pid, FrameType::Dotnet, "Burn::Fib(int32)")
}
