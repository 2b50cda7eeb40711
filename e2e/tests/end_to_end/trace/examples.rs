//! The examples for people who instrument: what they say that they have handled is what their samples are linked to.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_instrumented::examples::{Example, Handled, build_c, build_go, build_rust};
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_otlp::decode::DecodedEvent;

use super::{LINKED_SHARE, SAMPLES_PER_SECOND, counted, events_once_known, route_of};

pub(super) const SECONDS: &str = "3";
/// The functions of an example, and the route of the span that it calls each in.
pub(super) type Functions = [(&'static str, Option<&'static str>)];
pub(super) const FUNCTIONS: &Functions =
    &[("cart", Some("/cart")), ("query", Some("/query")), ("outside", None)];

/// Profiles an example until its time is over.
pub(super) fn profile(command: &mut Command, reads_labels: bool) -> Result<(Handled, Received)> {
    let collector = Collector::start()?;
    let mut example = Example::start(command.arg(SECONDS))?;
    let settings = Settings {
        samples_per_second: SAMPLES_PER_SECOND,
        more: vec![format!("trace_context: {{ attributes: [http.route], custom_labels: {reads_labels} }}")],
        ..Settings::of_process(example.pid())
    };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    example.open()?;
    let handled = example.finish()?;
    let ended = daemon.stop()?;
    // Where nothing is to be read, as in a set of no labels, that is no failure.
    let counted = counted(&ended.log);
    ensure!(!counted.contains_key("thread_contexts_unreadable"), "{counted:?}: {}", ended.log);
    Ok((handled, collector.stop()?))
}

/// The ids of the span that an event is linked to, as examples print them.
fn ids_of(event: &DecodedEvent<'_>) -> Option<String> {
    let link = event.sample.link?;
    Some(format!("{} {}", hex::encode(link.trace_id), hex::encode(link.span_id)))
}

/// The function that a frame's name is of: `cart` in C and JavaScript, `main.cart` in Go, `program::cart` in Rust, `Spans.cart()`
/// in Java.
pub(super) fn function_of(name: &str, functions: &Functions) -> Option<(&'static str, Option<&'static str>)> {
    let without_types = name.split('(').next()?;
    let name = without_types.rsplit(['.', ':']).next()?;
    functions.iter().copied().find(|(function, _)| *function == name)
}

/// How a program says that it is in another span.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Labels {
    AtOnce,
    /// In the functions that set them, some are of the one span and some of the other.
    OneByOne,
}

/// Each linked event is of a span that was handled, of the route that the stack shows; nearly all events of functions that run
/// in spans are linked, and none of others is.
pub(super) fn judge(
    handled: &Handled,
    events: Vec<DecodedEvent<'_>>,
    functions: &Functions,
    labels: Labels,
) -> Result<()> {
    let mut counts: BTreeMap<_, [u64; 2]> = BTreeMap::new();
    for event in events {
        let names = event.sample.stack.iter().filter_map(|frame| frame.function());
        let shown = names.into_iter().find_map(|name| function_of(name, functions));
        let ids = ids_of(&event);
        if let Some(ids) = &ids {
            // What was not yet handled at the end was not printed either.
            let route = handled.get(ids);
            never(route.is_none(), "a span that was not handled", ids);
            let route = route.context("in no span")?;
            let is_between = labels == Labels::OneByOne && shown.is_none();
            ensure!(is_between || route_of(&event) == Some(route), "{:?} in {route}", route_of(&event));
            ensure!(shown.is_none_or(|(_, of)| of == Some(route)), "{route} in {shown:?}");
        }
        if let Some(shown) = shown {
            counts.entry(shown).or_default()[usize::from(ids.is_some())] += 1;
        }
    }
    eprintln!("{} spans; events without and with a link: {counts:?}", handled.len());
    for (shown @ (function, route), [unlinked, linked]) in &counts {
        let seen = unlinked + linked;
        ensure!(seen > 10, "only {seen} of {function}");
        match route {
            Some(_) => ensure!(*linked as f64 >= LINKED_SHARE * seen as f64, "{shown:?}: {linked} of {seen}"),
            None => ensure!(*linked == 0, "{linked} of {function} are linked"),
        }
    }
    ensure!(counts.len() == functions.len(), "{counts:?}");
    Ok(())
}

pub(super) fn name_of_service(received: &Received) -> Option<String> {
    let last = received.events().max_by_key(|event| event.time_unix_ns)?;
    Some(last.profile.resource.get("service.name")?.as_str()?.to_owned())
}

#[promise(TraceExamples)]
fn an_example_in_c() -> Result<()> {
    if !requirement::ebpf("spans of a program in C")? {
        return Ok(());
    }
    let (handled, received) = profile(&mut Command::new(build_c()?), false)?;
    judge(&handled, events_once_known(&received)?, FUNCTIONS, Labels::AtOnce)?;
    assert_eq!(name_of_service(&received).as_deref(), Some("spans-in-c"));
    Ok(())
}

#[promise(ThreadContext)]
fn an_example_in_go() -> Result<()> {
    if !requirement::ebpf("spans of a program in Go")? {
        return Ok(());
    }
    let (handled, received) = profile(&mut Command::new(build_go()?), false)?;
    judge(&handled, events_once_known(&received)?, FUNCTIONS, Labels::AtOnce)?;
    assert_eq!(name_of_service(&received).as_deref(), Some("spans-in-go"));
    Ok(())
}

/// The published writer of the ABI is at work; without the option nobody reads it.
#[promise(CustomLabels, test_all)]
fn an_example_with_custom_labels() -> Result<()> {
    if !requirement::ebpf("spans by custom-labels")? {
        return Ok(());
    }
    let program = build_rust("examples/custom_labels", "sidewinder-example-labels")?;
    let (handled, received) = profile(&mut Command::new(&program), true)?;
    judge(&handled, events_once_known(&received)?, FUNCTIONS, Labels::OneByOne)?;
    let (_, received) = profile(&mut Command::new(&program), false)?;
    ensure!(received.events().count() > 30, "too few events");
    ensure!(received.events().all(|event| event.sample.link.is_none()), "an event is linked");
    Ok(())
}
