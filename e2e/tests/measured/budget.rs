//! Tables under a budget: half of the memory that they would take is enough, and so is the default for large files.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::rate::StolenTime;
use sidewinder_e2e_support::recording::{Said, record};
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::{collector, paths, programs, requirement};

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

#[promise(PodMemory, test_all)]
fn with_half_of_the_working_set_tables_are_evicted_and_come_back_while_no_more_is_missed() -> Result<()> {
    if !requirement::ebpf("half of the working set")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let programs = programs::copies_of_python(folder.path(), PROGRAMS)?;
    let (roomy, _) = record_all(&programs, 0.3, 256)?;
    eprintln!(
        "all of it: {:.1}% complete, {:?}",
        100.0 * roomy.counts.summary.complete_share(),
        roomy.tables
    );
    assert_eq!(roomy.tables.evictions, 0, "{roomy:?}");

    let half_mib = roomy.tables.loaded_bytes / 2 / (1 << 20);
    ensure!(half_mib >= 2, "the working set is too small to be halved: {roomy:?}");
    let (tight, stolen) = record_all(&programs, 1.0, half_mib)?;
    eprintln!(
        "{half_mib} MiB: {:.1}% complete, {:?}",
        100.0 * tight.counts.summary.complete_share(),
        tight.tables
    );
    assert!(tight.tables.loaded_bytes <= half_mib << 20, "{tight:?}");
    assert!(tight.tables.evictions > 0 && tight.tables.reloads > 0, "{tight:?}");
    assert!(tight.counts.summary.complete_share() >= 0.9, "{tight:?}");

    let missed = |said: &Said| said.counts.summary.outcome("missed") as f64;
    let share = |said: &Said| missed(said) / said.counts.summary.interrupts_by_witness as f64;
    eprintln!("missed: {:.3}% and {:.3}%, {stolen} stolen", 100.0 * share(&roomy), 100.0 * share(&tight));
    let excused = (share(&roomy) + MISSED_BEYOND_MAX) * tight.counts.summary.interrupts_by_witness as f64;
    assert!(missed(&tight) <= excused + stolen as f64, "{stolen} stolen: {tight:?}, {roomy:?}");
    Ok(())
}

/// Files of some hundred MB, each of which has 50 times the tables that fit.
const LARGE_PROGRAMS: u8 = 10;
/// How long their functions may be met for the first time: some seconds, unless the machine is busy with other things.
const WARM_UP_MAX: Duration = Duration::from_secs(90);
const MEASURED: Duration = Duration::from_secs(5);
const LARGE_COMPLETE_MIN: f64 = 0.98;
const LARGE_STACKS_MIN: u64 = 100;

#[promise(PodMemory, test_all)]
fn large_files_that_are_beyond_the_memory_limit_have_tables_of_the_functions_that_run() -> Result<()> {
    const TEST: &str = "large files";
    if !requirement::ebpf(TEST)? || !requirement::program(TEST, "node")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let script = paths::e2e().join("workloads/jobs.js");
    let programs = programs::copies_of_node(folder.path(), LARGE_PROGRAMS)?;
    let start = |program: &String| {
        let mut command = Command::new(program);
        command.arg(&script);
        Load::start(command)
    };
    let _loads: Vec<Load> = programs.iter().map(start).collect::<Result<_>>()?;
    let [dead] = collector::free_ports()?;
    let settings = Settings {
        samples_per_second: 97,
        pid: None,
        more: vec!["memory_limit_mib: 48".to_owned(), "monitor_interval: 200ms".to_owned()],
        ..Settings::default()
    };
    let daemon = Daemon::start(&settings, &format!("127.0.0.1:{dead}"))?;
    let deadline = Instant::now() + WARM_UP_MAX;
    let mut before = daemon.stacks()?;
    loop {
        thread::sleep(MEASURED);
        let after = daemon.stacks()?;
        let met = after.since(before);
        eprintln!("{met:?} in {MEASURED:?}");
        if met.complete > LARGE_STACKS_MIN && met.complete_share() >= LARGE_COMPLETE_MIN {
            break;
        }
        ensure!(Instant::now() < deadline, "{met:?}: {}", daemon.running().log());
        before = after;
    }
    let receiver = daemon.receiver_status()?;
    assert_eq!(receiver["tables_cut"], 0, "{receiver}");
    daemon.stop()?;
    Ok(())
}
