//! Much of one thing changes nothing about the stacks, and stays inside the budget.

use anyhow::Result;
use sidewinder_e2e_support::counts::Counts;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::recording::{Said, record};
use sidewinder_e2e_support::{requirement, workload};

const BUDGET_MIB: u64 = 16;
/// Of the interrupts that find a user stack: about 1,000, fewer on a busy machine.
const COMPLETE_SHARE: f64 = 0.95;
const WITH_USER_STACK_MIN: u64 = 30;

fn assert_complete(mode: &str, count: u32) -> Result<()> {
    if !requirement::ebpf(&format!("{count} {mode}"))? {
        return Ok(());
    }
    let program = workload::CROWD.command(&[mode, &count.to_string(), "2"])?;
    let recording = record(&["-F", "499", "--table-budget-mib", &BUDGET_MIB.to_string()], &program)?;
    let Said { counts: Counts { summary, .. }, maps_bytes, .. } = &recording.said;
    let (all, share) = (summary.with_user_stack(), summary.complete_share());
    eprintln!("{count} {mode}: {:.2}% of {all} complete, maps take {} KiB", 100.0 * share, maps_bytes >> 10);
    assert!(all >= WITH_USER_STACK_MIN && share >= COMPLETE_SHARE, "{}", recording.log);
    // Rings, scratch and what is known of stacks and processes take some more than tables and mappings.
    assert!(*maps_bytes <= (BUDGET_MIB + 8) << 20, "{:?}", recording.said);
    Ok(())
}

#[promise(Node)]
fn two_thousand_processes() -> Result<()> {
    assert_complete("idle", 2_000)
}

#[promise(Node, test_all)]
fn a_process_with_65_000_mappings() -> Result<()> {
    assert_complete("mappings", 65_000)
}

#[promise(Node, test_all)]
fn five_hundred_execs_a_second() -> Result<()> {
    assert_complete("execs", 500)
}
