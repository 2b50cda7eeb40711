//! Each sample tells the span that its thread was in: a real service of spans, a real Collector, and the service's own log
//! for the truth.
//!
//! - [`backends`]: spans and profiles of the service arrive as of one, by the documented configurations.
//! - [`examples`]: programs in C and Go, and one with labels, link their samples as they say.
//! - [`libraries`]: the example in C with every C library, in the program and in libraries.
//! - [`recorded`]: `record --span` and `--trace` keep what ran inside.
//! - [`runtimes`]: programs in Java and JavaScript do as those of [`examples`].
//! - [`users`]: programs of other users are read without `CAP_SYS_PTRACE`.

mod backends;
mod documentation;
mod examples;
mod libraries;
mod recorded;
mod runtimes;
mod users;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_instrumented::service::{Service, Switches};
use sidewinder_e2e_instrumented::spans::{Stays, Truth};
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::{log, requirement};
use sidewinder_otlp::decode::DecodedEvent;

const SAMPLES_PER_SECOND: u32 = 997;
/// The functions of the service, and the last byte of the bare spans that they run in; 0: they run in none.
const FUNCTIONS: [(&str, u8); 5] = [("cart", 1), ("search", 2), ("checkout", 3), ("query", 7), (OUTSIDE, 0)];
const OUTSIDE: &str = "admit";
/// Of the events within a span, so many are linked to it.
const LINKED_SHARE: f64 = 0.999;
/// From the first event of a process until its spans are known: a fifth of it, on a machine that is not busy.
const KNOWN_WITHIN_NS: u64 = 3_000_000_000;
/// Threads of the service that are to handle requests where there are many of them.
const THREADS: usize = 64;
/// How many there are then, for one or another may only ever wait for the network; and connections.
const WORKERS: u32 = 72;
/// Of the spans of tasks that wait, so many go on on another thread.
const MOVED_SHARE: f64 = 0.05;
/// The least number of spans that the service is to begin in a second.
const SPANS_PER_SECOND: f64 = 1_000.0;
/// What entering and leaving a span takes at most that the log counts as another's.
const SPAN_COST_NS: u64 = 3_000;

/// Profiles a process while something is done; the log of the profiler is the last.
fn profile<T>(pid: u32, run: impl FnOnce() -> Result<T>) -> Result<(T, Received, String)> {
    let collector = Collector::start()?;
    let settings = Settings {
        samples_per_second: SAMPLES_PER_SECOND,
        more: vec!["trace_context: { attributes: [http.route] }".to_owned()],
        ..Settings::of_process(pid)
    };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    let done = run()?;
    let ended = daemon.stop()?;
    Ok((done, collector.stop()?, ended.log))
}

/// Profiles the service while it answers so many connections, for so many seconds.
fn profile_service(service: Service, connections: u32, seconds: u64) -> Result<(Stays, Received, String)> {
    profile(service.pid(), || {
        service.ask(connections, Duration::from_secs(seconds))?;
        service.finish()
    })
}

/// What the profiler counted of its readings.
fn counted(log: &str) -> BTreeMap<String, u64> {
    let last = log::entries(log).rfind(|entry| entry.counts("counters").is_some());
    let counters = last.as_ref().and_then(|entry| entry.counts("counters")).unwrap_or_default();
    let readings = counters.into_iter().filter(|(name, _)| name.starts_with("thread_contexts_"));
    readings.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// The function of the service that an event's stack shows, if it shows one.
fn function_of(event: &DecodedEvent<'_>) -> Option<(&'static str, u8)> {
    let names = event.sample.stack.iter().filter_map(|frame| frame.function());
    let of_name =
        |name: &str| FUNCTIONS.into_iter().find(|(function, _)| name.ends_with(&format!("::{function}")));
    names.into_iter().find_map(of_name)
}

/// What an event says was asked for.
fn route_of<'event>(event: &DecodedEvent<'event>) -> Option<&'event str> {
    event.sample.attributes.get("http.route").and_then(|value| value.as_str())
}

/// The events from when the process's spans were known, which they soon are.
fn events_once_known(received: &Received) -> Result<Vec<DecodedEvent<'_>>> {
    let events = events_from_first_link(received)?;
    let first_ns = received.events().map(|event| event.time_unix_ns).min().context("no event")?;
    let after_ns = events.first().map_or(0, |event| event.time_unix_ns - first_ns);
    ensure!(after_ns < KNOWN_WITHIN_NS, "the first linked event comes {after_ns} ns after the first");
    Ok(events)
}

/// The events from the first that is linked on.
fn events_from_first_link(received: &Received) -> Result<Vec<DecodedEvent<'_>>> {
    let mut events: Vec<_> = received.events().collect();
    events.sort_by_key(|event| event.time_unix_ns);
    let known = events.iter().position(|event| event.sample.link.is_some()).context("no event is linked")?;
    Ok(events.split_off(known))
}

