//! Much of one thing changes nothing about the stacks, and stays inside the budget.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use sidewinder_e2e::conservation::Summary;
use sidewinder_e2e::sidewinder::{self, Running};
use sidewinder_e2e::{requirement, workload};

const BUDGET_MIB: u64 = 16;
/// Of the interrupts that find a user stack: about 1,000, fewer on a busy machine.
const COMPLETE_SHARE: f64 = 0.95;
const WITH_USER_STACK_MIN: u64 = 100;

#[derive(Debug, Deserialize)]
struct Recording {
    #[serde(flatten)]
    summary: Summary,
    map_bytes: u64,
}

fn assert_complete(mode: &str, count: u32) -> Result<()> {
    if !requirement::ebpf(&format!("{count} {mode}"))? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let summary = folder.path().join("summary.json");
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "499", "--table-budget-mib", &BUDGET_MIB.to_string(), "--summary-json"]);
    command.arg(&summary).arg("-o").arg(folder.path().join("out.otlp")).arg("--");
    command.arg(workload::CROWD.compiled()?).args([mode, &count.to_string(), "2"]);
    let ended = Running::start(command)?.wait(Duration::from_secs(180))?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let recording: Recording = serde_json::from_str(&fs::read_to_string(&summary)?).context("the summary")?;
    let (all, share) = (recording.summary.with_user_stack(), recording.summary.complete_share());
    eprintln!(
        "{count} {mode}: {:.2}% of {all} complete, maps take {} KiB",
        100.0 * share,
        recording.map_bytes >> 10
    );
    assert!(all >= WITH_USER_STACK_MIN && share >= COMPLETE_SHARE, "{}", ended.log);
    // Rings, scratch and what is known of stacks and processes take some more than tables and mappings.
    assert!(recording.map_bytes <= (BUDGET_MIB + 8) << 20, "{recording:?}");
    Ok(())
}

#[test]
fn two_thousand_processes() -> Result<()> {
    assert_complete("idle", 2_000)
}

#[test]
fn a_process_with_65_000_mappings() -> Result<()> {
    assert_complete("mappings", 65_000)
}

#[test]
fn five_hundred_execs_a_second() -> Result<()> {
    assert_complete("execs", 500)
}
