//! Programs whose memory is never given to readers: they are profiled like any other, and nobody else notices.
//!
//! The system call waits for userfaultfd, and the process is put in quarantine. The eBPF program (Linux 6.1) does not wait, as
//! its faults are not tried again: what it reads there is an error at once. So are `environ` and `cmdline`. Not shown here: a
//! `mmap_lock` that is held. A fault lets go of that while it waits for userfaultfd, and so do `mlock` and
//! `MAP_POPULATE` for the pages that they ask for; to hold it takes a file system of one's own.

use anyhow::{Result, ensure};
use serde_json::Value;
use sidewinder_e2e_support::collector::{self, Collector};
use sidewinder_e2e_support::conservation::Summary;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::rate::{Expected, StolenTime};
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::{self, Gated, Report};
use sidewinder_e2e_support::{requirement, sidewinder};

use crate::telemetry::{page, telemetry, until};

const SAMPLES_PER_SECOND: u32 = 997;
/// Where a read waits, longer than it may take, and some.
const SECONDS: u32 = 12;
const SECONDS_WITHOUT_WAITING: u32 = 4;
const TOLERANCE: f64 = 0.05;

/// Profiles a silent program beside another one.
fn profile(what: &str) -> Result<()> {
    if !requirement::ebpf(&format!("a silent {what}"))? {
        return Ok(());
    }
    let waits = !requirement::is_linux((6, 1))?;
    let seconds = if waits { SECONDS } else { SECONDS_WITHOUT_WAITING }.to_string();
    let [metrics, health] = collector::free_ports()?;
    let collector = Collector::start()?;
    let mut other = Gated::start(workload::THREADS.command(&[&*seconds, "1"])?)?;
    let mut silent = Gated::start(workload::SILENT.command(&[&*seconds, what])?)?;
    let settings = Settings {
        other_pids: vec![other.pid()],
        more: vec!["monitor_interval: 100ms".to_owned()],
        service: vec!["extensions: [health_check]".to_owned(), telemetry(metrics)],
        top: vec![format!("extensions: {{ health_check: {{ endpoint: 127.0.0.1:{health} }} }}")],
        samples_per_second: SAMPLES_PER_SECOND,
        ..Settings::of_process(silent.pid())
    };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    let stolen = StolenTime::start();
    other.open()?;
    silent.open()?;
    let daemon_pid = daemon.running().pid().to_string();
    let receiver = || -> Result<Value> {
        let said = sidewinder::run(&["status", "--json", "--pid", &daemon_pid])?;
        let document: Value = serde_json::from_str(&said.log)?;
        Ok(document.pointer("/receivers/profiling").cloned().unwrap_or_default())
    };
    if waits {
        until("a process in quarantine", || {
            Ok((receiver()?.get("quarantined_processes") == Some(&Value::from(1))).then_some(()))
        })?;
        let said = sidewinder::run(&["status", "--pid", &daemon_pid])?;
        ensure!(said.log.contains("in quarantine: 1 processes"), "{}", said.log);
    }
    let pids = [silent.pid(), other.pid()];
    let reports = [silent.finish()?, other.finish()?];
    let stolen_ns = stolen.elapsed_ns();
    ensure!(page(health, "/")?.contains("Server available"), "it goes on");
    let text = page(metrics, "/metrics")?;
    let counted = text
        .lines()
        .find(|line| line.starts_with("sidewinder_foreign_reads{") && line.contains("result=\"timed_out\""));
    ensure!(counted.is_some_and(|line| line.ends_with(" 0") != waits), "{text}");
    let receiver = receiver()?;
    let reads = |result| receiver.pointer(&format!("/foreign_reads/{result}")).and_then(Value::as_u64);
    ensure!((reads("timed_out") >= Some(1)) == waits && reads("answered") >= Some(1), "{receiver}");
    let ended = daemon.stop()?;
    let received = collector.stop()?;
    let Some(summary) = Summary::from_log(&ended.log) else { anyhow::bail!("no summary: {}", ended.log) };
    for (pid, Report { cpu_ns, .. }) in pids.into_iter().zip(&reports) {
        let expected = Expected::of(SAMPLES_PER_SECOND, *cpu_ns, stolen_ns);
        let expected = expected.but_for_missed(&summary).beside_others();
        let events = received.events_of(pid).count();
        ensure!(expected.admits(events, TOLERANCE), "{events} events of process {pid}, {expected}");
    }
    let cpus = std::thread::available_parallelism()?.get() as u64;
    summary.check(received.events().count() as u64, cpus)?;
    Ok(())
}

#[promise(ThreadContext, test_all)]
fn a_context_that_is_never_given_stops_nothing() -> Result<()> {
    profile("context")
}

#[promise(Names, test_all)]
fn names_that_are_never_given_stop_nothing() -> Result<()> {
    profile("names")
}