/// Each linked event is of a thread in that span, and names the route that the stack shows; nearly all within spans are
/// linked; none outside of them is. By the log up to the clocks' precision; where there is none, by the functions.
fn judge(events: &[DecodedEvent<'_>], stays: Option<&Stays>) -> Result<()> {
    let (mut inside, mut linked, mut outside) = (0_u64, 0_u64, 0_u64);
    for event in events {
        let thread = event.sample.thread_id().context("an event without a thread")?;
        let span = event.sample.link.map(|link| link.span_id);
        let truth = stays.map(|stays| stays.at(thread, event.time_unix_ns));
        let shown = function_of(event);
        if let (Some(span), Some(stays)) = (span, stays) {
            let stay = stays.of(thread, event.time_unix_ns, span);
            let details = format_args!("{thread} was not in {span:02x?}: {truth:?}");
            never(stay.is_none(), "a span of others", details);
            let stay = stay.context("in no span")?;
            ensure!(route_of(event) == Some(&stay.route), "{:?} in {stay:?}", route_of(event));
        }
        if let (Some(span), Some((function, byte))) = (span, shown) {
            ensure!(stays.is_some() || span[7] == byte, "{span:02x?} in {function}");
            ensure!(route_of(event) == Some(&format!("/{function}")), "{:?} in {function}", route_of(event));
        }
        match (truth, shown) {
            (Some(Truth::Span(inner)), _) => {
                inside += 1;
                linked += u64::from(span == Some(inner));
            }
            (Some(Truth::Nothing), _) | (None, Some((OUTSIDE, _))) => {
                outside += 1;
                ensure!(span.is_none(), "{span:02x?} outside of all spans");
            }
            (None, Some((_, byte))) => {
                inside += 1;
                linked += u64::from(span.is_some_and(|span| span[7] == byte));
            }
            _ => {}
        }
    }
    let share = linked as f64 / inside as f64;
    eprintln!(
        "{} events, {inside} within a span, {linked} linked to it ({share:.5}), {outside} outside",
        events.len()
    );
    ensure!(inside > 100 && outside > 10, "too few to judge by");
    ensure!(share >= LINKED_SHARE, "{linked} of {inside} are linked");
    Ok(())
}

#[promise(ThreadContext)]
fn sixty_four_threads_and_a_thousand_spans_a_second() -> Result<()> {
    if !requirement::ebpf("spans of threads")? {
        return Ok(());
    }
    let (stays, received, log) = profile_service(Service::start(WORKERS, 400)?, WORKERS, 8)?;
    let (spans, threads) = (stays.spans(), stays.threads());
    let a_second = spans as f64 / stays.lasted().as_secs_f64();
    eprintln!("{spans} spans on {threads} threads, {a_second:.0} a second; {:?}", counted(&log));
    ensure!(threads >= THREADS, "spans on {threads} threads");
    ensure!(a_second >= SPANS_PER_SECOND, "only {a_second:.0} spans a second");
    let events = events_once_known(&received)?;
    judge(&events, Some(&stays))?;

    let resource = &events.last().context("no event")?.profile.resource;
    for (key, value) in
        [("service.name", "example"), ("service.version", "1.2.3"), ("service.instance.id", "one")]
    {
        ensure!(resource.get(key).and_then(|value| value.as_str()) == Some(value), "{key}: {resource:?}");
    }
    // One event for each period of CPU time, give or take what random sampling gives or takes (four standard deviations),
    // and what was not yet sampled.
    let mut counts: HashMap<&str, u64> = HashMap::new();
    for event in received.events().filter(|event| event.sample.link.is_some()) {
        *counts.entry(route_of(&event).context("a span without a route")?).or_default() += 1;
    }
    let events_in = |cpu_ns: u64| cpu_ns as f64 * f64::from(SAMPLES_PER_SECOND) / 1e9;
    for (route, spent) in stays.spent_by_route() {
        let expected = events_in(spent.cpu_ns);
        let found = counts.get(route).copied().unwrap_or_default() as f64;
        eprintln!("spans of {route}: {found} events, {expected:.0} by the thread's CPU clock");
        let cost = events_in(spent.entries * SPAN_COST_NS);
        ensure!(
            (found - expected).abs() <= 4.0 * expected.sqrt() + 0.02 * expected + cost,
            "spans of {route}: {found}"
        );
    }
    Ok(())
}

#[promise(ThreadContext, test_all)]
fn tasks_that_move_between_threads() -> Result<()> {
    if !requirement::ebpf("spans of tasks")? {
        return Ok(());
    }
    let (stays, received, _) = profile_service(Service::start(8, 500)?, 32, 6)?;
    let (spans, moved) = (stays.spans(), stays.moved());
    eprintln!("{moved} of {spans} spans went on on another thread");
    ensure!(moved as f64 >= MOVED_SHARE * spans as f64, "only {moved} of {spans} spans moved");
    judge(&events_once_known(&received)?, Some(&stays))
}

/// The log would cost more than the spans: the functions alone tell the truth, which they do of every event.
#[promise(ThreadContext, test_all)]
fn a_span_every_ten_microseconds() -> Result<()> {
    if !requirement::ebpf("short spans")? {
        return Ok(());
    }
    let switches = Switches::start(5, 8, 10)?;
    let ((), received, log) = profile(switches.pid(), || switches.run())?;
    eprintln!("{:?}", counted(&log));
    judge(&events_once_known(&received)?, None)
}

/// Where it is switched off nothing of it is read.
#[promise(ThreadContext, test_all)]
fn no_event_is_linked_where_it_is_switched_off() -> Result<()> {
    if !requirement::ebpf("trace context switched off")? {
        return Ok(());
    }
    let service = Service::start(4, 500)?;
    let collector = Collector::start()?;
    let settings = Settings {
        more: vec!["trace_context: { enabled: false }".to_owned()],
        ..Settings::of_process(service.pid())
    };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    service.ask(4, Duration::from_secs(2))?;
    daemon.stop()?;
    let received = collector.stop()?;
    ensure!(received.events().count() > 30, "too few events");
    ensure!(received.events().all(|event| event.sample.link.is_none()), "an event is linked");
    ensure!(
        received.events().all(|event| event.profile.resource.get("service.version").is_none()),
        "a resource"
    );
    Ok(())
}
