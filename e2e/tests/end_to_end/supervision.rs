//! Threads that hang: health and status tell, and the end waits for none.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use sidewinder_e2e_support::collector::{self, Collector};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::{self, Gated};
use sidewinder_e2e_support::{requirement, sidewinder};

use crate::telemetry::{page, until};

/// The longest that a thread may be silent is half a minute.
const PATIENCE: Duration = Duration::from_secs(90);

/// Stops one thread of a process, as a lock that nobody gives back would. It ends with the process.
fn hang(pid: u32, name: &str) -> Result<JoinHandle<()>> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let thread = threads.flatten().find(|thread| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    });
    let tid = thread.with_context(|| format!("no thread {name}"))?.file_name();
    let tid = Pid::from_raw(tid.to_str().context("a thread's number")?.parse()?);
    let (sender, stopped) = std::sync::mpsc::channel();
    // Only the thread that traces may wait for what it traces.
    let tracer = thread::spawn(move || {
        let wait = || waitpid(tid, Some(WaitPidFlag::__WALL));
        let stopping = ptrace::seize(tid, ptrace::Options::empty())
            .and_then(|()| ptrace::interrupt(tid))
            .and_then(|()| wait());
        let is_stopped = stopping.is_ok();
        let _ = sender.send(stopping);
        // Its end is ours to take note of, or the process would never be gone.
        while is_stopped && wait().is_ok_and(|status| status.pid().is_some() && is_alive(tid)) {}
    });
    stopped.recv().context("the tracer has ended")?.context("can't stop a thread")?;
    Ok(tracer)
}

fn is_alive(tid: Pid) -> bool {
    std::path::Path::new(&format!("/proc/{tid}")).exists()
}

fn a_thread_hangs(name: &'static str) -> Result<()> {
    if !requirement::ebpf(&format!("thread {name} hangs"))? {
        return Ok(());
    }
    let [health] = collector::free_ports()?;
    let collector = Collector::start()?;
    // A thread hangs whatever there is to sample: a little is enough.
    let mut workload = Gated::start(workload::TENANT.command(&["app", "150", "idle"])?)?;
    let settings = Settings {
        service: vec!["extensions: [health_check]".to_owned()],
        top: vec![format!("extensions: {{ health_check: {{ endpoint: 127.0.0.1:{health} }} }}")],
        ..Settings::of_process(workload.pid())
    };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    workload.open()?;
    until("health", || Ok(page(health, "/")?.contains("Server available").then_some(())))?;
    let pid = daemon.running().pid();
    let arguments = |command| [command, "--pid".to_owned(), pid.to_string()];
    until("a good status", || {
        let well = sidewinder::run(&arguments("status".to_owned()))?;
        ensure!(well.status.success(), "{}", well.log);
        Ok(Some(()))
    })?;

    let tracer = hang(pid, name)?;
    let deadline = Instant::now() + PATIENCE;
    while page(health, "/").is_ok() {
        if Instant::now() > deadline {
            bail!("health is good after {PATIENCE:?}: {}", daemon.running().log());
        }
        thread::sleep(Duration::from_millis(200));
    }
    for command in ["status", "health"] {
        let said = sidewinder::run(&arguments(command.to_owned()))?;
        assert_eq!(said.status.code(), Some(1), "{}", said.log);
        ensure!(said.log.contains(&format!("thread {name} hangs: silent for")), "{}", said.log);
    }

    let Err(failure) = daemon.stop() else { bail!("it ended with success") };
    let failure = failure.to_string();
    ensure!(failure.contains("exit status: 1"), "{failure}");
    ensure!(failure.contains("the process exits without these threads"), "{failure}");
    ensure!(failure.contains(&format!("{name} (silent for")), "{failure}");
    ensure!(tracer.join().is_ok(), "the tracer");
    Ok(())
}

#[promise(Status, test_all)]
fn a_thread_that_samples_and_hangs_is_told_of_and_left_behind() -> Result<()> {
    a_thread_hangs("sample")
}

#[promise(Status, test_all)]
fn a_thread_that_reports_and_hangs_is_told_of_and_left_behind() -> Result<()> {
    a_thread_hangs("report")
}
