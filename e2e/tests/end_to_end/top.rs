//! `sidewinder top`, in a terminal of its own. Its screen is kept in `target/e2e/top`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::workload::{CONVOYS, FAULTS, Gated, LADDER, THREADS, WAITS};
use sidewinder_e2e_support::{paths, received::Received, requirement, sidewinder};

use crate::telemetry::until;

/// The smallest terminal that people have.
const ROWS: u16 = 24;
const COLUMNS: u16 = 80;
const PATIENCE: Duration = Duration::from_secs(60);

/// A command on a terminal.
pub(crate) struct Terminal {
    process: Child,
    /// The user's side.
    keyboard: File,
    /// The command's side.
    line: OwnedFd,
    /// The line as it was before.
    settings: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    pub(crate) fn run(arguments: &[&str]) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let line = rustix::fs::open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
        tcsetwinsize(&line, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 })?;
        let settings = tcgetattr(&line)?;
        let mut command = sidewinder::command()?;
        let side = || line.try_clone().map(Stdio::from);
        let process = command.args(arguments).stdin(side()?).stdout(side()?).stderr(side()?).spawn()?;
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let keyboard = File::from(master);
        let (mut written, shown) = (keyboard.try_clone()?, Arc::clone(&screen));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = written.read(&mut bytes) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..count]);
            }
        });
        Ok(Self { process, keyboard, line, settings, screen })
    }

    pub(crate) fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.keyboard.write_all(keys.as_bytes())?)
    }

    fn with_screen<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen())
    }

    /// Waits until the screen is as it should be, and returns it.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.with_screen(vt100::Screen::contents);
            if is_so(&shown) {
                return Ok(shown);
            }
            ensure!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}:\n{shown}");
            if let Some(status) = self.process.try_wait()? {
                bail!("{what}: it ended with {status}:\n{shown}");
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for its end, after which the terminal must be as it was.
    pub(crate) fn ended(mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.process.try_wait()? {
                Some(status) => break status,
                None => ensure!(Instant::now() < deadline, "it does not end"),
            }
            thread::sleep(Duration::from_millis(20));
        };
        // What it wrote last is on its way.
        thread::sleep(Duration::from_millis(200));
        ensure!(!self.with_screen(vt100::Screen::alternate_screen), "the alternate screen is left on");
        ensure!(!self.with_screen(vt100::Screen::hide_cursor), "the cursor is left hidden");
        let settings = tcgetattr(&self.line)?;
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.local_modes, of.control_modes);
        ensure!(modes(&settings) == modes(&self.settings), "the line is left in another mode: {settings:?}");
        Ok(status)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // One that a failing test left running; one that ended is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The line of the screen that begins a table's row with this name, as numbers: self and total, in percent.
fn shares(screen: &str, name: &str) -> Option<[f64; 2]> {
    let mut of_rows = screen.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    of_rows.find_map(|words| match &words[..] {
        [own, total, found, ..] if *found == name => {
            Some([own.strip_suffix('%')?.parse().ok()?, total.strip_suffix('%')?.parse().ok()?])
        }
        _ => None,
    })
}

