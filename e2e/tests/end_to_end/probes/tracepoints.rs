//! Probes at tracepoints of the kernel: hits and values by caller are those that the program counts, and nobody else's are seen.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::recording::record;
use sidewinder_e2e_support::workload::WRITES;
use sidewinder_e2e_support::{requirement, sidewinder};

use super::{numbers, sum};

const CALLERS: [&str; 2] = ["write_small", "write_large"];
const CALLS: u32 = 1_000;
const PAUSE_US: u32 = 20_000;
/// How often a process leaves a CPU in `main` besides what it counts: it sleeps before, and ends after.
const OTHER_SWITCHES: i64 = 50;

/// The sum of the values of a profile over the stacks with a function.
fn sum_with(received: &Received, sample_type: &str, function: &str) -> i64 {
    let of_kind = received.events().filter(|event| &*event.profile.sample_type == sample_type);
    let is_in = |name: Option<&str>| name.is_some_and(|name| name == function);
    let with = of_kind.filter(|event| event.sample.stack.iter().any(|frame| is_in(frame.function())));
    with.map(|event| event.value).sum()
}

#[promise(Probes)]
fn hits_of_tracepoints_and_their_arguments_are_those_of_the_profiled_process() -> Result<()> {
    if !requirement::ebpf("tracepoints")? {
        return Ok(());
    }
    let program = WRITES.command(&[CALLS, PAUSE_US])?;
    let other = WRITES.command(&[CALLS, PAUSE_US])?.stdout(Stdio::null()).spawn()?;
    let specs = [
        "tracepoint:raw_syscalls:sys_exit,value=arg1,unit=bytes,max_overhead=0.5",
        "tracepoint:raw_syscalls:sys_enter,max_overhead=0.5",
        "tracepoint:sched:sched_switch,max_overhead=0.5",
        &format!("uprobe:{}:write_small,max_overhead=0.5", program.get_program().to_string_lossy()),
    ];
    let options: Vec<&str> = specs.iter().flat_map(|spec| ["--probe", spec]).collect();
    let recording = record(&options, &program)?;
    eprintln!("{}", recording.log.trim_end());
    ensure!({ other }.wait()?.success());
    let received = &recording.received;
    for caller in CALLERS {
        let [calls, bytes] = numbers(&recording.log, caller)?[..] else {
            anyhow::bail!("no counts of {caller}")
        };
        for (sample_type, counted) in
            [("tracepoint_raw_syscalls_sys_exit", bytes), ("tracepoint_raw_syscalls_sys_enter", calls)]
        {
            let found = sum_with(received, sample_type, caller);
            ensure!(found == counted, "{sample_type} in {caller}: {found} of {counted}");
        }
    }
    let switches = numbers(&recording.log, "switches")?[0];
    let found = sum_with(received, "tracepoint_sched_sched_switch", "main");
    let expected = switches..=switches + OTHER_SWITCHES;
    ensure!(switches >= 20 && expected.contains(&found), "{found} switches of {switches}");
    // What the kernel was doing, without the programs of the probe. Whether the tracepoint has a frame is up to the compiler.
    let leaves = received.events().filter(|event| event.profile.sample_type.starts_with("tracepoint_"));
    let strange = leaves
        .filter_map(|event| event.sample.stack.first()?.function())
        .find(|name| name.starts_with("bpf_"));
    ensure!(strange.is_none(), "{strange:?} is the leaf");
    let found = sum(received, "uprobe_write_small", "main", Some("write_small"));
    ensure!(found == numbers(&recording.log, "write_small")?[0], "{found} hits of the function");
    let said = recording.said.probes.get("tracepoint_raw_syscalls_sys_enter").context("no summary")?;
    ensure!(said.hits >= CALLS.into() && said.uncounted == 0, "{said:?}");
    Ok(())
}

#[promise(Probes, test_all)]
fn tracepoints_that_cant_be_probed_are_refused_with_their_reason_and_a_next_step() -> Result<()> {
    if !requirement::ebpf("refused tracepoints")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.folded").display().to_string();
    for (spec, reason) in [
        ("tracepoint:sched:sched_switched", "this kernel has no tracepoint sched_switched, but "),
        ("tracepoint:sched:sched_switch,value=arg1", "arg1 is no number: its numbers are arg0"),
        ("tracepoint:sched:sched_switched,value=arg0", "the arguments of sched_switched are not known"),
    ] {
        let ended = sidewinder::run(&["record", "--probe", spec, "-o", &output, "--", "/bin/true"])?;
        ensure!(ended.status.code() == Some(125), "{spec}: {}: {}", ended.status, ended.log);
        ensure!(ended.log.contains(reason) && ended.log.contains("next: "), "{spec}: {}", ended.log);
    }
    let five = ["sched_switch", "sched_waking", "sched_wakeup", "sched_process_fork", "sched_process_exec"];
    let specs = five.map(|name| format!("tracepoint:sched:{name}"));
    let mut arguments = vec!["record", "-o", &output, "-a", "-d", "1s"];
    specs.iter().for_each(|spec| arguments.extend(["--probe", spec]));
    let ended = sidewinder::run(&arguments)?;
    ensure!(ended.status.code() == Some(2), "{}: {}", ended.status, ended.log);
    ensure!(ended.log.contains("5 tracepoints are more than the 4 of one recording"), "{}", ended.log);
    Ok(())
}
