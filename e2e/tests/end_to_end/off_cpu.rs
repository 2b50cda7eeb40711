//! Off-CPU time: the waits of a program that measures them itself, and the scheduler's accounts of its threads.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::counts::{MissingWaits, WaitsInProgress};
use sidewinder_e2e_support::form::Form;
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Daemon, Profiled, Settings, Switch, launch, profile_processes};
use sidewinder_e2e_support::workload::{self, waiting_threads_in};
use sidewinder_otlp::decode::DecodedEvent;

/// As `record` does by default.
const SAMPLES_PER_SECOND: u32 = 97;

fn off_cpu_events(profiled: &Profiled) -> impl Iterator<Item = DecodedEvent<'_>> {
    profiled.received.events_of_type("off_cpu")
}

/// The time that was profiled, in nanoseconds.
fn duration_ns(profiled: &Profiled) -> Result<i64> {
    let period = profiled.received.period_unix_ns().context("no profile")?;
    Ok(i64::try_from(period.end - period.start)?)
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

#[promise(OffCpu)]
fn off_cpu_time_is_what_a_program_measures_itself_in_each_function_and_thread() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let profiled = launch(
        Settings::at(SAMPLES_PER_SECOND).with(&[Switch::OffCpu("1")]),
        &workload::WAITS.command(&[6])?,
        None,
    )?;
    let threads = waiting_threads_in(&profiled.log)?;
    let total: i64 = threads.iter().map(|thread| thread.waited_ns).sum();
    let complete = off_cpu_events(&profiled).filter(|event| event.sample.outcome().is_none()).count() as u64;
    // A wait has an event when it ends, and one for each time that it was charged before.
    let WaitsInProgress { found, events: so_far, .. } = profiled.counts.waits_in_progress;
    // Nor does one that is found have an outcome: its stack is read otherwise.
    assert_eq!(profiled.counts.outcomes_of_other_kinds["off_cpu"]["complete"], complete - so_far - found);
    // The service begins while the program waits at its gate.
    let at_gate = u64::from(Form::of_this_run()? == Form::Service);
    assert!(found <= at_gate, "all waits are sampled when they begin: {found} were found");
    assert!(so_far >= 4, "the thread that waits until the end is charged each second");
    assert_eq!(profiled.counts.missing_waits, MissingWaits { end_lost: 0, without_end: 0 });
    for thread in &threads {
        let (in_function, count) =
            sum(off_cpu_events(&profiled).filter(|event| is_in(event, &thread.function)));
        let error = share(in_function - thread.waited_ns, total);
        // All of the thread's waits, those outside of the function included: on-CPU + runnable + off-CPU = wall.
        let (of_thread, _) =
            sum(off_cpu_events(&profiled).filter(|event| event.sample.thread_id() == Some(thread.tid)));
        let missing = thread.wall_ns - thread.on_cpu_ns - thread.runnable_ns - of_thread;
        let unaccounted = share(missing, thread.wall_ns);
        eprintln!(
            "{thread:?}: {in_function} ns in {count} samples, error {error:.4}, unaccounted {unaccounted:.4}"
        );
        assert!(error.abs() < 0.01, "{}: {in_function} ns of {} ns", thread.function, thread.waited_ns);
        assert!(unaccounted.abs() < 0.005, "{}: {missing} ns of {} ns", thread.function, thread.wall_ns);
        let cause = expected_cause(&thread.function);
        let others = off_cpu_events(&profiled).filter(|event| is_in(event, &thread.function));
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

/// In twenty seconds some 38,000 waits of 0.1 ms to 9 ms in four functions, each in a thread of its own. At 0.01 an eighth of them
/// is sampled, since waits of some milliseconds are sampled more often than that. The sums follow the accounts of the threads, so
/// their error is that of the few samples that are made up for later.
#[promise(OffCpu, test_all)]
fn a_sample_of_the_waits_has_the_same_sums() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let settings = Settings::at(SAMPLES_PER_SECOND).with(&[Switch::OffCpu("0.01")]);
    let profiled = launch(settings, &workload::WAITS.command(&[20, THREADS_THAT_WAIT])?, None)?;
    let threads = waiting_threads_in(&profiled.log)?;
    let (mut sampled, mut waited, mut waits, mut samples) = (0, 0, 0, 0);
    for thread in &threads {
        let (in_function, count) =
            sum(off_cpu_events(&profiled).filter(|event| is_in(event, &thread.function)));
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

#[promise(OffCpu, test_all)]
fn a_thread_that_still_waits_at_the_end_is_charged_up_to_it() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let mut sleep = Command::new("sleep");
    sleep.arg("60");
    let profiled = launch(
        Settings::at(SAMPLES_PER_SECOND).with(&[Switch::OffCpu("1")]),
        &sleep,
        Some(Duration::from_secs(3)),
    )?;
    let duration_ns = duration_ns(&profiled)?;
    let (in_sleep, _) = sum(off_cpu_events(&profiled).filter(|event| is_in(event, "clock_nanosleep")));
    let off_cpu = share(in_sleep, duration_ns);
    assert!((0.6..=1.0).contains(&off_cpu), "{in_sleep} ns of {duration_ns} ns");
    Ok(())
}

/// Threads that never wake up, and those that wait for a few milliseconds: their stacks are those that the threads have
/// had since before the start, and their time is that of the profile.
#[promise(OffCpu, test_all)]
fn threads_that_wait_since_before_the_start_are_charged_for_all_of_it() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let load = Load::start(workload::WAITS.command(&[40])?)?;
    thread::sleep(Duration::from_secs(1));
    let off_cpu = Settings::at(SAMPLES_PER_SECOND).with(&[Switch::OffCpu("0.01")]);
    let profiled = profile_processes(off_cpu, &[load.pid()], Duration::from_secs(4))?;
    let duration_ns = duration_ns(&profiled)?;
    for (function, cause) in [("wait_until_the_end", "sleep"), ("main", "futex")] {
        let of_function = || off_cpu_events(&profiled).filter(|event| is_in(event, function));
        let (waited_ns, count) = sum(of_function());
        let part = share(waited_ns, duration_ns);
        eprintln!("{function}: {part:.4} of the time in {count} events");
        assert!((0.98..=1.001).contains(&part), "{function}: {waited_ns} ns of {duration_ns} ns");
        assert!(count >= 4, "{count} events, at least one each second");
        for event in of_function() {
            assert_eq!(event.sample.outcome(), None, "its stack is complete: {:?}", event.sample);
            assert_eq!(wait_of(&event), (Some("sleeping"), Some(cause)));
            assert!(is_in(&event, "do_syscall_64"), "it has kernel frames: {:?}", event.sample.stack);
        }
    }
    let in_progress = profiled.counts.waits_in_progress;
    assert!(in_progress.found >= 2 && in_progress.lists_failed == 0, "{in_progress:?}");
    Ok(())
}

/// A receiver that reports each second: the thread is in each of its reports, with a second in each.
#[promise(OffCpu, test_all)]
fn a_thread_that_waits_for_long_is_in_each_report() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let load = Load::start(workload::WAITS.command(&[40])?)?;
    let collector = Collector::start()?;
    let settings = Settings::at(SAMPLES_PER_SECOND).with(&[Switch::OffCpu("0.01")]).of(&[load.pid()]);
    let profiler = Daemon::start(&settings, &collector.grpc_endpoint())?;
    thread::sleep(Duration::from_secs(6));
    profiler.stop()?;
    let received = collector.stop()?;
    let events = received.events_of_type("off_cpu");
    let events = events.filter(|event| is_in(event, "wait_until_the_end")).map(|event| event.value);
    let seconds: Vec<_> = events.map(|value| value as f64 / 1e9).collect();
    eprintln!("{seconds:.3?}");
    assert!(seconds.len() >= 4, "{seconds:?}");
    assert!(seconds.iter().all(|seconds| *seconds < 2.0), "no time is charged twice or late: {seconds:?}");
    Ok(())
}