#[promise(Top)]
fn the_busiest_functions_and_processes_are_shown_while_they_run() -> Result<()> {
    if !requirement::ebpf("the_busiest_functions_and_processes_are_shown_while_they_run")? {
        return Ok(());
    }
    let mut workload = Gated::start(LADDER.command(&[180, 10])?)?;
    let pid = workload.pid().to_string();
    let mut terminal = Terminal::run(&["top", "-p", &pid, "-F", "499"])?;
    workload.open()?;
    let screen = terminal.until("the function that burns", |screen| {
        shares(screen, "burn").is_some_and(|[own, _]| own > 80.0) && screen.contains("% complete")
    })?;
    keep("functions.txt", &screen)?;
    let first = screen.lines().skip_while(|line| !line.contains("self↓")).nth(1).context("no row")?;
    ensure!(first.contains("burn") && first.contains("ladder"), "the busiest comes first:\n{screen}");
    ensure!(screen.contains("lost since start") && screen.contains(" a second"), "{screen}");

    // What leads to all of it has all of the total, and nothing of its own.
    terminal.press("t")?;
    let screen = terminal.until("by total", |screen| screen.contains("total↓"))?;
    let [own, total] = shares(&screen, "climb").with_context(|| screen.clone())?;
    ensure!(own < 20.0 && total > 80.0, "{own} {total}:\n{screen}");
    terminal.press("/climb")?;
    let screen = terminal.until("the filter", |screen| {
        screen.contains("filter: climb")
            && shares(screen, "climb").is_some()
            && shares(screen, "burn").is_none()
    })?;
    ensure!(screen.contains("Enter keeps it"), "{screen}");
    terminal.press("\r\u{1b}")?;
    terminal.until("no filter", |screen| shares(screen, "burn").is_some())?;

    terminal.press("\t")?;
    let screen = terminal.until("processes", |screen| shares(screen, "ladder") == Some([100.0, 100.0]))?;
    ensure!(screen.contains(&pid), "{screen}");
    keep("processes.txt", &screen)?;

    // The process leads to its functions, one of these to its callers, and Esc back.
    terminal.press("\r")?;
    let in_process = format!("ladder (PID {pid})");
    terminal.until("the functions of the process", |screen| {
        screen.contains(&format!("functions of {in_process}")) && shares(screen, "burn").is_some()
    })?;
    // All of it is in the one that burns, or in what it calls.
    terminal.press("t/burn")?;
    terminal.until("that function", |screen| screen.contains("filter: burn") && !screen.contains("climb"))?;
    terminal.press("\r\r")?;
    let screen = terminal.until("its callers", |screen| {
        screen.contains(&format!("callers of burn, in {in_process}")) && shares(screen, "rung_8").is_some()
    })?;
    keep("callers.txt", &screen)?;
    let [_, total] = shares(&screen, "rung_8").with_context(|| screen.clone())?;
    ensure!(total > 80.0 && screen.contains("caller") && screen.contains("Esc back"), "{total}:\n{screen}");
    terminal.press("\r")?;
    terminal.until("the callers of these", |screen| screen.contains("callers of rung_8 → burn"))?;
    terminal.press("\u{1b}")?;
    terminal.until("back", |screen| screen.contains("callers of burn"))?;
    terminal.press("?")?;
    terminal
        .until("the keys", |screen| screen.contains("full or short names") && !screen.contains("rung_8"))?;
    terminal.press("?p")?;
    terminal.until("a pause", |screen| screen.contains("paused"))?;
    let counts = |screen: &str| screen.lines().nth(1).map(str::to_owned);
    let paused = terminal.with_screen(|screen| counts(&screen.contents()));
    thread::sleep(Duration::from_secs(3));
    assert_eq!(terminal.with_screen(|screen| counts(&screen.contents())), paused, "while it is paused");
    terminal.press("q")?;
    ensure!(terminal.ended()?.success());
    Ok(())
}

/// One of three threads, by its TID: of the others there is nothing, neither on the screen nor in a file.
#[promise(Top, test_all)]
fn a_thread_is_shown_or_recorded_alone() -> Result<()> {
    if !requirement::ebpf("a_thread_is_shown_or_recorded_alone")? {
        return Ok(());
    }
    let load = Load::start(THREADS.command(&["60", "2"])?)?;
    let main = load.pid().to_string();
    let tids = until("its threads", || {
        let tasks = fs::read_dir(format!("/proc/{main}/task"))?;
        let names = tasks.map(|task| Ok(task?.file_name().to_string_lossy().into_owned()));
        let tids: Vec<String> = names.collect::<Result<_>>()?;
        let others: Vec<String> = tids.into_iter().filter(|tid| *tid != main).collect();
        Ok(Some(others).filter(|others| others.len() == 2))
    })?;
    let tid = tids.first().context("no thread")?;
    let kept = tempfile::tempdir()?;
    let out = kept.path().join("thread.otlp");
    let ended =
        sidewinder::run(&["record", "-t", tid, "-d", "1", "-F", "499", "-o", &out.display().to_string()])?;
    ensure!(ended.status.success(), "{}", ended.log);
    let received = Received::from_otlp_file(&out)?;
    let threads: BTreeSet<_> = received.events().filter_map(|event| event.sample.thread_id()).collect();
    ensure!(threads == BTreeSet::from([tid.parse::<i64>()?]), "{threads:?} instead of {tid}");

    let mut terminal = Terminal::run(&["top", "-t", tid, "-F", "499"])?;
    let screen = terminal.until("the thread", |screen| shares(screen, "burn").is_some())?;
    ensure!(screen.contains(&format!("thread {tid}")), "{screen}");
    terminal.press("q")?;
    ensure!(terminal.ended()?.success());

    let missing = sidewinder::run(&["record", "-t", "4194303", "-d", "1"])?;
    ensure!(missing.log.contains("there is no thread 4194303"), "{}", missing.log);
    Ok(())
}

