//! Every interrupt ends in one counted outcome, from the perf event's clock to the receiver's file.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use sidewinder_e2e_support::conservation::Summary;
use sidewinder_e2e_support::observe::{self, BpfStats};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::rate::StolenTime;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{self, Gated};
use sidewinder_e2e_support::{requirement, session};

const SAMPLES_PER_SECOND: u64 = 997;

/// Interrupts that end without an event: out of the configured scope, or lost and counted.
const WITHOUT_EVENT: [&str; 6] = ["out_of_scope", "idle", "kernel_thread", "busy", "ring_full", "missed"];

#[promise(InterruptsWithoutProgram)]
fn the_witness_the_outcomes_and_the_file_agree_and_an_omission_shows() -> Result<()> {
    if !requirement::ebpf("conservation")? {
        return Ok(());
    }
    let cpus = thread::available_parallelism()?.get() as u64;
    let folder = tempfile::tempdir()?;
    let (output, summary) = (folder.path().join("out.otlp"), folder.path().join("summary.json"));
    let _stats = BpfStats::enable()?;
    let mut workload = Gated::start(workload::THREADS.command(&["4", "3"])?)?;
    let mut command = sidewinder::command()?;
    command.args([
        "record",
        "-F",
        &SAMPLES_PER_SECOND.to_string(),
        "-p",
        &workload.pid().to_string(),
        "-d",
        "60s",
    ]);
    command.arg("-o").arg(&output).arg("--summary-json").arg(&summary);
    let stolen = StolenTime::start();
    let running = Running::start_sampling(command)?;
    workload.open()?;
    // While the workload runs, so that the profiler does not end with it.
    thread::sleep(Duration::from_secs(3));
    let before_stop = observe::program_runs(running.pid()).interrupts;
    let stopped_at = Instant::now();
    let ended = running.stop()?;
    let stopping_ns = stopped_at.elapsed().as_nanos() as u64;
    let stolen_ns = stolen.elapsed_ns();
    workload.finish()?;
    assert!(ended.status.success(), "{}", ended.log);

    let summary: Summary = serde_json::from_str(&fs::read_to_string(&summary)?).context("the summary")?;
    let received = Received::from_otlp_file(&output)?;
    let events = received.events().count() as u64;
    summary.check(events, cpus)?;
    let with_event = summary.sum() - WITHOUT_EVENT.iter().map(|name| summary.outcome(name)).sum::<u64>();
    assert_eq!(with_event, events, "{summary:?}");
    assert!(events > SAMPLES_PER_SECOND / 2, "{summary:?}");

    // The kernel's count of the program's runs, read from outside just before the end, knows of no other.
    let seen = summary.sum() - summary.outcome("missed") - summary.idle_inferred;
    let while_stopping = SAMPLES_PER_SECOND * cpus * stopping_ns / 1_000_000_000 + 2 * cpus;
    assert!(
        (before_stop..=before_stop + while_stopping).contains(&seen),
        "the program ran {before_stop} times, and at most {while_stopping} times more; outcomes {seen}"
    );
    assert_little_is_missed(&summary, stolen_ns);

    for (outcome, count) in summary.outcomes.iter().filter(|(_, count)| **count > 2 * cpus) {
        assert!(summary.without(outcome).check(events, cpus).is_err(), "{outcome}: {count}");
    }
    Ok(())
}

/// All that goes wrong at once: every CPU busy with processes that are over at once, ten times the usual rate, and a
/// receiver that stands still for four seconds while its rings of a few pages fill up.
#[promise(OneOutcome)]
fn in_a_storm_with_a_receiver_that_stands_still_every_interrupt_is_counted() -> Result<()> {
    if !requirement::ebpf("conservation in a storm")? {
        return Ok(());
    }
    let cpus = thread::available_parallelism()?.get() as u64;
    let folder = tempfile::tempdir()?;
    let (output, summary) = (folder.path().join("out.otlp"), folder.path().join("summary.json"));
    let storm = || Gated::start(workload::SPAWNER.command(&["/bin/true", "1000000"])?);
    let mut storms = (0..2 * cpus).map(|_| storm()).collect::<Result<Vec<_>>>()?;
    let mut command = sidewinder::command()?;
    command
        .args(["record", "-F", "9999", "-d", "60s", "-o"])
        .arg(&output)
        .arg("--summary-json")
        .arg(&summary);
    storms.iter().for_each(|storm| {
        command.args(["-p", &storm.pid().to_string()]);
    });
    let running = Running::start_sampling(command)?;
    storms.iter_mut().try_for_each(Gated::open)?;
    thread::sleep(Duration::from_secs(1));
    let receiver = Pid::from_raw(i32::try_from(running.pid())?);
    signal::kill(receiver, Signal::SIGSTOP)?;
    thread::sleep(Duration::from_secs(4));
    signal::kill(receiver, Signal::SIGCONT)?;
    thread::sleep(Duration::from_secs(1));
    let ended = running.stop()?;
    drop(storms);
    assert!(ended.status.success(), "{}", ended.log);

    let summary: Summary = serde_json::from_str(&fs::read_to_string(&summary)?).context("the summary")?;
    let events = Received::from_otlp_file(&output)?.events().count() as u64;
    eprintln!("{summary:?}");
    summary.check(events, cpus)?;
    assert!(summary.outcome("ring_full") > 1_000, "nothing was lost, so nothing was tested: {summary:?}");
    for (outcome, count) in summary.outcomes.iter().filter(|(_, count)| **count > 2 * cpus) {
        assert!(summary.without(outcome).check(events, cpus).is_err(), "{outcome}: {count}");
    }
    Ok(())
}

/// Half a percent on an idle machine; a virtual one that has to wait for its host loses some more, above all while its
/// CPUs are stolen.
fn assert_little_is_missed(summary: &Summary, stolen_ns: u64) {
    let while_stolen = SAMPLES_PER_SECOND * stolen_ns / 1_000_000_000;
    let excused = summary.interrupts_by_witness / 50 + while_stolen;
    assert!(summary.outcome("missed") <= excused, "{excused} excused: {summary:?}");
}

/// The same of a daemon, through a Collector and into the file that this writes: each event is there, with the outcome
/// under which its interrupt was counted.
#[promise(OneOutcome)]
fn the_witness_the_outcomes_and_the_collectors_file_agree() -> Result<()> {
    if !requirement::ebpf("conservation through a Collector")? {
        return Ok(());
    }
    let cpus = thread::available_parallelism()?.get() as u64;
    let session = session::profile(workload::THREADS.command(&["4", "3"])?, SAMPLES_PER_SECOND as u32)?;
    let summary = session.counts.summary;
    let events = session.received.events().count() as u64;
    summary.check(events, cpus)?;
    assert!(events > SAMPLES_PER_SECOND / 2, "{summary:?}");
    assert_little_is_missed(&summary, session.stolen_ns);
    for (outcome, count) in summary.outcomes.iter().filter(|(_, count)| **count > 2 * cpus) {
        assert!(summary.without(outcome).check(events, cpus).is_err(), "{outcome}: {count}");
    }
    let mut arrived = BTreeMap::<String, u64>::new();
    for event in session.received.events() {
        *arrived.entry(event.sample.outcome().unwrap_or("complete").to_owned()).or_default() += 1;
    }
    let mut counted = summary.outcomes.clone();
    counted.retain(|outcome, _| !WITHOUT_EVENT.contains(&outcome.as_str()));
    assert_eq!(arrived, counted);
    Ok(())
}
