//! Waits for locks: three convoys in programs that measure them themselves, by pthread, by Rust's std and by parking_lot.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Profiled, Settings, Switch, launch, profile_processes};
use sidewinder_e2e_support::workload::{CONVOYS, CONVOYS_GO, Convoy, Gated, convoys_in};
use sidewinder_otlp::decode::DecodedEvent;

/// The profiles of waits for locks.
const CONTENTIONS: &str = "contentions";
const DELAY: &str = "delay";
/// That of the threads that end them.
const WAKER_DELAY: &str = "waker_delay";
const COLOURS: [&str; 3] = ["wait_for_red", "wait_for_green", "wait_for_blue"];
/// The longest of the programs' runs, in seconds.
const SECONDS: u32 = 4;

/// As `record` does by default.
const SAMPLES_PER_SECOND: u32 = 97;

fn events_of<'a>(profiled: &'a Profiled, sample_type: &'a str) -> impl Iterator<Item = DecodedEvent<'a>> {
    profiled.received.events_of_type(sample_type)
}

fn is_in(event: &DecodedEvent<'_>, function: &str) -> bool {
    // Rust's names have the crate in front.
    let is_function = |name: &str| name.rsplit("::").next() == Some(function);
    event.sample.stack.iter().any(|frame| frame.function().is_some_and(is_function))
}

fn sum<'a>(events: impl Iterator<Item = DecodedEvent<'a>>) -> i64 {
    events.map(|event| event.value).sum()
}

fn lock_id<'a>(event: &DecodedEvent<'a>) -> Option<&'a str> {
    event.sample.attributes.get("sidewinder.lock.id").and_then(|value| value.as_str())
}

/// Checks that the waits in each function are those that the program has counted, up to a fraction of the largest, that each
/// has a lock of its own, and that there are no others.
fn ensure_convoys(profiled: &Profiled, most: f64) -> Result<()> {
    let convoys = convoys_in(&profiled.log)?;
    ensure!(convoys.len() == 3);
    let largest = |of: fn(&Convoy) -> i64| convoys.iter().map(of).max().unwrap_or(1) as f64;
    let (most_waits, most_ns) = (largest(|convoy| convoy.waits), largest(|convoy| convoy.waited_ns));
    let mut ids = BTreeSet::new();
    let mut delays = Vec::new();
    for convoy in &convoys {
        let of_function = |kind| events_of(profiled, kind).filter(|event| is_in(event, &convoy.function));
        let (waits, delay_ns) = (sum(of_function(CONTENTIONS)), sum(of_function(DELAY)));
        let waits_error = (waits - convoy.waits) as f64 / most_waits;
        let delay_error = (delay_ns - convoy.waited_ns) as f64 / most_ns;
        eprintln!("{convoy:?}: {waits} waits ({waits_error:+.4}), {delay_ns} ns ({delay_error:+.4})");
        ensure!(waits_error.abs() <= most, "{waits} waits of {convoy:?}");
        ensure!(delay_error.abs() <= most, "{delay_ns} ns of {convoy:?}");
        if convoy.waits == 0 {
            continue;
        }
        let mut of_lock: BTreeSet<_> =
            of_function(DELAY).chain(of_function(CONTENTIONS)).map(|event| lock_id(&event)).collect();
        let id = of_lock.pop_first().flatten().context("no lock")?;
        ensure!(of_lock.is_empty(), "{id} and {of_lock:?} in {}", convoy.function);
        ensure!(!id.contains(&*convoy.address), "{id} tells the address {}", convoy.address);
        ensure!(ids.insert(id), "{id} twice");
        delays.push((delay_ns, &convoy.function));
    }
    delays.sort_unstable();
    let order: Vec<_> = delays.into_iter().rev().map(|(_, function)| &**function).collect();
    // On a busy machine threads seldom meet at the locks that are held for a short time, or never.
    let expected = COLOURS.into_iter();
    ensure!(expected.take(order.len()).eq(order.iter().copied()) && !order.is_empty(), "{order:?}");
    // The stack of a wait that is found in progress may be gone before it is read, which its marker says.
    let elsewhere = |event: &DecodedEvent<'_>| {
        event.sample.outcome().is_none() && !convoys.iter().any(|convoy| is_in(event, &convoy.function))
    };
    let others = sum(events_of(profiled, DELAY).filter(elsewhere)) as f64 / most_ns;
    ensure!(others < 0.001, "{others} of the time in other functions");
    Ok(())
}

