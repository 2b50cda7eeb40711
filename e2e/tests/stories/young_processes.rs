//! Processes that live for five milliseconds lose none of their interrupts.

use anyhow::Result;
use sidewinder_e2e::{requirement, session, workload};

const PROCESSES: u32 = 1_000;
const SAMPLES_PER_SECOND: u32 = 997;

#[test]
fn a_thousand_processes_of_5_ms_lose_no_interrupt() -> Result<()> {
    if !requirement::ebpf("1,000 processes of 5 ms")? {
        return Ok(());
    }
    let brief = workload::BRIEF.compiled()?.display().to_string();
    let command = workload::SPAWNER.command(&[brief, PROCESSES.to_string()])?;
    let session = session::profile(command, SAMPLES_PER_SECOND)?;
    let events = session.received.count_of_others(session.report.pid);
    // The kernel's own account of all children together: user and system.
    let expected = session.expected(SAMPLES_PER_SECOND);
    eprintln!("{PROCESSES} processes: {events} events, {expected}");
    assert!(expected.admits(events, 0.02), "{events} events, {expected}");
    Ok(())
}
