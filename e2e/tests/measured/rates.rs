//! As many events arrive as the rate and the program's own CPU time say, within 2%, or 12 events where these are more.
//!
//! The events of a CPU come at equal distances, so that a program that occupies its CPU gets its number of them
//! but for one at each end of a time on a CPU. Each case lasts until there are about 300 of them or more.

use anyhow::Result;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{requirement, session, workload};

fn assert_rate(samples_per_second: u32, threads: u32, seconds: u32) -> Result<()> {
    let name = format!("{threads} threads at {samples_per_second} Hz");
    if !requirement::ebpf(&name)? {
        return Ok(());
    }
    let command = workload::THREADS.command(&[seconds, threads])?;
    let session = session::profile(command, samples_per_second)?;
    let events = session.received.events_of(session.report.pid).count();
    let expected = session.expected(samples_per_second);
    eprintln!("{name}: {events} events, {expected}");
    let tolerance = (12.0 / expected.events).max(0.02);
    assert!(expected.admits(events, tolerance), "{name}: {events} events, {expected}:\n{}", session.log);
    Ok(())
}

#[promise(OneOutcome, test_all)]
fn one_thread_at_19_hz() -> Result<()> {
    assert_rate(19, 1, 16)
}

#[promise(OneOutcome)]
fn eight_threads_at_97_hz() -> Result<()> {
    assert_rate(97, 8, 4)
}

#[promise(OneOutcome, test_all)]
fn eight_threads_at_997_hz() -> Result<()> {
    assert_rate(997, 8, 2)
}
