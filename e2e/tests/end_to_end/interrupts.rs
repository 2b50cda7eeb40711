//! Interrupts that find something else than a program in its own code: each has its outcome, and shows no frame that
//! could not be vouched for.
//!
//! Not shown here: the page of vsyscalls, which no interrupt finds, since the kernel serves them on their fault; shadow
//! stacks, which this kernel does not offer to programs; the page of probed instructions, in `receiver`'s own tests.

use anyhow::Result;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::recording::record;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::workload::{self, Program};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::{DecodedEvent, DecodedFrame};

/// At 499 Hz, of a third of a second's work and more; fewer on a busy machine.
const EVENTS_MIN: usize = 15;

fn recorded<A: ToString>(program: Program, arguments: &[A]) -> Result<Received> {
    Ok(record(&["-F", "499"], &program.command(arguments)?)?.received)
}

fn has_user_frames(event: &DecodedEvent<'_>) -> bool {
    let is_kernel = |frame: &DecodedFrame| frame.frame_type() == Some(FrameType::Kernel);
    let is_marker = |frame: &DecodedFrame| frame.is_marker() == Some(true);
    event.sample.stack.iter().any(|frame| !is_kernel(frame) && !is_marker(frame))
}

/// How many events ended so; none of them has a frame of the user's.
fn without_user_frames(received: &Received, outcome: &str) -> usize {
    let events: Vec<_> = received.events().filter(|event| event.sample.outcome() == Some(outcome)).collect();
    assert!(!events.iter().any(has_user_frames), "{outcome} has frames");
    events.len()
}

#[promise(CompleteOrTruncated)]
fn a_32_bit_program_is_named_as_what_cannot_be_walked() -> Result<()> {
    const TEST: &str = "32-bit programs";
    const NONE: &[&str] = &[];
    if !requirement::ebpf(TEST)? || !requirement::kernel(TEST, &mut workload::FOREIGN.command(NONE)?)? {
        return Ok(());
    }
    let found = without_user_frames(&recorded(workload::FOREIGN, NONE)?, "foreign_abi");
    assert!(found >= EVENTS_MIN, "{found}");
    Ok(())
}

#[promise(CompleteOrTruncated, test_all)]
fn a_worker_on_the_memory_of_a_program_shows_the_kernel_alone() -> Result<()> {
    const TEST: &str = "workers of io_uring";
    if !requirement::ebpf(TEST)? || !requirement::kernel(TEST, &mut workload::URING.command(&["0.01"])?)? {
        return Ok(());
    }
    let received = recorded(workload::URING, &[1])?;
    let found = without_user_frames(&received, "kernel_thread");
    assert!(found >= EVENTS_MIN, "{found}");
    let with_kernel_frames = received.events().filter(|event| {
        event.sample.outcome() == Some("kernel_thread")
            && event.sample.stack.iter().any(|frame| frame.frame_type() == Some(FrameType::Kernel))
    });
    assert!(with_kernel_frames.count() * 2 > found, "workers without kernel frames");
    Ok(())
}

/// For 110 us of each exit a task has no memory any more, and for 50 us of each exec it has the registers of one program
/// and the memory of another.
#[promise(CompleteOrTruncated, test_all)]
fn between_programs_there_is_no_user_stack() -> Result<()> {
    if !requirement::ebpf("exec and exit")? {
        return Ok(());
    }
    let brief = workload::BRIEF.compiled()?.display().to_string();
    let received = recorded(workload::SPAWNER, &[brief.as_str(), "400"])?;
    let (exec, exiting) = (without_user_frames(&received, "exec"), without_user_frames(&received, "exiting"));
    eprintln!("{exec} in exec, {exiting} exiting");
    assert!(exec > 0 && exiting > 0, "{exec} in exec, {exiting} exiting");
    Ok(())
}
