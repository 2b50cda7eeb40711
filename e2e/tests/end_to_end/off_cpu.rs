//! Off-CPU time: the waits of a program that measures them itself, and the scheduler's accounts of its threads.

use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::recording::{Recording, record, record_running};
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::sidewinder;
use sidewinder_e2e_support::workload::{self, waiting_threads_in};
use sidewinder_otlp::decode::DecodedEvent;

fn off_cpu_events(recording: &Recording) -> impl Iterator<Item = DecodedEvent<'_>> {
    recording.received.events().filter(|event| &*event.profile.sample_type == "off_cpu")
}

/// The sum of the values of some events, in nanoseconds, and their number.
fn sum<'a>(events: impl Iterator<Item = DecodedEvent<'a>>) -> (i64, u64) {
    events.fold((0, 0), |(sum, count), event| (sum + event.value, count + 1))
}

fn is_in(event: &DecodedEvent<'_>, function: &str) -> bool {
    event.sample.stack.iter().any(|frame| frame.function() == Some(function))
}

/// The state of the thread, and the kind of system call in which it waited.
fn wait_of<'a>(event: &DecodedEvent<'a>) -> (Option<&'a str>, Option<&'a str>) {
    let text = |key| event.sample.attributes.get(key).and_then(|value| value.as_str());
    (text("sidewinder.wait.state"), text("sidewinder.wait.cause"))
}

fn expected_cause(function: &str) -> Option<&'static str> {
    match function {
        "wait_in_nanosleep" | "wait_until_the_end" => Some("sleep"),
        "wait_in_futex" => Some("futex"),
        "wait_in_poll" => Some("poll"),
        "wait_in_read" => Some("read"),
        _ => None,
    }
}

fn share(part: i64, whole: i64) -> f64 {
    part as f64 / whole as f64
}

#[test]
fn off_cpu_time_is_what_a_program_measures_itself_in_each_function_and_thread() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let recorded = record(&["--off-cpu=1"], &workload::WAITS.command(&[6])?)?;
    let threads = waiting_threads_in(&recorded.log)?;
    let total: i64 = threads.iter().map(|thread| thread.waited_ns).sum();
    let complete = off_cpu_events(&recorded).filter(|event| event.sample.outcome().is_none()).count() as u64;
    // A wait has an event when it ends, and one for each time that it was charged before.
    let in_progress = &recorded.said.off_cpu_waits_in_progress;
    let (so_far, found) = (in_progress["events"], in_progress["found"]);
    assert_eq!(recorded.said.outcomes_of_other_kinds["off_cpu"]["complete"], complete - so_far);
    assert_eq!(found, 0, "all waits are sampled when they begin");
    assert!(so_far >= 4, "the thread that waits until the end is charged each second");
    let missing = &recorded.said.off_cpu_waits_missing;
    assert_eq!((missing["end_lost"], missing["without_end"]), (0, 0));
    for thread in &threads {
        let (in_function, count) =
            sum(off_cpu_events(&recorded).filter(|event| is_in(event, &thread.function)));
        let error = share(in_function - thread.waited_ns, total);
        // All of the thread's waits, those outside of the function included: on-CPU + runnable + off-CPU = wall.
        let (of_thread, _) =
            sum(off_cpu_events(&recorded).filter(|event| event.sample.thread_id() == Some(thread.tid)));
        let missing = thread.wall_ns - thread.on_cpu_ns - thread.runnable_ns - of_thread;
        let unaccounted = share(missing, thread.wall_ns);
        eprintln!(
            "{thread:?}: {in_function} ns in {count} samples, error {error:.4}, unaccounted {unaccounted:.4}"
        );
        assert!(error.abs() < 0.01, "{}: {in_function} ns of {} ns", thread.function, thread.waited_ns);
        assert!(unaccounted.abs() < 0.005, "{}: {missing} ns of {} ns", thread.function, thread.wall_ns);
        let cause = expected_cause(&thread.function);
        let others = off_cpu_events(&recorded).filter(|event| is_in(event, &thread.function));
        let others = others.filter(|event| cause.is_some() && wait_of(event) != (Some("sleeping"), cause));
        assert_eq!(others.count(), 0, "{}: another reason than {cause:?}", thread.function);
        // A read may find that its byte has already been written.
        let waited = thread.waits - thread.waits / 20;
        assert!(thread.function == "compute" || count >= waited, "{count} samples of {thread:?}");
    }
    Ok(())
}