/// Checks that each lock's waits were ended where the program releases its locks, in `leave`, and that this took as long as
/// its waits.
fn ensure_wakers(profiled: &Profiled) -> Result<()> {
    let by_lock = |kind| {
        let mut by_lock = BTreeMap::<&str, i64>::new();
        for event in events_of(profiled, kind) {
            *by_lock.entry(lock_id(&event).unwrap_or_default()).or_default() += event.value;
        }
        by_lock
    };
    let (delays, woken) = (by_lock(DELAY), by_lock(WAKER_DELAY));
    let most_ns = delays.values().copied().max().unwrap_or(1) as f64;
    eprintln!(
        "{delays:?}, by waker {woken:?}; {:?}",
        profiled.counts.outcomes_of_other_kinds.get(WAKER_DELAY)
    );
    ensure!(delays.keys().eq(woken.keys()), "locks {delays:?}, but by waker {woken:?}");
    for (lock, delay_ns) in &delays {
        let error = (woken[lock] - delay_ns) as f64 / most_ns;
        ensure!(error.abs() < 0.03, "{lock}: {} ns by waker, and {delay_ns} ns", woken[lock]);
    }
    // The C library has locks of its own.
    let is_of_convoy = |event: &DecodedEvent<'_>| COLOURS.iter().any(|colour| is_in(event, colour));
    let of_convoys: BTreeSet<_> =
        events_of(profiled, DELAY).filter(is_of_convoy).filter_map(|event| lock_id(&event)).collect();
    let mut released = 0;
    for event in events_of(profiled, WAKER_DELAY) {
        if lock_id(&event).is_some_and(|id| of_convoys.contains(id)) && event.sample.outcome().is_none() {
            let innermost = event.sample.stack.first().and_then(|frame| frame.function());
            let names: Vec<_> = event.sample.stack.iter().filter_map(|frame| frame.function()).collect();
            ensure!(is_in(&event, "leave") && innermost == Some("try_to_wake_up"), "{names:?}");
            released += 1;
        }
    }
    ensure!(released > 0, "no lock was released");
    Ok(())
}

fn profile_locks(fraction: &'static str, program: &Command) -> Result<Profiled> {
    launch(Settings::at(SAMPLES_PER_SECOND).with(&[Switch::Locks(fraction)]), program, None)
}

fn rust_convoys(library: &str, seconds: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoys"));
    command.args([library, &seconds.to_string()]);
    command
}

#[promise(Locks, test_all)]
fn waits_for_mutexes_of_pthread_are_those_that_a_program_counts() -> Result<()> {
    if !requirement::ebpf("waits for locks")? {
        return Ok(());
    }
    for form in ["mutex", "pi"] {
        let settings = Settings::at(SAMPLES_PER_SECOND).with(&[Switch::Locks("1"), Switch::LockWakers]);
        let profiled = launch(settings, &CONVOYS.command(&[form, "4"])?, None)?;
        ensure_convoys(&profiled, 0.02).with_context(|| form.to_owned())?;
        ensure_wakers(&profiled).with_context(|| form.to_owned())?;
    }
    Ok(())
}

#[promise(Locks)]
fn waits_for_reader_writer_locks_of_pthread_have_their_time_by_function() -> Result<()> {
    if !requirement::ebpf("waits for reader-writer locks")? {
        return Ok(());
    }
    let profiled = profile_locks("1", &CONVOYS.command(&["rwlock", "4"])?)?;
    for convoy in convoys_in(&profiled.log)? {
        let delay_ns = sum(events_of(&profiled, DELAY).filter(|event| is_in(event, &convoy.function)));
        // A wait that the machine makes longer by a few milliseconds is much of the shortest convoy.
        let error = (delay_ns - convoy.waited_ns) as f64 / convoy.waited_ns.max(200_000_000) as f64;
        eprintln!("{convoy:?}: {delay_ns} ns ({error:+.4})");
        ensure!(error.abs() <= 0.05, "{delay_ns} ns of {convoy:?}");
    }
    Ok(())
}