#[promise(OffCpu)]
fn without_the_option_nothing_waits_in_a_profile() -> Result<()> {
    if !requirement::ebpf("off-CPU time")? {
        return Ok(());
    }
    let profiled = launch(Settings::at(SAMPLES_PER_SECOND).with(&[]), &workload::WAITS.command(&[1])?, None)?;
    assert_eq!(off_cpu_events(&profiled).count(), 0);
    assert!(profiled.received.events().count() > 0);
    Ok(())
}

#[promise(OffCpu, test_all)]
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
    let on_cpu = |cpu| {
        launch(
            Settings::at(SAMPLES_PER_SECOND).with(&[Switch::OffCpu("0.01"), Switch::Cpu(cpu)]),
            &on_one_cpu,
            None,
        )
    };
    let waits = off_cpu_events(&on_cpu("0")?).filter(|event| is_in(event, "main")).count();
    ensure!(waits > 100, "{waits} waits on the CPU");
    match on_cpu("1") {
        // Before it is moved to the first CPU, the program may have waited on the other one: at its gate, or to begin.
        Ok(elsewhere) => ensure!(
            !elsewhere.received.events().any(|event| is_in(&event, "main")),
            "waits of another CPU: {}",
            elsewhere.log
        ),
        // The exit code is the program's, and nothing is written.
        Err(error) => ensure!(format!("{error:#}").contains("out.otlp: No such file"), "{error:#}"),
    }
    Ok(())
}
