//! Profiles say what code it is: functions, files, lines, and what was inlined.

mod foreign;
mod interface;
mod shares;
mod traps;

use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::{Profiler, Settings};
use sidewinder_e2e_support::{paths, requirement, session, workload};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::DecodedFrame;

use shares::{Share, in_files_with_symbols};

fn frames(received: &Received, pid: u32) -> impl Iterator<Item = &Arc<DecodedFrame>> {
    received.events_of(pid).flat_map(|event| event.sample.stack.iter())
}

/// A program of ours with debug information. Lines and inlined calls are read with a share of the time.
fn words() -> Result<Command> {
    let mut command = workload::WORDS_DEBUG.command(&["60"])?;
    command.stdout(Stdio::null());
    Ok(command)
}

#[promise(Names)]
fn native_frames_have_names_files_lines_and_inlined_calls() -> Result<()> {
    if !requirement::ebpf("names")? {
        return Ok(());
    }
    let (pid, received) = session::profile_running(words()?, Duration::from_secs(4))?;
    let (mut all, mut inlined, mut in_source) = (0, 0, 0);
    for frame in in_files_with_symbols(&received, pid) {
        all += 1;
        inlined += usize::from(frame.lines.len() > 1);
        let is_ours = |line: &sidewinder_otlp::decode::DecodedLine| {
            line.filename.ends_with("/words.cc") && line.line > 0
        };
        in_source += usize::from(frame.lines.iter().any(is_ours));
    }
    eprintln!("{all} frames, {inlined} with inlined calls, {in_source} in words.cc");
    Share::of(in_files_with_symbols(&received, pid)).must_be_named("C++ with debug information")?;
    ensure!(inlined > all / 20, "{inlined} of {all} frames have inlined calls");
    ensure!(in_source > all / 10, "{in_source} of {all} frames are in the source");
    Ok(())
}

/// `record` has no options for it.
#[promise(Names, test_all)]
fn lines_and_inlined_calls_and_names_can_be_switched_off() -> Result<()> {
    if !requirement::ebpf("names switched off")? {
        return Ok(());
    }
    let lines = |symbolize: &'static str| -> Result<Vec<_>> {
        let settings = Settings { more: vec![symbolize.to_owned()], ..Settings::at(997) };
        let duration = Duration::from_secs(1);
        let (pid, received) = session::profile_running_by(Form::Service, settings, words()?, duration)?;
        let user = frames(&received, pid).filter(|frame| frame.mapping.is_some());
        Ok(user.flat_map(|frame| frame.lines.clone()).collect())
    };
    let without = lines("symbolize: { lines: false, inlines: false }")?;
    ensure!(!without.is_empty() && without.iter().all(|line| line.line == 0 && line.filename.is_empty()));
    // Build IDs and addresses are left to the backend.
    ensure!(lines("symbolize: { mode: none }")?.is_empty());
    Ok(())
}

/// A program that runs code of its own making.
struct Jit {
    program: &'static str,
    arguments: &'static [&'static str],
    frame_type: FrameType,
    function: &'static str,
}

const NODE: &str = "function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    const until = Date.now() + 20000; while (Date.now() < until) fib(20);";

const JITS: [Jit; 2] = [
    Jit {
        program: "node",
        arguments: &["--perf-basic-prof", "-e", NODE],
        frame_type: FrameType::V8js,
        function: "fib",
    },
    Jit {
        program: "node",
        arguments: &["--perf-prof", "-e", NODE],
        frame_type: FrameType::V8js,
        function: "fib",
    },
];

