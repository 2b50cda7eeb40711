//! Spans that an example publishes, in thread-local storage or, in Go, as labels of goroutines, and those that a recording in a
//! guest links its samples to.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sidewinder_e2e_support::received::Received;
use sidewinder_otlp::decode::DecodedEvent;

use crate::guest::Told;

/// The functions of the examples (of the package `main` in Go), and the route of the span that each is called in.
const FUNCTIONS: [(&str, Option<&str>); 3] =
    [("cart", Some("/cart")), ("query", Some("/query")), ("outside", None)];
/// Of the events within a span, so many are linked to it.
const LINKED_SHARE: f64 = 0.999;
/// The least number of events within spans, and outside.
const LEAST: u64 = 50;

/// Events, from the first that is linked on: before, the process's variable is not yet known.
#[derive(Default)]
pub(crate) struct Spans {
    inside: u64,
    linked: u64,
    outside: u64,
    /// Linked to another span than the function's, or to one that was never there, or linked outside of spans.
    wrong: u64,
}

impl Spans {
    /// Of the recording with this name.
    pub(crate) fn read(told: &Told, name: &str) -> Result<Self> {
        let section = |what: &str| told.section(&format!("{name}.{what}"));
        let said = section("said")?;
        let handled: HashMap<&str, &str> =
            said.lines().filter_map(|line| line.trim().rsplit_once(' ')).collect();
        let file: String = section("otlp")?.split_whitespace().collect();
        let log = || section("log").unwrap_or_default().to_owned();
        let file = STANDARD.decode(file).with_context(log)?;
        let received = Received::from_requests([file]).with_context(log)?;
        let mut events: Vec<_> = received.events().collect();
        events.sort_by_key(|event| event.time_unix_ns);
        let mut spans = Self::default();
        for event in events.iter().skip_while(|event| event.sample.link.is_none()) {
            spans.judge(event, &handled)?;
        }
        Ok(spans)
    }

    fn judge(&mut self, event: &DecodedEvent<'_>, handled: &HashMap<&str, &str>) -> Result<()> {
        let names = event.sample.stack.iter().filter_map(|frame| frame.function());
        let names: Vec<&str> = names.map(|name| name.strip_prefix("main.").unwrap_or(name)).collect();
        let shown = FUNCTIONS.into_iter().find(|(function, _)| names.contains(function));
        let route = match event.sample.link {
            Some(link) => {
                let ids = format!("{} {}", hex::encode(link.trace_id), hex::encode(link.span_id));
                let route = handled.get(ids.as_str()).copied();
                // What was not yet handled at the end was not printed either: then the example would have been stopped.
                self.wrong += u64::from(route.is_none());
                route
            }
            None => None,
        };
        match shown {
            Some((_, Some(of))) => {
                self.inside += 1;
                self.linked += u64::from(route.is_some());
                self.wrong += u64::from(route.is_some_and(|route| route != of));
            }
            Some((_, None)) => {
                self.outside += 1;
                self.wrong += u64::from(route.is_some());
            }
            None => {}
        }
        Ok(())
    }

    pub(crate) fn row(&self, name: &str) -> String {
        let Self { inside, linked, outside, wrong } = self;
        format!("  {name:<11} {inside} events inside, {linked} linked; {outside} outside; {wrong} wrong\n")
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        let Self { inside, linked, outside, wrong } = *self;
        [
            (inside < LEAST || outside < LEAST).then(|| format!("{inside} in spans, {outside} outside")),
            ((linked as f64) < LINKED_SHARE * inside as f64)
                .then(|| format!("{linked} of {inside} are linked")),
            (wrong > 0).then(|| format!("{wrong} events have the wrong span")),
        ]
        .into_iter()
        .flatten()
    }
}
