//! Stacks are whole: at least 99.5% of the interrupts in user mode reach the start of the program or thread, in
//! the order of its known calls, as decided from the addresses that a Collector received.

use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e_judge::{Chain, Judge, Verdict};
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::workload::{self, Program, Tool};
use sidewinder_e2e_support::{requirement, session};

const RIGHT_SHARE: f64 = 0.995;
/// The rest was interrupted on the way to the end of the chain.
const WHOLE_CHAIN_SHARE: f64 = 0.9;
const SECONDS: u32 = 2;
const SAMPLES_PER_SECOND: u32 = 997;

fn assert_complete(name: &str, verdict: &Verdict) {
    eprintln!("{name}: {verdict}");
    assert!(verdict.right_share() >= RIGHT_SHARE, "{name}: {verdict}");
    assert!(verdict.whole_chain_share() >= WHOLE_CHAIN_SHARE, "{name}: {verdict}");
    never(verdict.misnamed_frames > 0, "a wrong name", format_args!("{name}: {verdict}"));
}

/// Profiles one of our own programs, whose chain is known in full.
fn own_program(program: Program, argument: &str, chain: impl Fn(Vec<String>) -> Chain) -> Result<()> {
    if !requirement::ebpf(&format!("{} {argument}", program.name))? {
        return Ok(());
    }
    let command = program.command(&[&SECONDS.to_string(), argument])?;
    let session = session::profile(command, SAMPLES_PER_SECOND)?;
    let expected = session.expected(SAMPLES_PER_SECOND).beside_others();
    let verdict = Judge::default()
        .verdict(session.received.events_of(session.report.pid), &chain(session.report.chain));
    // Nothing was left out of what is judged.
    let events = verdict.user_events + verdict.kernel_events;
    assert!(expected.admits(events, 0.03), "{events} events, {expected}:\n{}", session.log);
    assert_complete(&format!("{} {argument}", program.name), &verdict);
    Ok(())
}

/// Profiles a program of the system for a while.
fn system_program(tool: Tool) -> Result<()> {
    if !requirement::ebpf(tool.name())? || !requirement::program(tool.name(), tool.name())? {
        return Ok(());
    }
    // Longer than it is profiled for: it has to be there until the profiler has left.
    let command = tool.command(10 * SECONDS)?;
    let (pid, received) = session::profile_running(command, Duration::from_secs(SECONDS.into()))?;
    let verdict = Judge::default().verdict(received.events_of(pid), &Chain::in_order(tool.chain()));
    // About 2,000 on a machine of its own; on a busy one it gets less of the CPU, not fewer of its samples.
    assert!(verdict.user_events > (SAMPLES_PER_SECOND * SECONDS / 10) as usize, "{verdict}");
    assert_complete(tool.name(), &verdict);
    Ok(())
}

#[promise(KernelUnwinding, test_all)]
fn cxx_without_frame_pointers_30_deep() -> Result<()> {
    own_program(workload::LADDER, "30", Chain::Contiguous)
}

#[promise(KernelUnwinding)]
fn cxx_without_frame_pointers_500_deep() -> Result<()> {
    own_program(workload::LADDER, "500", Chain::Contiguous)
}

#[promise(KernelUnwinding)]
fn cxx_with_frame_pointers_30_deep() -> Result<()> {
    own_program(workload::LADDER_FP, "30", Chain::Contiguous)
}

#[promise(KernelUnwinding, test_all)]
fn cxx_with_frame_pointers_500_deep() -> Result<()> {
    own_program(workload::LADDER_FP, "500", Chain::Contiguous)
}

#[promise(KernelUnwinding, test_all)]
fn recursion_through_one_function() -> Result<()> {
    own_program(workload::REC, "36", Chain::Contiguous)
}

/// Between two pieces is a function of the compiler's library.
#[promise(KernelUnwinding, test_all)]
fn recursion_that_goes_on_on_another_piece_of_stack() -> Result<()> {
    own_program(workload::REC_SPLIT, "1500", |_| Chain::in_order(&["main", "recurse", "__morestack", "burn"]))
}

#[promise(KernelUnwinding)]
fn rust_release() -> Result<()> {
    own_program(workload::LADDER_RUST, "30", Chain::Contiguous)
}

#[promise(KernelUnwinding)]
fn go() -> Result<()> {
    own_program(workload::LADDER_GO, "30", Chain::Contiguous)
}

#[promise(KernelUnwinding)]
fn threads_reach_their_own_start() -> Result<()> {
    own_program(workload::THREADS, "4", Chain::Contiguous)
}

#[promise(KernelUnwinding, test_all)]
fn different_functions_in_random_order() -> Result<()> {
    own_program(workload::DIV, "30", Chain::Contiguous)
}

#[promise(KernelUnwinding)]
fn stacks_that_cross_a_signal_handler() -> Result<()> {
    if !requirement::ebpf("signals")? {
        return Ok(());
    }
    let command = workload::SIGNALS.command(&[SECONDS])?;
    let session = session::profile(command, SAMPLES_PER_SECOND)?;
    let chain = Chain::InOrder(session.report.chain);
    assert_complete(
        "signals",
        &Judge::default().verdict(session.received.events_of(session.report.pid), &chain),
    );
    Ok(())
}

/// A library is walked as soon as the profiler has heard of its mapping; what comes before is marked.
#[promise(NoRestart, test_all)]
fn a_library_that_is_loaded_later_and_again() -> Result<()> {
    if !requirement::ebpf("loader")? {
        return Ok(());
    }
    let plugin = workload::PLUGIN.compiled()?.display().to_string();
    let session =
        session::profile(workload::LOADER.command(&[SECONDS.to_string(), plugin])?, SAMPLES_PER_SECOND)?;
    let events = || session.received.events_of(session.report.pid);
    let verdict = Judge::default().verdict(events(), &Chain::InOrder(session.report.chain.clone()));
    eprintln!("loader: {verdict}");
    assert!(verdict.right_share() >= 0.95, "{verdict}");
    let marked = events().filter(|event| event.sample.outcome().is_some()).count();
    assert!(verdict.right + marked >= verdict.user_events, "{marked} marked, {verdict}");
    Ok(())
}

#[promise(KernelUnwinding, test_all)]
fn python() -> Result<()> {
    if !requirement::python("python3")? {
        return Ok(());
    }
    let session = session::profile(workload::python(SECONDS.into())?, SAMPLES_PER_SECOND)?;
    let chain = Chain::InOrder(session.report.chain);
    assert_complete(
        "python3",
        &Judge::default().verdict(session.received.events_of(session.report.pid), &chain),
    );
    Ok(())
}

#[promise(KernelUnwinding)]
fn openssl_speed() -> Result<()> {
    system_program(Tool::Openssl)
}

#[promise(KernelUnwinding, test_all)]
fn xz() -> Result<()> {
    system_program(Tool::Xz)
}

#[promise(KernelUnwinding, test_all)]
fn sqlite() -> Result<()> {
    system_program(Tool::Sqlite)
}