/// All threads of the workload but for the one that computes.
const THREADS_THAT_WAIT: u32 = 5;

/// In twenty seconds some 38,000 waits of 0.1 ms to 9 ms in four functions, each in a thread of its own. At 0.1 about a sixth of
/// them is sampled, at 0.01 an eighth, since waits of some milliseconds are sampled more often than that. The sums follow the
/// accounts of the threads, so their error is that of the few samples that are made up for later.
#[test]
fn a_sample_of_the_waits_has_the_same_sums() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    for threshold in ["--off-cpu=0.1", "--off-cpu=0.01"] {
        compare_sampled_sums(&record(&[threshold], &workload::WAITS.command(&[20, THREADS_THAT_WAIT])?)?)?;
    }
    Ok(())
}

fn compare_sampled_sums(recorded: &Recording) -> Result<()> {
    let threads = waiting_threads_in(&recorded.log)?;
    let (mut sampled, mut waited, mut waits, mut samples) = (0, 0, 0, 0);
    for thread in &threads {
        let (in_function, count) =
            sum(off_cpu_events(recorded).filter(|event| is_in(event, &thread.function)));
        eprintln!("{thread:?}: {in_function} ns in {count} samples");
        let error = share(in_function - thread.waited_ns, thread.waited_ns);
        assert!(error.abs() < 0.03, "{}: {in_function} ns of {} ns", thread.function, thread.waited_ns);
        (sampled, waited) = (sampled + in_function, waited + thread.waited_ns);
        (waits, samples) = (waits + thread.waits, samples + count);
    }
    assert!(samples * 2 < waits && samples > 150, "{samples} samples of {waits} waits");
    let error = share(sampled - waited, waited);
    eprintln!("{samples} samples of {waits} waits: error of the sum {error:.4}");
    assert!(error.abs() < 0.01, "{sampled} ns of {waited} ns");
    Ok(())
}

#[test]
fn a_thread_that_still_waits_at_the_end_is_charged_up_to_it() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let mut sleep = Command::new("sleep");
    sleep.arg("60");
    let recorded = record(&["--off-cpu=1", "-d", "3s"], &sleep)?;
    let profiles = recorded.received.profiles.iter().filter(|profile| &*profile.sample_type == "off_cpu");
    let duration_ns = profiles.map(|profile| profile.duration_ns).max().context("no off-CPU profile")?;
    let (in_sleep, _) = sum(off_cpu_events(&recorded).filter(|event| is_in(event, "clock_nanosleep")));
    let off_cpu = share(in_sleep, i64::try_from(duration_ns)?);
    assert!((0.6..=1.0).contains(&off_cpu), "{in_sleep} ns of {duration_ns} ns");
    Ok(())
}

