//! Events of one recording, gathered for people: how often each stack was seen, when, and on which thread.

mod compact;
mod counts;
mod draft;
mod window;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_bpf::Outcome;
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::Link;
use sidewinder_process::{ProcessDescription, ProcessKey};
use sidewinder_render::{Measure, Profile, Sample, Severity, Span, SpanIndex, ThreadIndex};

pub(crate) use self::counts::Counts;
use self::draft::{Draft, ThreadKey};
pub(crate) use self::window::{Bounds, SLICE, Window};
use crate::naming::{BODY_MISSING_SUMMARY, Namer, Naming};
use crate::sampling::Tally;
use crate::sampling::feed::{Event, Message, Stack};
use crate::stats::Counted;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Collection {
    namer: Namer,
    kind: Kind,
    processes: HashMap<ProcessKey, Arc<ProcessDescription>>,
    stacks: HashMap<u64, Arc<Stack>>,
    threads: Numbers<ThreadKey>,
    spans: Numbers<Link>,
    counts: Counts<Seen>,
}

/// What the events have in common that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Seen {
    thread: u32,
    span: Option<u32>,
    stack: Option<u64>,
    outcome: Outcome,
}

/// What was recorded, but for the events.
pub(crate) struct Circumstances<'a> {
    pub(crate) title: String,
    pub(crate) start: SystemTime,
    /// The same by `CLOCK_MONOTONIC`.
    pub(crate) start_ns: u64,
    pub(crate) duration: Duration,
    pub(crate) tally: &'a Tally,
}

impl Collection {
    /// Gathers the events of this kind.
    pub(crate) fn new(namer: Namer, kind: Kind) -> Self {
        Self {
            namer,
            kind,
            processes: HashMap::new(),
            stacks: HashMap::new(),
            threads: Numbers::default(),
            spans: Numbers::default(),
            counts: Counts::new(),
        }
    }

    pub(crate) fn take(&mut self, message: Message) {
        match message {
            Message::File(id, facts) => self.namer.learn(id, facts),
            Message::Process(key, description) => {
                self.processes.insert(key, description);
            }
            Message::Jit(key, place) => self.namer.learn_runtime(key, place),
            // Their events are still to be named.
            Message::Departed(_) | Message::ForgetFile(_) => {}
            Message::Event(event) if event.kind == self.kind => self.count(event),
            Message::Event(_) => {}
        }
    }

    /// What the live page names events by.
    pub(crate) fn naming(&mut self) -> Naming<'_> {
        Naming { namer: &mut self.namer, processes: &self.processes }
    }

    fn count(&mut self, event: Event) {
        let seen = Seen {
            thread: self.threads.of(ThreadKey { process: event.process, tid: event.tid, comm: event.comm }),
            span: event.span.map(|span| self.spans.of(span)),
            stack: event.stack.as_ref().map(|stack| stack.number),
            outcome: event.outcome,
        };
        if let Some(stack) = event.stack {
            self.stacks.entry(stack.number).or_insert(stack);
        }
        self.counts.add(event.time_ns, seen, event.value);
    }

    /// Names everything and makes a profile of it.
    pub(crate) fn into_profile(mut self, of: Circumstances<'_>) -> Profile {
        let mut rows: Vec<_> = self.counts.rows_since(of.start_ns).collect();
        // The same profile for the same events, whatever the hash maps' order.
        rows.sort_unstable_by_key(|(slice, seen, _)| {
            (*slice, seen.thread, seen.stack, seen.outcome.label(), seen.span)
        });
        let mut draft = Draft::of(Profile::empty(of.title, Measure::of(self.kind)));
        let end_ns = of.start_ns.saturating_add(u64::try_from(of.duration.as_nanos()).unwrap_or(u64::MAX));
        let samples = rows.into_iter().filter_map(|(slice, seen, count)| {
            let thread = self.threads.all.get(seen.thread as usize)?;
            let walked = seen.stack.and_then(|number| self.stacks.get(&number));
            Some(Sample {
                slice,
                thread: ThreadIndex(seen.thread),
                span: seen.span.map(SpanIndex),
                stack: draft.stack(
                    &mut self.namer,
                    thread.process,
                    walked.map(|stack| &**stack),
                    seen.outcome,
                    end_ns,
                ),
                count,
            })
        });
        let samples = samples.collect();
        let thread =
            |key: &ThreadKey| key.described(self.processes.get(&key.process).map(|process| &**process));
        Profile {
            start: of.start,
            duration: of.duration,
            slice: self.counts.slice(),
            threads: self.threads.all.iter().map(thread).collect(),
            spans: self.spans.to_spans(),
            samples,
            outcomes: outcomes(of.tally),
            ..draft.profile
        }
    }
}

