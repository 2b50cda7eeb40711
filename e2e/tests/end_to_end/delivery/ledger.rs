//! What became of each event on its way to a receiver: events that are made here, the exporter's own account of
//! them, and what the receiver has.
//!
//! An event is told by its stack, its time and its thread, never by the exporter's word.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sidewinder_kind::Kind;
use sidewinder_otlp::builder::{SampleAttributes, SampleIdentity};
use sidewinder_otlp::decode::{self, DecodedEvent};
use sidewinder_otlp::send::{Counts, State};
use sidewinder_otlp::{Report, ReportBuilder, ReportOptions};
use sidewinder_profile::{Dictionary, FrameType, Line, LinkIndex, Location, Value, key};

use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;

const START_UNIX_NS: u64 = 1_700_000_000_000_000_000;
const RESOURCES: u64 = 3;
const STACKS: u64 = 40;
const THREADS: u64 = 7;

/// What tells one event from another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity(u64);

impl Identity {
    fn of(event: &DecodedEvent<'_>) -> Self {
        let mut hasher = DefaultHasher::new();
        for frame in &*event.sample.stack {
            (frame.address, frame.function()).hash(&mut hasher);
        }
        (event.time_unix_ns, event.sample.thread_id()).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Makes reports, and remembers each event in them.
#[derive(Debug, Default)]
pub(crate) struct Source {
    events: u64,
    made: HashSet<Identity>,
}

impl Source {
    /// A report of so many events, none of which was in one before.
    ///
    /// # Panics
    /// When it is asked for none.
    #[must_use]
    #[expect(clippy::expect_used, reason = "part of a test")]
    pub(crate) fn report(&mut self, events: u64) -> Report {
        let mut dictionary = Dictionary::default();
        let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
        let first = self.events;
        for number in first..first + events {
            let name = format!("s{}", number % RESOURCES);
            let resource = dictionary.add_attributes([(key::SERVICE_NAME, Value::Str(&name))]);
            let frames: Vec<_> = (0..=number % STACKS)
                .map(|depth| {
                    let function = dictionary.add_function_named(&format!("function {depth}"));
                    dictionary.add_location(&Location {
                        address: 16 * depth,
                        frame_type: FrameType::Native,
                        lines: &[Line::new(function)],
                        ..Location::default()
                    })
                })
                .collect();
            let thread_id = Some((number % THREADS) as i64);
            let identity = SampleIdentity {
                resource,
                profile_type: builder.kind(Kind::Cpu { samples_per_second: 997 }),
                stack: dictionary.add_stack(&frames),
                attributes: SampleAttributes { thread_id, ..SampleAttributes::default() }
                    .add_to(&mut dictionary),
                link: LinkIndex::default(),
            };
            builder.event(&identity, START_UNIX_NS + number, 1);
        }
        self.events += events;
        let covered = START_UNIX_NS + first..START_UNIX_NS + self.events;
        let report = builder.finish(&mut dictionary, covered).expect("no events");
        let profiles = decode::decode_profiles_data(report.as_bytes()).expect("no profiles");
        self.made.extend(
            profiles.iter().flat_map(decode::DecodedProfile::events).map(|event| Identity::of(&event)),
        );
        report
    }

    /// How many events were made.
    #[must_use]
    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}

/// One run: what was made, what the exporter says of it, and what the receiver has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// What was done to the exporter.
    pub(crate) fault: String,
    /// Events that were made.
    pub(crate) before: u64,
    /// The exporter's account.
    pub(crate) counts: Counts,
    /// Different events that the receiver has.
    pub(crate) arrived: u64,
    /// Events that it has a second time, under whatever identity of their profile.
    pub(crate) duplicates: u64,
    /// Events that it has and nobody has made.
    pub(crate) invented: u64,
}

impl Row {
    /// Balances the accounts of a run.
    #[must_use]
    pub(crate) fn new(fault: &str, source: &Source, counts: Counts, received: &Received) -> Self {
        let mut arrived = HashSet::new();
        let mut duplicates = received.duplicate_events;
        let mut invented = 0;
        for event in received.events() {
            let identity = Identity::of(&event);
            if !source.made.contains(&identity) {
                invented += 1;
            } else if !arrived.insert(identity) {
                duplicates += 1;
            }
        }
        let arrived = arrived.len() as u64;
        Self { fault: fault.to_owned(), before: source.events, counts, arrived, duplicates, invented }
    }

    /// Whether every event is accounted for: all that was made is in one state, the receiver has all that was
    /// delivered, and nothing beyond that but what may have arrived.
    #[must_use]
    pub(crate) fn balances(&self) -> bool {
        let Counts { delivered, unknown, partially_rejected, .. } = self.counts;
        let at_most = delivered.events + unknown.events + partially_rejected.events;
        self.counts.total().events == self.before
            && (delivered.events..=at_most).contains(&self.arrived)
            && self.invented == 0
    }

    /// The same run with one outcome not counted.
    #[must_use]
    pub(crate) fn without(&self, state: State) -> Self {
        let mut row = self.clone();
        row.counts.forget(state);
        row
    }

    /// Outcomes that some events had.
    pub(crate) fn states(&self) -> impl Iterator<Item = State> {
        State::ALL.iter().copied().filter(|state| self.counts.get(*state).events > 0)
    }

    /// The head of a table of rows.
    pub(crate) const HEAD: &'static str =
        "fault                                          before delivered  arrived duplicate  other";
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, before, counts, arrived, duplicates, .. } = self;
        write!(f, "{fault:45} {before:7} {:9} {arrived:8} {duplicates:9} ", counts.delivered.events)?;
        for state in self.states().filter(|state| *state != State::Delivered) {
            write!(f, " {}={}", state.as_str(), counts.get(state).events)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[promise(Delivery)]
    fn the_events_of_a_report_are_those_that_were_made() {
        let mut source = Source::default();
        let reports = [source.report(100), source.report(50)];
        let received = Received::from_requests(reports.iter().map(Report::as_bytes)).unwrap();
        let counts = Counts { delivered: reports[0].tally() + reports[1].tally(), ..Counts::default() };
        let row = Row::new("none", &source, counts, &received);
        assert_eq!((row.before, row.arrived, row.duplicates, row.invented), (150, 150, 0, 0));
        assert!(row.balances());
        assert!(!row.without(State::Delivered).balances());
    }

    #[promise(Delivery)]
    fn what_does_not_arrive_or_was_never_made_shows() {
        let (mut source, mut stranger) = (Source::default(), Source::default());
        let report = source.report(10);
        let counts = Counts { delivered: report.tally(), ..Counts::default() };
        assert!(!Row::new("lost", &source, counts, &Received::default()).balances());
        let _ = stranger.report(10);
        let other = stranger.report(10);
        let received = Received::from_requests([report.as_bytes(), other.as_bytes()]).unwrap();
        assert!(!Row::new("invented", &source, counts, &received).balances());
    }
}