fn keep(name: &str, screen: &str) -> Result<()> {
    let folder = paths::compiled()?.join("top");
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join(name), screen)?)
}

/// What waits comes first in off-CPU time, and wall time has what runs beside it.
#[promise(Top)]
fn what_threads_wait_for_is_shown_while_they_wait() -> Result<()> {
    if !requirement::ebpf("what_threads_wait_for_is_shown_while_they_wait")? {
        return Ok(());
    }
    let load = Load::start(WAITS.command(&[120])?)?;
    let pid = load.pid().to_string();
    for (option, file) in [("--off-cpu", "off_cpu.txt"), ("--wall", "wall.txt")] {
        let mut terminal = Terminal::run(&["top", "-p", &pid, option])?;
        let is_wall = option == "--wall";
        let title = if is_wall { "wall time, 97 Hz" } else { "off-CPU time" };
        terminal.until("the order of waits", |screen| screen.contains("total↓"))?;
        terminal.press("/wait_")?;
        let total = |screen: &str, function| shares(screen, function).map_or(0.0, |[_, total]| total);
        // Eight threads: one that waits for the whole time is an eighth of it.
        let screen = terminal.until("those that wait", |screen| {
            screen.contains(title)
                && (9.0..18.0).contains(&total(screen, "wait_until_the_end"))
                && (7.0..18.0).contains(&total(screen, "wait_in_futex"))
        })?;
        keep(file, &screen)?;
        terminal.press("\r\u{1b}")?;
        terminal.until("no filter", |screen| !screen.contains("filter: "))?;
        terminal.press("/[sleeping")?;
        terminal.until("causes of waits instead of the kernel's functions", |screen| {
            let has = |cause| screen.contains(cause);
            has("filter: [sleeping") && has("[sleeping: futex]") && has("[sleeping: sleep]")
        })?;
        let unit = if is_wall { "s of wall time" } else { "s off the CPUs" };
        ensure!(screen.contains(unit) && screen.contains("s a second"), "{screen}");
        // The one that computes waits for nothing, or for a CPU at most.
        terminal.press("\r\u{1b}")?;
        terminal.until("no filter", |screen| !screen.contains("filter: "))?;
        terminal.press("/compute")?;
        terminal.until("the one that computes", |screen| {
            let share = total(screen, "compute");
            screen.contains("filter: compute")
                && if is_wall { (5.0..20.0).contains(&share) } else { share < 2.0 }
        })?;
        terminal.press("\rq")?;
        ensure!(terminal.ended()?.success());
    }
    Ok(())
}

/// The workload touches three times as much memory in one function as in the other.
#[promise(Top, test_all)]
fn page_faults_are_shown_by_function_while_they_happen() -> Result<()> {
    if !requirement::ebpf("top of page faults")? {
        return Ok(());
    }
    let program = Load::start(FAULTS.command(&[100_000, 500, 1_000])?)?;
    let mut terminal = Terminal::run(&["top", "-e", "page-faults:16", "-p", &program.pid().to_string()])?;
    let screen = terminal.until("both functions", |screen| {
        let is_share =
            |name, expected: f64| shares(screen, name).is_some_and(|[own, _]| (own - expected).abs() < 5.0);
        is_share("grow_large", 75.0) && is_share("grow_small", 25.0)
    })?;
    keep("page-faults.txt", &screen)?;
    ensure!(screen.contains("page-faults, period 16, the last 10 s"), "{screen}");
    ensure!(screen.contains(" page faults, ") && screen.contains(" a second"), "{screen}");
    terminal.press("q")?;
    ensure!(terminal.ended()?.success());
    Ok(())
}

