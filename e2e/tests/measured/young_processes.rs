//! Processes that live for five milliseconds lose none of their interrupts, and their stacks are complete; so are those
//! of programs that nobody has seen before. Python programs that live for 50 ms have their frames and names.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use sidewinder_e2e_judge::python::{Expected, Stack, Verdict, from_otlp};
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::recording::record;
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
    let expected = session.expected(SAMPLES_PER_SECOND).beside_others();
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

/// Of about 490 user stacks mostly 1 to 3 are cut, and now and then 8, when one process's mappings are read late. Without later
/// walks hardly any is complete.
const NEW_PROGRAMS_COMPLETE_SHARE: f64 = 0.96;

#[test]
fn programs_never_seen_before_have_complete_stacks_from_their_first_sample() -> Result<()> {
    if !requirement::ebpf("100 programs that were never seen before")? {
        return Ok(());
    }
    assert_complete("new programs", &profile_copies(&workload::BRIEF)?, NEW_PROGRAMS_COMPLETE_SHARE);
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

const PYTHON_PROCESSES: u32 = 50;
/// Of the samples with a frame of the program, or with a marker in place of one. The others are from before the receiver knew of
/// the code: the first two milliseconds of the interpreter and of each library, and until each file's table is built.
const NAMED_SHARE: f64 = 0.95;

const ENDS: [&str; 2] = ["[exec]", "[exiting]"];

/// They end before their memory is read, so their functions come with their stacks.
#[test]
fn processes_of_python_that_live_for_50_ms_have_their_frames_and_names() -> Result<()> {
    let name = "processes of Python that live for 50 ms";
    if !requirement::python(name)? {
        return Ok(());
    }
    let program = PythonProgram::new(Path::new(python::SYSTEM), "short.py");
    let expected = Expected::of_program(&program, &[])?;
    let (rate, processes) = (SAMPLES_PER_SECOND.to_string(), PYTHON_PROCESSES.to_string());
    let recording = record(&["-F", &rate], &program.command(&[&processes]))?;
    // As in `user_stacks`: without those of tasks that have no program yet, or no more.
    let is_walkable = |stack: &&Stack| !stack.frames.iter().any(|frame| ENDS.contains(&&*frame.name));
    let stacks = from_otlp(&recording.received);
    let verdict = Verdict::of(&expected, stacks.iter().filter(is_walkable));
    let share = verdict.judged() as f64 / (verdict.judged() + verdict.unnamed) as f64;
    eprintln!("{name}: {:.2}% named; {verdict}", 100.0 * share);
    assert_eq!(verdict.wrong_names, 0, "never a wrong name: {name}: {verdict}");
    assert!(verdict.judged() > 5 * u64::from(PYTHON_PROCESSES), "{name}: {verdict}");
    assert!(share >= NAMED_SHARE, "{name}: {:.2}% named; {verdict}", 100.0 * share);
    Ok(())
}