#[promise(PerfMaps, test_all)]
fn code_that_a_process_made_has_the_names_that_its_runtime_wrote() -> Result<()> {
    for jit in JITS {
        let title = format!("names of {} {}", jit.program, jit.arguments[0]);
        if !requirement::ebpf(&title)? || !requirement::program(&title, jit.program)? {
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(jit.program);
        command.args(jit.arguments).current_dir(&folder).stdout(Stdio::null());
        let (pid, received) = session::profile_running(command, Duration::from_secs(2))?;
        let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
        let made = frames(&received, pid).filter(|frame| frame.mapping.is_none());
        let of_runtime: Vec<_> = made.filter(|frame| frame.frame_type() == Some(jit.frame_type)).collect();
        let is_it =
            |frame: &&&Arc<DecodedFrame>| frame.function().is_some_and(|name| name.contains(jit.function));
        let found = of_runtime.iter().filter(is_it).count();
        eprintln!("{title}: {found} of {} frames", of_runtime.len());
        ensure!(found > 30, "{title}: {found} of {} frames", of_runtime.len());
    }
    Ok(())
}

/// A program that makes a function every 20 ms: none of them has to wait for its name.
#[promise(PerfMaps)]
fn code_has_its_name_from_its_first_sample() -> Result<()> {
    const MADE: Range<u64> = 0x3000_0000_0000..0x3000_0100_0000;
    const PAGE_BYTES: u64 = 4096;
    const NAMED_SHARE: f64 = 0.99;
    if !requirement::ebpf("names of new code")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let source = paths::e2e().join("workloads/makes_code.c").display().to_string();
    traps::run(folder.path(), &["cc", "-O2", "-o", "makes_code", &source])?;
    let (pid, received) =
        session::profile_running(Command::new(folder.path().join("makes_code")), Duration::from_secs(3))?;
    std::fs::remove_file(format!("/tmp/perf-{pid}.map"))?;
    let made: Vec<_> = frames(&received, pid).filter(|frame| MADE.contains(&frame.address)).collect();
    let (mut named, mut wrong) = (0, 0);
    for frame in &made {
        let called = format!("made_{}", (frame.address - MADE.start) / PAGE_BYTES);
        match frame.function() {
            Some(name) if name == called => named += 1,
            Some(name) if name.starts_with("made_") => wrong += 1,
            _ => {}
        }
    }
    eprintln!("{named} of {} frames named, {wrong} wrong", made.len());
    let all = made.len();
    never(wrong > 0, "a wrong name", format_args!("{wrong} of {all}"));
    ensure!(all > 300 && f64::from(named) >= NAMED_SHARE * all as f64);
    Ok(())
}

const JAVA: &str = "public class Burn {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    public static void main(String[] arguments) { while (true) fib(25); }
}";

/// A virtual machine that writes its map on request, long after its code was first sampled.
#[promise(PerfMaps, test_all)]
fn names_that_are_written_late_are_found() -> Result<()> {
    let title = "names of java";
    if !requirement::ebpf(title)?
        || !requirement::program(title, "javac")?
        || !requirement::program(title, "jcmd")?
    {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("Burn.java"), JAVA)?;
    ensure!(Command::new("javac").arg("Burn.java").current_dir(&folder).status()?.success());
    let mut java = Command::new("java")
        .args(["-XX:+PreserveFramePointer", "-cp"])
        .arg(folder.path())
        .arg("Burn")
        .stdout(Stdio::null())
        .spawn()?;
    let pid = java.id();
    let profiled = Profiler::start(Form::of_this_run()?, &Settings::of_process(pid)).and_then(|profiler| {
        thread::sleep(Duration::from_secs(2));
        let told = Command::new("jcmd").args([&pid.to_string(), "Compiler.perfmap"]).output()?;
        ensure!(told.status.success(), "{}", String::from_utf8_lossy(&told.stdout));
        thread::sleep(Duration::from_secs(3));
        profiler.stop()
    });
    java.kill()?;
    java.wait()?;
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    let received = profiled?.received;
    let is_java = |frame: &&Arc<DecodedFrame>| frame.frame_type() == Some(FrameType::Jvm);
    let is_it = |frame: &&Arc<DecodedFrame>| frame.function().is_some_and(|name| name.contains("fib"));
    let found = frames(&received, pid).filter(is_java).filter(is_it).count();
    eprintln!("{title}: {found} frames");
    ensure!(found > 30, "{found} frames");
    Ok(())
}

#[promise(PerfMaps, test_all)]
fn a_runtime_in_a_pid_namespace_of_its_own_is_found_by_its_number_there() -> Result<()> {
    let title = "names in a PID namespace";
    if !requirement::ebpf(title)?
        || !requirement::program(title, "node")?
        || !requirement::program(title, "unshare")?
    {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    // Its own /tmp, and the number 1.
    let script =
        format!("mount --bind {} /tmp && exec node --perf-basic-prof -e '{NODE}'", folder.path().display());
    let mut child = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script])
        .current_dir(&folder) // Node leaves a log where it runs.
        .stdout(Stdio::null())
        .spawn()?;
    let profiled = (|| -> Result<(u32, Received)> {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let mut pid = None;
        for _ in 0..50 {
            thread::sleep(Duration::from_millis(100));
            pid = std::fs::read_to_string(&children)?.split_whitespace().next().map(str::to_owned);
            let name = pid.as_ref().and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
            if name.is_some_and(|name| name.trim() == "node") {
                break;
            }
        }
        let pid = pid.context("no child")?.parse()?;
        let profiled = session::profile_processes(Settings::at(997), &[pid], Duration::from_secs(4))?;
        Ok((pid, profiled.received))
    })();
    child.kill()?;
    child.wait()?;
    let (pid, received) = profiled?;
    ensure!(folder.path().join("perf-1.map").exists());
    let found = frames(&received, pid)
        .filter(|frame| frame.function().is_some_and(|name| name.contains("fib")))
        .count();
    ensure!(found > 30, "{found} frames");
    Ok(())
}
