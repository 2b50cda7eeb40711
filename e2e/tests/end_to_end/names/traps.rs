//! A process names the files that tell of its code. What it puts there hangs nothing, shows nothing that is outside of its root,
//! and takes no more memory than there is for names.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::{observe, paths, requirement};
use tempfile::TempDir;

use super::frames;

/// What `traps.c` lays; the first two are none.
const KINDS: [&str; 11] = [
    "none",
    "names",
    "fifo",
    "device",
    "directory",
    "link",
    "way-out",
    "loop",
    "sparse",
    "endless",
    "changing",
];
/// The code that the process makes, in its own map, in its jitdump, and in those outside.
const MADE: &str = "made_here";
const DUMPED: &str = "dumped_here";
/// Where `traps.c` puts that of the jitdump.
const DUMPED_AT: u64 = 0x2000_0000_0000;
const SECRET: &str = "secret";
/// A local function of the program, which was stripped.
const LOCAL: &str = "known_by_debug_file";

/// Ends a process however the test ends.
pub(super) struct Ending(Child);

impl Ending {
    /// Starts a program, and waits until it says that it is ready.
    pub(super) fn start(command: &mut Command, title: &str) -> Result<Self> {
        let mut program = Self(command.stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        if let Some(says) = program.0.stdout.take() {
            BufReader::new(says).read_line(&mut line)?;
        }
        ensure!(line == "ready\n", "{title}: {line}");
        Ok(program)
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(signal::kill(Pid::from_raw(i32::try_from(self.pid())?), signal)?)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(folder: &Path, command: &[&str]) -> Result<()> {
    let status = Command::new(command[0]).args(&command[1..]).current_dir(folder).status()?;
    ensure!(status.success(), "{command:?}");
    Ok(())
}

/// Compiles the program: stripped, with its debug file, and with the file that its unit was split off to.
fn compile(folder: &Path) -> Result<()> {
    let source = paths::e2e().join("workloads/traps.c").display().to_string();
    // As if it had been compiled in the root that it will have.
    let moved = format!("-fdebug-prefix-map={}=/", folder.display());
    run(folder, &["cc", "-O2", "-g", "-gsplit-dwarf", &moved, "-c", "-o", "unit.o", &source])?;
    run(folder, &["cc", "-static", "-Wl,--build-id", "-o", "program", "unit.o"])?;
    run(folder, &["objcopy", "--only-keep-debug", "program", "program.debug"])?;
    run(folder, &["objcopy", "--strip-all", "--add-gnu-debuglink=program.debug", "program"])
}

/// Starts the program in a root of its own, and waits until its traps are laid.
fn start(kind: &str, compiled: &Path, outside: &Path) -> Result<(Ending, TempDir)> {
    let root = tempfile::tempdir()?;
    fs::create_dir_all(root.path().join("tmp/dumps"))?;
    fs::write(root.path().join("tmp/dumps/jit-1.dump"), jitdump(DUMPED))?;
    fs::copy(compiled.join("program"), root.path().join("program"))?;
    if kind == "none" {
        for name in ["program.debug", "unit.dwo"] {
            fs::copy(compiled.join(name), root.path().join(name))?;
        }
    }
    let mut command = Command::new(compiled.join("program"));
    command.args([root.path().as_os_str(), kind.as_ref(), outside.as_os_str()]);
    let program = Ending::start(&mut command, kind)?;
    Ok((program, root))
}

/// A jitdump with one record: the code has this name. The form is that of the kernel's `tools/perf/util/jitdump.h`.
fn jitdump(name: &str) -> Vec<u8> {
    const HEADER_BYTES: u32 = 40;
    const X86_64: u32 = 62;
    const RECORD_BYTES: u32 = 56;
    let code = [0x90; 16];
    let record_bytes = RECORD_BYTES + name.len() as u32 + 1 + code.len() as u32;
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_ne_bytes()).collect::<Vec<u8>>();
    let header = [words(&[0x4A69_5444, 1, HEADER_BYTES, X86_64, 0, 1]), longs(&[0, 0])].concat();
    // The address twice, the size, and which code it is.
    let place = longs(&[DUMPED_AT, DUMPED_AT, 4096, 0]);
    let record = [words(&[0, record_bytes]), longs(&[1]), words(&[1, 1]), place].concat();
    [&header, &record, name.as_bytes(), &[0], &code[..]].concat()
}

/// What would be found by whoever is led out of the root: the debug file, the unit, and names of the same code.
fn lay_outside(outside: &Path, compiled: &Path) -> Result<()> {
    fs::copy(compiled.join("program.debug"), outside.with_extension("debug"))?;
    fs::copy(compiled.join("unit.dwo"), outside.with_extension("dwo"))?;
    fs::write(outside.with_extension("map"), format!("100000000000 1000 {SECRET}\n"))?;
    fs::write(outside.with_extension("dump"), jitdump(SECRET))?;
    Ok(())
}

/// How long is waited for what names code, and the CPU time that each process has meanwhile: some 100 samples.
const PROFILED: Duration = Duration::from_secs(6);
const PROFILED_CPU_TIME: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);

/// Profiles these within so many MiB, and calls `halfway` when half of this is over. With what arrived comes how many bytes the
/// profiler took at most.
pub(super) fn profile(
    mut pids: Vec<u32>,
    limit_mib: u64,
    halfway: impl FnOnce() -> Result<()>,
) -> Result<(Received, u64)> {
    let collector = Collector::start()?;
    let profiled = pids.clone();
    let cpu_times = || profiled.iter().map(|pid| observe::cpu_ns(*pid)).collect::<Result<Vec<u64>>>();
    let settings = Settings {
        samples_per_second: 199,
        pid: pids.pop(),
        other_pids: pids,
        more: vec![format!("memory_limit_mib: {limit_mib}")],
        ..Settings::default()
    };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    let (begun, before) = (Instant::now(), cpu_times()?);
    let has_each_computed = |cpu_time: Duration| -> Result<bool> {
        let mut since = cpu_times()?.into_iter().zip(&before).map(|(now, before)| now - before);
        Ok(since.all(|ns| Duration::from_nanos(ns) >= cpu_time))
    };
    let mut resident_bytes = 0;
    let mut profile_until = |time: Duration, cpu_time: Duration, patience: Duration| -> Result<()> {
        while begun.elapsed() < time || (!has_each_computed(cpu_time)? && begun.elapsed() < patience) {
            thread::sleep(Duration::from_millis(200));
            resident_bytes = observe::resident_bytes(daemon.running().pid())?.max(resident_bytes);
        }
        Ok(())
    };
    profile_until(PROFILED / 2, PROFILED_CPU_TIME / 2, PATIENCE / 2)?;
    halfway()?;
    profile_until(PROFILED, PROFILED_CPU_TIME, PATIENCE)?;
    daemon.stop()?;
    eprintln!("{} kB resident at most", resident_bytes >> 10);
    Ok((collector.stop()?, resident_bytes))
}

pub(super) fn count(received: &Received, pid: u32, is_it: impl Fn(&str) -> bool) -> usize {
    frames(received, pid).filter(|frame| frame.function().is_some_and(&is_it)).count()
}

#[promise(Names, test_all)]
fn files_that_a_process_claims_tell_of_its_code_may_be_traps() -> Result<()> {
    const LIMIT_MIB: u64 = 48;
    let title = "traps in the place of files with names";
    if !requirement::ebpf(title)? {
        return Ok(());
    }
    let compiled = tempfile::tempdir()?;
    compile(compiled.path())?;
    let outside = tempfile::tempdir()?;
    let outside_path = outside.path().join("outside");
    lay_outside(&outside_path, compiled.path())?;
    let programs: Vec<_> =
        KINDS.iter().map(|kind| start(kind, compiled.path(), &outside_path)).collect::<Result<_>>()?;

    let pids = programs.iter().map(|(program, _)| program.pid());
    let (received, resident_bytes) = profile(pids.collect(), LIMIT_MIB, || Ok(()))?;
    for (kind, (program, _)) in KINDS.iter().zip(&programs) {
        let pid = program.pid();
        let events = received.events_of(pid).count();
        let made = count(&received, pid, |name| name.contains(MADE));
        let dumped = count(&received, pid, |name| name.contains(DUMPED));
        let local = count(&received, pid, |name| name.contains(LOCAL));
        let in_source = frames(&received, pid)
            .filter(|frame| {
                frame.lines.iter().any(|line| line.filename.ends_with("/traps.c") && line.line > 0)
            })
            .count();
        eprintln!(
            "{kind}: {events} events, {made} and {dumped} in code of its making, {local} in {LOCAL}, {in_source} with lines"
        );
        ensure!(events > 20, "{kind}: {events} events");
        let secret = count(&received, pid, |name| name.contains(SECRET));
        never(secret > 0, "a name by a file outside", format_args!("{kind}: {secret} frames"));
        let longest = frames(&received, pid).filter_map(|frame| Some(frame.function()?.len())).max();
        ensure!(longest.unwrap_or(0) <= 4096, "{kind}: a name of {longest:?} bytes");
        match *kind {
            // All of these files are read where they are what they should be.
            "none" => ensure!(
                made > 3 && dumped > 3 && local > 3 && in_source > 3,
                "{made} {dumped} {local} {in_source}"
            ),
            "names" => ensure!(count(&received, pid, |name| name.ends_with("nnnn")) > 3),
            _ => ensure!(
                dumped == 0 && local == 0 && in_source == 0,
                "{kind}: {dumped} and {local} frames by files that are not what they should be"
            ),
        }
    }
    ensure!(resident_bytes <= LIMIT_MIB << 20, "{resident_bytes} bytes resident");
    Ok(())
}