#[promise(Top, test_all)]
fn waits_for_locks_are_shown_by_lock_and_by_function_while_they_happen() -> Result<()> {
    if !requirement::ebpf("top of locks")? {
        return Ok(());
    }
    let program = Load::start(CONVOYS.command(&["mutex", "120"])?)?;
    let mut terminal =
        Terminal::run(&["top", "--locks=1", "--sort", "self", "-p", &program.pid().to_string()])?;
    let screen = terminal.until("three locks", |screen| screen.matches("[lock ").count() == 3)?;
    keep("locks.txt", &screen)?;
    ensure!(screen.contains("] in "), "with the functions that wait for them:\n{screen}");
    let first = screen.lines().skip_while(|line| !line.contains("self↓")).nth(1).context("no row")?;
    ensure!(first.contains("[lock "), "what is waited for comes first:\n{screen}");
    ensure!(screen.contains("time of waits for locks, the last 10 s"), "{screen}");
    ensure!(screen.contains(" s of waits for locks, ") && screen.contains(" s a second"), "{screen}");
    // More functions than rows lead to all of it.
    terminal.press("t/wait_for")?;
    let total = |screen: &str, function| shares(screen, function).map(|[_, total]| total);
    let screen = terminal.until("the convoys", |screen| {
        screen.contains("total↓")
            && total(screen, "wait_for_red") > total(screen, "wait_for_green")
            && total(screen, "wait_for_green") > Some(5.0)
    })?;
    ensure!(total(&screen, "wait_for_red") > Some(60.0), "{screen}");
    terminal.press("\rq")?;
    ensure!(terminal.ended()?.success());
    Ok(())
}

#[promise(Top, test_all)]
fn waits_for_locks_are_shown_by_the_threads_that_end_them() -> Result<()> {
    if !requirement::ebpf("top of wakers")? {
        return Ok(());
    }
    let program = Load::start(CONVOYS.command(&["mutex", "120"])?)?;
    let pid = program.pid().to_string();
    let mut terminal =
        Terminal::run(&["top", "--locks=1", "--lock-wakers", "--no-kernel", "--sort", "self", "-p", &pid])?;
    terminal.until("three locks", |screen| {
        screen.contains("time of waits for locks, by waker, the last 10 s")
            && screen.matches("[lock ").count() == 3
    })?;
    terminal.press("t/leave")?;
    let screen = terminal.until("the function that releases the locks", |screen| {
        screen.contains("total↓") && shares(screen, "leave").is_some_and(|[_, total]| total > 95.0)
    })?;
    keep("wakers.txt", &screen)?;
    terminal.press("\rq")?;
    ensure!(terminal.ended()?.success());
    Ok(())
}

#[promise(Top)]
fn however_it_ends_the_terminal_is_as_it_was() -> Result<()> {
    if !requirement::ebpf("however_it_ends_the_terminal_is_as_it_was")? {
        return Ok(());
    }
    let workload = Gated::start(LADDER.command(&[60, 10])?)?;
    let pid = workload.pid().to_string();
    let is_up = |screen: &str| screen.contains("sidewinder top") && screen.contains("q quit");
    for end in ["\u{3}", "\u{1b}", "SIGTERM"] {
        let mut terminal = Terminal::run(&["top", "-p", &pid])?;
        terminal.until("the screen", is_up)?;
        if end == "SIGTERM" {
            let pid = nix::unistd::Pid::from_raw(terminal.process.id().cast_signed());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        } else {
            terminal.press(end)?;
        }
        let status = terminal.ended().with_context(|| format!("after {end:?}"))?;
        ensure!(status.success(), "after {end:?}: {status}");
    }
    Ok(())
}

#[promise(Top)]
fn without_a_terminal_it_says_so() -> Result<()> {
    let ended = sidewinder::run(&["top"])?;
    assert_eq!(ended.status.code(), Some(2), "{}", ended.log);
    ensure!(
        ended.log.contains("top needs a terminal") && ended.log.contains("record --table"),
        "{}",
        ended.log
    );
    Ok(())
}