/// Threads that never wake up, and those that wait for a few milliseconds: their stacks are those that the threads have
/// had since before the start, and their time is that of the recording.
#[test]
fn threads_that_wait_since_before_the_start_are_charged_for_the_whole_recording() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let load = Load::start(workload::WAITS.command(&[40])?)?;
    thread::sleep(std::time::Duration::from_secs(1));
    let recorded = record_running(&["--off-cpu", "-d", "4s"], &[load.pid()])?;
    let profiles = recorded.received.profiles.iter().filter(|profile| &*profile.sample_type == "off_cpu");
    let duration_ns = profiles.map(|profile| profile.duration_ns).max().context("no off-CPU profile")?;
    for (function, cause) in [("wait_until_the_end", "sleep"), ("main", "futex")] {
        let of_function = || off_cpu_events(&recorded).filter(|event| is_in(event, function));
        let (waited_ns, count) = sum(of_function());
        let part = share(waited_ns, i64::try_from(duration_ns)?);
        eprintln!("{function}: {part:.4} of the recording in {count} events");
        assert!((0.98..=1.001).contains(&part), "{function}: {waited_ns} ns of {duration_ns} ns");
        assert!(count >= 4, "{count} events, at least one each second");
        for event in of_function() {
            assert_eq!(event.sample.outcome(), None, "its stack is complete: {:?}", event.sample);
            assert_eq!(wait_of(&event), (Some("sleeping"), Some(cause)));
            assert!(is_in(&event, "do_syscall_64"), "it has kernel frames: {:?}", event.sample.stack);
        }
    }
    let in_progress = &recorded.said.off_cpu_waits_in_progress;
    assert!(in_progress["found"] >= 2 && in_progress["lists_failed"] == 0, "{in_progress:?}");
    Ok(())
}

/// A receiver that reports each second: the thread is in each of its reports, with a second in each.
#[test]
fn a_thread_that_waits_for_long_is_in_each_report() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let load = Load::start(workload::WAITS.command(&[40])?)?;
    let collector = Collector::start()?;
    let settings =
        Settings { more: vec!["off_cpu_threshold: 0.01".to_owned()], ..Settings::of_process(load.pid()) };
    let profiler = Daemon::start(&settings, &collector.grpc_endpoint())?;
    thread::sleep(std::time::Duration::from_secs(6));
    profiler.stop()?;
    let received = collector.stop()?;
    let events = received.events().filter(|event| &*event.profile.sample_type == "off_cpu");
    let events = events.filter(|event| is_in(event, "wait_until_the_end")).map(|event| event.value);
    let seconds: Vec<_> = events.map(|value| value as f64 / 1e9).collect();
    eprintln!("{seconds:.3?}");
    assert!(seconds.len() >= 4, "{seconds:?}");
    assert!(seconds.iter().all(|seconds| *seconds < 2.0), "no time is charged twice or late: {seconds:?}");
    Ok(())
}

#[test]
fn without_the_option_nothing_waits_in_a_profile() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let recorded = record(&[], &workload::WAITS.command(&[1])?)?;
    assert_eq!(off_cpu_events(&recorded).count(), 0);
    assert!(recorded.received.events().count() > 0);
    Ok(())
}

#[test]
fn waits_that_begin_on_other_cpus_are_left_out() -> Result<()> {
    const TEST: &str = "waits on some CPUs";
    if !requirement::ebpf(TEST)? || !requirement::program(TEST, "taskset")? {
        return Ok(());
    }
    if thread::available_parallelism()?.get() < 2 {
        return requirement::absent(TEST, "there is one CPU");
    }
    let pingpong = workload::PINGPONG.command(&[1])?;
    let mut on_one_cpu = Command::new("taskset");
    on_one_cpu.args(["-c", "0"]).arg(pingpong.get_program()).args(pingpong.get_args());
    let here = record(&["--off-cpu", "-C", "0"], &on_one_cpu)?;
    let waits = off_cpu_events(&here).filter(|event| is_in(event, "main")).count();
    ensure!(waits > 100, "{waits} waits on the CPU");

    let folder = tempfile::tempdir()?;
    let mut elsewhere = sidewinder::command()?;
    elsewhere.args(["record", "--off-cpu", "-C", "1", "-o"]).arg(folder.path().join("out.otlp")).arg("--");
    let elsewhere = elsewhere.arg("taskset").args(on_one_cpu.get_args()).output()?;
    let log = String::from_utf8_lossy(&elsewhere.stderr);
    ensure!(log.contains("no event was recorded"), "{}: {log}", elsewhere.status);
    Ok(())
}
