//! Whatever processes do to what they run, their stacks are those of the code that ran.
//!
//! Each change takes a way of its own through functions whose names no other way has, so a stack that mixes what was
//! there before a change with what is there after it shows.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::in_user_mode;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Settings, launch};
use sidewinder_e2e_support::workload::{self, Program};
use sidewinder_otlp::decode::DecodedEvent;

const SAMPLES_PER_SECOND: u32 = 499;
const SECONDS: &str = "2.5";
/// Of the interrupts that find a user stack; there are about 1,250 of each change, fewer on a busy machine.
const COMPLETE_SHARE: f64 = 0.98;
/// Where a library takes another one's place 30 times a second: the first samples after each time are cut, visibly.
const RELOADED_COMPLETE_SHARE: f64 = 0.3;
const EVENTS_MIN: usize = 30;

const OWN: &[&str] = &["own_work", "own_burn"];
const OTHER: &[&str] = &["other_work", "other_burn"];
const A: &[&str] = &["visit_a", "plugin_run", "run_a", "burn_a"];
const B: &[&str] = &["visit_b", "plugin_run", "run_b", "burn_b"];
const CHILD: &[&str] = &["run_child", "own_work", "own_burn"];

/// What there was of one change.
#[derive(Debug, Default)]
struct Found {
    /// Events that should have a user stack.
    all: usize,
    complete: usize,
    /// Complete ones by the end of the way that they show.
    ways: BTreeMap<String, usize>,
    /// Stacks that show no way, or several.
    wrong: Vec<String>,
}

impl Found {
    fn add(&mut self, event: &DecodedEvent<'_>, ways: &[&[&str]]) {
        if !in_user_mode(event) || matches!(event.sample.outcome(), Some("exec" | "exiting")) {
            return;
        }
        self.all += 1;
        let names: Vec<&str> = event.sample.stack.iter().rev().filter_map(|frame| frame.function()).collect();
        let known: Vec<&str> =
            names.iter().copied().filter(|name| ways.iter().any(|way| way.contains(name))).collect();
        let is_complete = event.sample.outcome().is_none();
        self.complete += usize::from(is_complete);
        // Of a stack that is cut, what is there must belong together.
        let fits = |way: &&&[&str]| if is_complete { way.starts_with(&known) } else { is_part(&known, way) };
        match ways.iter().find(fits) {
            Some(way) if is_complete && known.len() == way.len() => {
                *self.ways.entry(known.last().copied().unwrap_or_default().to_owned()).or_default() += 1;
            }
            Some(_) => {}
            None => self.wrong.push(names.join(" > ")),
        }
    }
}

fn is_part(names: &[&str], way: &[&str]) -> bool {
    names.is_empty() || way.windows(names.len()).any(|part| part == names)
}

fn assert_right(mode: &str, arguments: &[&Path], ways: &[&[&str]]) -> Result<()> {
    assert_right_and(COMPLETE_SHARE, mode, arguments, ways)
}

/// Profiles a change and looks at all stacks of all processes that took part.
fn assert_right_and(complete_share: f64, mode: &str, arguments: &[&Path], ways: &[&[&str]]) -> Result<()> {
    if !requirement::ebpf(mode)? {
        return Ok(());
    }
    let mut program = workload::CHANGES.command(&[mode, SECONDS])?;
    let profiled = launch(Settings::at(SAMPLES_PER_SECOND), program.args(arguments), None)?;
    let mut found = Found::default();
    profiled.received.events().for_each(|event| found.add(&event, ways));
    eprintln!("{mode}: {} of {} complete, {:?}", found.complete, found.all, found.ways);
    assert!(
        found.wrong.is_empty(),
        "{mode}: {} stacks were never there: {:?}",
        found.wrong.len(),
        found.wrong
    );
    assert!(found.all >= EVENTS_MIN, "{mode}: {} events", found.all);
    assert!(found.complete as f64 >= complete_share * found.all as f64, "{mode}: {}", profiled.log);
    for way in ways {
        let seen = way.last().and_then(|end| found.ways.get(*end)).copied().unwrap_or_default();
        assert!(seen * 10 >= found.all, "{mode}: {seen} of {} stacks show {way:?}", found.all);
    }
    Ok(())
}

fn plugins() -> Result<(std::path::PathBuf, std::path::PathBuf)> {
    let compiled = |program: Program| program.compiled();
    Ok((compiled(workload::CHANGE_PLUGIN_A)?, compiled(workload::CHANGE_PLUGIN_B)?))
}

#[promise(NoRestart)]
fn libraries_that_come_and_go_at_one_place() -> Result<()> {
    let (a, b) = plugins()?;
    assert_right_and(RELOADED_COMPLETE_SHARE, "reload", &[&a, &b], &[A, B])
}

#[promise(NoRestart, test_all)]
fn a_library_without_a_file_name() -> Result<()> {
    assert_right("memfd", &[&plugins()?.0], &[A])
}

#[promise(NoRestart, test_all)]
fn a_library_whose_file_is_deleted() -> Result<()> {
    assert_right("deleted", &[&plugins()?.0], &[A])
}

#[promise(NoRestart)]
fn a_package_upgrade_under_a_running_process() -> Result<()> {
    let (a, b) = plugins()?;
    assert_right("upgrade", &[&a, &b], &[A, B])
}

#[promise(NoRestart, test_all)]
fn one_file_at_two_places() -> Result<()> {
    assert_right("twice", &[&plugins()?.0], &[A])
}

#[promise(NoRestart, test_all)]
fn two_libraries_at_one_place_of_two_processes() -> Result<()> {
    let (a, b) = plugins()?;
    assert_right("beside", &[&a, &b], &[A, B])
}

#[promise(NoRestart)]
fn exec_without_fork() -> Result<()> {
    assert_right("exec", &[&workload::CHANGES_OTHER.compiled()?], &[OWN, OTHER])
}

#[promise(NoRestart)]
fn fork_without_exec() -> Result<()> {
    assert_right("fork", &[], &[CHILD])
}

#[promise(NoRestart, test_all)]
fn fork_without_exec_on_a_deep_stack() -> Result<()> {
    assert_right("deep", &[], &[CHILD])
}

#[promise(NoRestart, test_all)]
fn a_child_on_the_memory_of_its_parent() -> Result<()> {
    assert_right("vfork", &[], &[CHILD])
}

#[promise(NoRestart, test_all)]
fn a_thread_that_outlives_the_first_one() -> Result<()> {
    assert_right("leader", &[], &[OWN])
}

#[promise(NoRestart, test_all)]
fn another_file_of_the_same_name_in_another_mount_namespace() -> Result<()> {
    assert_right("mounted", &[&workload::CHANGES_OTHER.compiled()?], &[OTHER])
}

#[promise(NoRestart, test_all)]
fn a_process_number_that_is_used_again() -> Result<()> {
    assert_right("reuse", &[&workload::CHANGES_OTHER.compiled()?], &[OWN, OTHER])
}
