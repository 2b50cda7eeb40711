//! Processes that live for five milliseconds lose none of their interrupts, and their stacks are complete; so are those
//! of programs that nobody has seen before.

use std::fs;
use std::process::Command;

use anyhow::Result;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{self, Session};
use sidewinder_e2e_support::workload::{self, Program};

const PROCESSES: u32 = 1_000;
const PROGRAMS: u32 = 100;
const SAMPLES_PER_SECOND: u32 = 997;

/// Of the interrupts that find a user stack. About one in a thousand finds a new process before its first return to user
/// mode, or its stack before the page below is there.
const COMPLETE_SHARE: f64 = 0.99;

fn spawn(program: &str, count: u32, each: Option<&str>) -> Result<Command> {
    let count = count.to_string();
    let arguments = [program, &count].into_iter().chain(each).collect::<Vec<_>>();
    workload::SPAWNER.command(&arguments)
}

/// In how many events of the children there was a user stack, and in how many of those it is complete.
fn user_stacks(session: &Session) -> (usize, usize) {
    let (mut all, mut complete) = (0, 0);
    for event in session.received.events_of_others(session.report.pid) {
        match event.sample.outcome() {
            Some("exec" | "exiting") => {}
            outcome => {
                all += 1;
                complete += usize::from(outcome.is_none());
            }
        }
    }
    (all, complete)
}

fn assert_complete(name: &str, session: &Session, at_least: f64) {
    let (all, complete) = user_stacks(session);
    let share = complete as f64 / all as f64;
    eprintln!("{name}: {complete} of {all} user stacks are complete ({:.2}%)", 100.0 * share);
    assert!(share >= at_least, "{name}: {complete} of {all}");
}

#[test]
fn a_thousand_processes_of_5_ms_lose_no_interrupt_and_no_stack() -> Result<()> {
    if !requirement::ebpf("1,000 processes of 5 ms")? {
        return Ok(());
    }
    let brief = workload::BRIEF.compiled()?.display().to_string();
    let session = session::profile(spawn(&brief, PROCESSES, None)?, SAMPLES_PER_SECOND)?;
    let events = session.received.events_of_others(session.report.pid).count();
    // The kernel's own account of all children together: user and system.
    let expected = session.expected(SAMPLES_PER_SECOND);
    eprintln!("{PROCESSES} processes: {events} events, {expected}");
    assert!(expected.admits(events, 0.02), "{events} events, {expected}");
    assert_complete("processes of 5 ms", &session, COMPLETE_SHARE);
    Ok(())
}

/// The session of many copies of a program, each of which runs once.
fn profile_copies(program: &Program) -> Result<Session> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("new");
    for number in 0..PROGRAMS {
        fs::copy(program.compiled()?, format!("{}.{number}", copy.display()))?;
    }
    let command = spawn(&copy.display().to_string(), PROGRAMS, Some("each"))?;
    session::profile(command, SAMPLES_PER_SECOND)
}

#[test]
fn programs_never_seen_before_have_complete_stacks_from_their_first_sample() -> Result<()> {
    if !requirement::ebpf("100 programs that were never seen before")? {
        return Ok(());
    }
    assert_complete("new programs", &profile_copies(&workload::BRIEF)?, COMPLETE_SHARE);
    Ok(())
}

/// Such a walk is done later, from what was kept of either stack, of about 490. Without the second one three quarters of
/// them are cut.
#[test]
fn programs_never_seen_before_that_work_on_another_stack_have_complete_stacks() -> Result<()> {
    if !requirement::ebpf("100 programs that work on another stack")? {
        return Ok(());
    }
    assert_complete("new programs on another stack", &profile_copies(&workload::ASIDE)?, 0.95);
    Ok(())
}