#[promise(Locks, test_all)]
fn waits_for_mutexes_of_rust_are_those_that_a_program_counts() -> Result<()> {
    if !requirement::ebpf("waits for locks of Rust")? {
        return Ok(());
    }
    for library in ["std", "parking_lot"] {
        let profiled = profile_locks("1", &rust_convoys(library, SECONDS))?;
        ensure_convoys(&profiled, 0.02).with_context(|| library.to_owned())?;
    }
    Ok(())
}

/// A thread that waits since before the profile, and still does when it ends: its wait has all of the time, and no beginning.
#[promise(Locks, test_all)]
fn a_wait_for_a_lock_from_before_the_start_counts_from_the_start() -> Result<()> {
    if !requirement::ebpf("a wait for a lock in progress")? {
        return Ok(());
    }
    let mut program = Gated::start(CONVOYS.command(&["held", "60"])?)?;
    program.open()?;
    // The thread has begun to wait by then.
    thread::sleep(Duration::from_millis(500));
    let locks = Settings::at(SAMPLES_PER_SECOND).with(&[Switch::Locks("0.01")]);
    let profiled = profile_processes(locks, &[program.pid()], Duration::from_secs(2))?;
    let red: Vec<_> = events_of(&profiled, DELAY).filter(|event| is_in(event, "wait_for_red")).collect();
    let delay_ns: i64 = red.iter().map(|event| event.value).sum();
    eprintln!("{delay_ns} ns");
    // The list at the start and the one at the end take their time on a busy machine.
    ensure!((1_000_000_000..4_000_000_000).contains(&delay_ns), "{delay_ns} ns");
    ensure!(red.iter().all(|event| lock_id(event).is_some()), "a lock without its ID");
    ensure!(events_of(&profiled, CONTENTIONS).next().is_none(), "the wait did not begin in the profile");
    Ok(())
}

/// Of waits shorter than 17 ms on average a part is sampled, in proportion to their length: in each function of the program
/// some hundred of them. The standard error of a sum of that many is up to a tenth.
#[promise(Locks, test_all)]
fn a_sample_of_the_waits_has_the_same_sums() -> Result<()> {
    if !requirement::ebpf("a sample of waits for locks")? {
        return Ok(());
    }
    let profiled = profile_locks("0.05", &CONVOYS.command(&["mutex", "8"])?)?;
    let waits: i64 = convoys_in(&profiled.log)?.iter().map(|convoy| convoy.waits).sum();
    // Of all waits in futexes, those in conditions and semaphores included.
    let outcomes = &profiled.counts.outcomes_of_other_kinds[CONTENTIONS];
    let (samples, not_drawn) = (outcomes["complete"], outcomes["not_drawn"]);
    eprintln!("{waits} waits; {samples} samples, {not_drawn} waits not drawn");
    ensure!(samples > 100 && not_drawn > 1_000, "{samples} samples, {not_drawn} waits not drawn");
    ensure_convoys(&profiled, 0.35)
}

/// A goroutine that waits for a mutex leaves its thread to others, which then wait for work: in futexes that are no locks.
#[promise(GoMutexes)]
fn goroutines_that_wait_for_a_mutex_do_not_wait_in_a_futex() -> Result<()> {
    if !requirement::ebpf("locks of Go")? {
        return Ok(());
    }
    let settings = Settings::at(SAMPLES_PER_SECOND).with(&[Switch::Locks("1"), Switch::OffCpu("1")]);
    let profiled = launch(settings, &CONVOYS_GO.command(&["2"])?, None)?;
    let is_waiting = |event: &DecodedEvent<'_>| {
        event
            .sample
            .stack
            .iter()
            .any(|frame| frame.function().is_some_and(|name| name.starts_with("main.waitFor")))
    };
    ensure!(
        !events_of(&profiled, "off_cpu").any(|event| is_waiting(&event)),
        "a thread waits for a sync.Mutex"
    );
    let off_cpu_ns = sum(events_of(&profiled, "off_cpu"));
    let delay_ns = sum(events_of(&profiled, DELAY));
    eprintln!("{off_cpu_ns} ns off the CPUs, {delay_ns} ns for locks of the runtime");
    // The threads of the runtime wait in futexes for most of the time, and for its own locks for little of it.
    ensure!(off_cpu_ns > 1_000_000_000 && delay_ns < off_cpu_ns / 50, "{delay_ns} of {off_cpu_ns} ns");
    Ok(())
}
