//! Half of the memory that the tables would take is enough, and reading tables again costs no samples.

use std::process::Command;

use anyhow::{Result, ensure};
use sidewinder_e2e::rate::StolenTime;
use sidewinder_e2e::recording::{Said, record};
use sidewinder_e2e::{paths, programs, requirement};

/// As many programs with tables of their own.
const PROGRAMS: u8 = 32;
const SAMPLES_PER_SECOND: u64 = 499;
/// So much more of all interrupts may be missed while tables are evicted and read again than while they all stay.
const MISSED_BEYOND_MAX: f64 = 0.005;

/// Runs all programs at once. They take turns of `turn_seconds`, so that at any time one of them computes, and
/// each has had its turn in the end. All have started before: most tables have gone when their turn comes. With it comes
/// how many interrupts fell into time that the hypervisor stole.
fn record_all(programs: &[String], turn_seconds: f64, budget_mib: u64) -> Result<(Said, u64)> {
    let script = paths::e2e().join("workloads/recursive.py");
    let turns = programs.len();
    let seconds = f64::from(PROGRAMS) * turn_seconds;
    let run = |(turn, program): (usize, &String)| {
        format!("{program} {} {seconds} {turn} {turns} {turn_seconds} & ", script.display())
    };
    let all: String = programs.iter().enumerate().map(run).collect();
    let mut shell = Command::new("sh");
    shell.args(["-c", &(all + "wait")]);
    let stolen = StolenTime::start();
    let (rate, budget) = (SAMPLES_PER_SECOND.to_string(), budget_mib.to_string());
    let recording = record(&["-F", &rate, "--table-budget-mib", &budget], &shell)?;
    Ok((recording.said, SAMPLES_PER_SECOND * stolen.elapsed_ns() / 1_000_000_000))
}

#[test]
fn with_half_of_the_working_set_tables_are_evicted_and_come_back_while_no_more_is_missed() -> Result<()> {
    if !requirement::ebpf("half of the working set")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let programs = programs::copies_of_python(folder.path(), PROGRAMS)?;
    let (roomy, _) = record_all(&programs, 0.3, 256)?;
    eprintln!("all of it: {:.1}% complete, {:?}", 100.0 * roomy.summary.complete_share(), roomy.tables);
    assert_eq!(roomy.tables.evictions, 0, "{roomy:?}");

    let half_mib = roomy.tables.loaded_bytes / 2 / (1 << 20);
    ensure!(half_mib >= 2, "the working set is too small to be halved: {roomy:?}");
    let (tight, stolen) = record_all(&programs, 1.0, half_mib)?;
    eprintln!("{half_mib} MiB: {:.1}% complete, {:?}", 100.0 * tight.summary.complete_share(), tight.tables);
    assert!(tight.tables.loaded_bytes <= half_mib << 20, "{tight:?}");
    assert!(tight.tables.evictions > 0 && tight.tables.reloads > 0, "{tight:?}");
    assert!(tight.summary.complete_share() >= 0.9, "{tight:?}");

    let missed = |said: &Said| said.summary.outcome("missed") as f64;
    let share = |said: &Said| missed(said) / said.summary.interrupts_by_witness as f64;
    eprintln!("missed: {:.3}% and {:.3}%, {stolen} stolen", 100.0 * share(&roomy), 100.0 * share(&tight));
    let excused = (share(&roomy) + MISSED_BEYOND_MAX) * tight.summary.interrupts_by_witness as f64;
    assert!(missed(&tight) <= excused + stolen as f64, "{stolen} stolen: {tight:?}, {roomy:?}");
    Ok(())
}
