//! A configuration that changes while profiles are made.

use std::fs;
use std::os::unix::fs::symlink;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::conservation::Summary;
use sidewinder_e2e_support::log::{self, Entry};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::rate::{Expected, StolenTime};
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::{self, Gated};

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a value in the status of a profiler is this.
fn until_status_has(daemon: &Daemon, pointer: &str, expected: &Value) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = daemon.status()?;
        if status.pointer(pointer) == Some(expected) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{pointer} is not {expected} within {PATIENCE:?}: {status}\n{}", daemon.running().log());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until the log has an entry with a number in a field.
fn until_log_has(daemon: &Daemon, field: &str, expected: u64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !log::entries(&daemon.running().log()).any(|entry| entry.number(field) == Some(expected)) {
        if Instant::now() > deadline {
            bail!("no {field} is {expected} within {PATIENCE:?}:\n{}", daemon.running().log());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The way in which Kubernetes changes a mounted `ConfigMap`: the file stays a link, a folder's link is swapped.
#[promise(Configuration, test_all)]
fn no_event_is_lost_when_exporters_change_and_a_wrong_configuration_changes_nothing() -> Result<()> {
    if !requirement::ebpf("a configuration that changes")? {
        return Ok(());
    }
    let (first, second) = (Collector::start()?, Collector::start()?);
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let mut workload = Gated::start(workload::THREADS.command(&["9", "1"])?)?;
    let pid = workload.pid();
    let settings = Settings::of_process(pid);
    for (version, text) in [
        ("..1", settings.yaml(&first.grpc_endpoint())),
        (
            "..2",
            settings
                .yaml(&second.grpc_endpoint())
                .replace("reporter_interval: 1s", "reporter_interval: 500ms"),
        ),
        (
            "..3",
            settings
                .yaml(&second.grpc_endpoint())
                .replace("samples_per_second: 997", "samples_per_second: 0"),
        ),
    ] {
        fs::create_dir(at(version))?;
        fs::write(at(version).join("relay.yaml"), text)?;
    }
    let turn_to = |version: &str| -> Result<()> {
        symlink(version, at("..data_tmp"))?;
        Ok(fs::rename(at("..data_tmp"), at("..data"))?)
    };
    turn_to("..1")?;
    symlink("..data/relay.yaml", at("relay.yaml"))?;
    let daemon = Daemon::start_from(&at("relay.yaml"))?;
    let stolen = StolenTime::start();
    workload.open()?;
    thread::sleep(Duration::from_secs(3));
    turn_to("..2")?;
    until_status_has(&daemon, "/configuration/reloads", &json!(1))?;
    thread::sleep(Duration::from_secs(1));
    turn_to("..3")?;
    until_status_has(&daemon, "/configuration/refused", &json!(1))?;
    let report = workload.finish()?;
    let stolen_ns = stolen.elapsed_ns();
    let ended = daemon.stop()?;
    let summary = Summary::from_log(&ended.log).context("it has not said how it ended")?;
    let expected = Expected::of(997, report.cpu_ns, stolen_ns).but_for_missed(&summary).beside_others();
    let events = |collector: Collector| -> Result<usize> { Ok(collector.stop()?.events_of(pid).count()) };
    let (before, after) = (events(first)?, events(second)?);
    eprintln!("{before} events went to the first Collector, {after} to the second; {expected}");
    ensure!(before > 0 && after > 0, "{before}, {after}:\n{}", ended.log);
    ensure!(expected.admits(before + after, 0.03), "{before} and {after}, {expected}:\n{}", ended.log);
    // The conservation law, across the change: every event that was sampled was delivered by one of the exporters.
    let counted = |entry: &Entry| {
        let counters = entry.counts("counters")?;
        counters.into_iter().find(|(name, _)| *name == "events_exported").map(|(_, count)| count)
    };
    let log = ended.log;
    let sampled: u64 = log::entries(&log).filter_map(|entry| counted(&entry)).sum();
    let delivered: u64 = log::entries(&log).filter_map(|entry| entry.number("delivered")).sum();
    assert_eq!(sampled, delivered, "{log}");
    Ok(())
}

#[promise(Configuration)]
fn a_signal_reads_the_configuration_again_and_a_changed_rate_restarts_the_receiver() -> Result<()> {
    if !requirement::ebpf("a signal that reads the configuration again")? {
        return Ok(());
    }
    let collector = Collector::start()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sidewinder.yaml");
    let mut workload = Gated::start(workload::THREADS.command(&["60", "1"])?)?;
    let yaml = Settings::of_process(workload.pid()).yaml(&collector.grpc_endpoint());
    fs::write(&path, &yaml)?;
    let daemon = Daemon::start_from(&path)?;
    workload.open()?;
    thread::sleep(Duration::from_secs(1));
    fs::write(&path, yaml.replace("997", "199"))?;
    daemon.running().hang_up()?;
    until_log_has(&daemon, "samples_per_second", 199)?;
    thread::sleep(Duration::from_secs(1));
    let ended = daemon.stop()?;
    let periods: Vec<i64> = collector.stop()?.profiles.iter().map(|profile| profile.period).collect();
    for hertz in [997, 199] {
        ensure!(periods.contains(&(1_000_000_000 / hertz)), "{periods:?}:\n{}", ended.log);
    }
    Ok(())
}

#[promise(Runs)]
fn a_receiver_whose_process_has_ended_stays_up_and_has_sent_everything() -> Result<()> {
    if !requirement::ebpf("a process that has ended")? {
        return Ok(());
    }
    let collector = Collector::start()?;
    let mut workload = Gated::start(workload::THREADS.command(&["1", "1"])?)?;
    let pid = workload.pid();
    let daemon = Daemon::start(&Settings::of_process(pid), &collector.grpc_endpoint())?;
    workload.open()?;
    workload.finish()?;
    until_status_has(&daemon, "/receivers/profiling/activity", &json!("out_of_scope"))?;
    thread::sleep(Duration::from_secs(2));
    let received = collector.stop()?;
    ensure!(received.events_of(pid).count() > 0, "nothing was sent before the end");
    ensure!(daemon.stop()?.status.success());
    Ok(())
}
