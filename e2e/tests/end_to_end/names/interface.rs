//! Code whose names a process has in its memory, for debuggers: a real compiler's, and that of a process that wants to do harm.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::user::{can_read_others, record};
use sidewinder_e2e_support::{paths, requirement, session};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::DecodedFrame;

use super::frames;
use super::shares::Share;
use super::traps::{Ending, count, profile, run};

/// What `jit_interface.c` has for debuggers; of the first four it is what it should be.
const KINDS: [&str; 14] = [
    "names", "replaced", "removed", "changing", "loop", "long", "huge", "large", "short", "garbage",
    "nowhere", "beyond", "version", "none",
];
const MADE: &str = "made_here";

/// LLVM's interpreter compiles what it runs, and tells debuggers.
#[promise(PerfMaps, test_all)]
fn code_that_a_compiler_tells_debuggers_of_has_names() -> Result<()> {
    let title = "names of lli";
    if !requirement::ebpf(title)?
        || !requirement::program(title, "lli")?
        || !requirement::program(title, "clang++")?
    {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let source = paths::e2e().join("workloads/compiled.cc").display().to_string();
    run(folder.path(), &["clang++", "-O1", "-S", "-emit-llvm", "-o", "compiled.ll", &source])?;
    let mut lli = Command::new("lli");
    lli.arg(folder.path().join("compiled.ll")).stdout(Stdio::null());
    let (pid, received) = session::profile_running(lli, Duration::from_secs(4))?;
    let is_without_file =
        |frame: &&Arc<DecodedFrame>| frame.mapping.is_none() && frame.frame_type() == Some(FrameType::Native);
    let found = count(&received, pid, |name| name == "app::fibonacci(int)");
    eprintln!("{title}: {found} frames");
    ensure!(found > 100, "{found} frames");
    let systems = frames(&received, pid)
        .filter(|frame| frame.lines.iter().any(|line| &*line.system_name == "_ZN3app9fibonacciEi"))
        .count();
    ensure!(systems == found, "{systems} of {found} frames have the name that the linker knows");
    Share::of(frames(&received, pid).filter(is_without_file)).must_be_named("lli, made at run time")
}

/// Those names are in its memory, to which ptrace(2) gives no access.
#[promise(PerfMaps, test_all)]
fn a_user_with_the_capabilities_of_a_sidecar_reads_names_of_another_user() -> Result<()> {
    let title = "names for debuggers of another user, without CAP_SYS_PTRACE";
    if !can_read_others(title)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
    let source = paths::e2e().join("workloads/jit_interface.c").display().to_string();
    run(folder.path(), &["cc", "-O2", "-o", "jit_interface", &source])?;
    let output = folder.path().join("out.otlp");
    let mut program = Command::new(folder.path().join("jit_interface"));
    let pid = record(program.arg("names"), Some(Duration::from_secs(5)), &[], &output)?.pid;
    let received = Received::from_otlp_file(&output)?;
    let made = count(&received, pid, |name| name == MADE);
    let unnamed = count(&received, pid, |name| name.starts_with("[anonymous]"));
    eprintln!("{title}: {made} frames in {MADE}, {unnamed} without a name");
    // It is recorded from before it has names for debuggers.
    ensure!(made > 10 && unnamed * 20 < made, "{made} and {unnamed}");
    Ok(())
}

#[promise(PerfMaps, test_all)]
fn what_a_process_has_for_debuggers_may_be_a_trap() -> Result<()> {
    const LIMIT_MIB: u64 = 48;
    let title = "traps in the place of names for debuggers";
    if !requirement::ebpf(title)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let source = paths::e2e().join("workloads/jit_interface.c").display().to_string();
    run(folder.path(), &["cc", "-O2", "-o", "jit_interface", &source])?;
    let program = folder.path().join("jit_interface");
    let programs: Vec<Ending> = KINDS
        .iter()
        .map(|kind| Ending::start(Command::new(&program).arg(kind), kind))
        .collect::<Result<_>>()?;

    let pids = programs.iter().map(Ending::pid).collect();
    let remove_names = || {
        let mut of_kinds = KINDS.iter().zip(&programs);
        let (_, program) = of_kinds.find(|(kind, _)| **kind == "removed").context("no such kind")?;
        program.signal(Signal::SIGUSR1)
    };
    let (received, resident_bytes) = profile(pids, LIMIT_MIB, remove_names)?;
    for (kind, program) in KINDS.iter().zip(&programs) {
        let called = |is_it: fn(&str) -> bool| count(&received, program.pid(), is_it);
        let (made, replaced) = (called(|name| name == MADE), called(|name| name == "replaced_here"));
        let unnamed = called(|name| name.starts_with("[anonymous]"));
        eprintln!(
            "{kind}: {made} frames in {MADE}, {replaced} in what replaced it, {unnamed} without a name"
        );
        ensure!(made + replaced + unnamed > 10, "{kind}: {made} + {replaced} + {unnamed} frames");
        match *kind {
            "names" => ensure!(replaced + unnamed == 0, "{kind}: {replaced} and {unnamed} of {made}"),
            "replaced" => ensure!(made + unnamed == 0, "{kind}: {made} and {unnamed} of {replaced}"),
            "removed" => {
                let mut named: Vec<(u64, bool)> = received
                    .events_of(program.pid())
                    .filter(|event| event.sample.stack.first().is_some_and(|leaf| leaf.mapping.is_none()))
                    .map(|event| (event.time_unix_ns, event.sample.stack[0].function() == Some(MADE)))
                    .collect();
                named.sort_unstable();
                let last = named.iter().rev().take(10).filter(|(_, is_named)| *is_named).count();
                ensure!(made > 3 && last == 0, "{kind}: {made} frames, {last} of the last ten");
            }
            // What it was named after the last time holds for a second.
            "changing" => {}
            _ => ensure!(made + replaced == 0, "{kind}: {made} and {replaced} of {unnamed}"),
        }
    }
    ensure!(resident_bytes <= LIMIT_MIB << 20, "{resident_bytes} bytes resident");
    Ok(())
}