/// Numbers for values, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Numbers<T> {
    pub(crate) all: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Copy + Eq + Hash> Numbers<T> {
    pub(crate) fn of(&mut self, value: T) -> u32 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.all.push(value);
            self.all.len() as u32 - 1
        })
    }
}

impl Numbers<Link> {
    /// As a profile has them, by number.
    pub(crate) fn to_spans(&self) -> Vec<Span> {
        self.all.iter().map(|link| Span { trace_id: link.trace_id, span_id: link.span_id }).collect()
    }
}

/// The lines of a summary: what happened to each interrupt.
pub(crate) fn outcomes(tally: &Tally) -> Vec<sidewinder_render::Outcome> {
    let counts = tally.interrupts.outcomes.iter().copied();
    outcomes_of(counts, [(MISSED, tally.interrupts.missed()), (NO_BODY, tally.bodies_missing)])
}

/// The same for those who look while profiling goes on.
pub(crate) fn outcomes_so_far(counted: &Counted) -> Vec<sidewinder_render::Outcome> {
    let counts =
        Outcome::ALL.iter().filter_map(|&outcome| Some((outcome, *counted.outcomes.get(outcome.label())?)));
    let others = [
        (MISSED, counted.missed),
        (NO_BODY, counted.stack_bodies_missing),
        (DROPPED, counted.events_dropped),
    ];
    outcomes_of(counts, others)
}

/// Ends of interrupts and samples that no walk reports: a name, what it means for the profile, and why.
type OtherOutcome = (&'static str, Severity, &'static str);
const MISSED: OtherOutcome =
    ("missed", Severity::Lost, "the kernel did not run the program for these interrupts");
const NO_BODY: OtherOutcome = (
    BODY_MISSING_SUMMARY,
    Severity::Cut,
    "these samples, counted above by how their walk ended, arrived without their stack",
);
const DROPPED: OtherOutcome = (
    "dropped",
    Severity::Lost,
    "these samples, counted above by how their walk ended, came faster than they could be named",
);

fn outcomes_of<const OTHERS: usize>(
    counts: impl Iterator<Item = (Outcome, u64)>,
    others: [(OtherOutcome, u64); OTHERS],
) -> Vec<sidewinder_render::Outcome> {
    let row = |name: &str, count, severity, help: &str| sidewinder_render::Outcome {
        name: name.to_owned(),
        count,
        severity,
        help: help.to_owned(),
    };
    let of_walks =
        counts.map(|(outcome, count)| row(outcome.summary(), count, severity(outcome), outcome.meaning()));
    let others = others.map(|((name, severity, help), count)| row(name, count, severity, help));
    of_walks.chain(others).filter(|row| row.count > 0).collect()
}

fn severity(outcome: Outcome) -> Severity {
    match outcome {
        Outcome::Complete => Severity::Complete,
        Outcome::Busy | Outcome::RingFull => Severity::Lost,
        cut if cut.is_loss() => Severity::Cut,
        _ => Severity::Aside,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sidewinder_bpf::{Frame, FrameKind, monotonic_ns};

    use super::*;
    use crate::naming::NamingOptions;
    use crate::sampling::feed::Labels;

    pub(crate) const CPU: Kind = Kind::Cpu { samples_per_second: 97 };

    pub(crate) fn nothing_known() -> (Namer, HashMap<ProcessKey, Arc<ProcessDescription>>) {
        (Namer::new(NamingOptions::default()), HashMap::new())
    }

    /// An event of now on a stack of one frame, at `stack * 0x1000`.
    pub(crate) fn event(stack: u64, span: Option<Link>) -> Message {
        let frame = Frame::new(FrameKind::Anonymous, stack << 12, false, false);
        let mut comm = [0; 16];
        comm[..6].copy_from_slice(b"thread");
        Message::Event(Event {
            kind: CPU,
            value: 1,
            time_ns: monotonic_ns(),
            process: ProcessKey { pid: 7, instance: 1 },
            tid: 7,
            cpu: 0,
            comm,
            outcome: Outcome::Complete,
            stack: Some(Arc::new(Stack::new(stack, [frame].into()))),
            span,
            labels: Labels::default(),
        })
    }
}
