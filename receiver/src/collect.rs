//! Events of one recording, gathered for people: how often each stack was seen, when, and on which thread.

mod compact;
mod counts;
mod profile_builder;
mod window;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_bpf::Outcome;
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::Link;
use sidewinder_process::{ProcessDescription, ProcessKey};
use sidewinder_render::{Profile, ProfileSample, ProfileSpan, SampleType, Severity, SpanIndex, ThreadIndex};

pub(crate) use self::counts::TimeSlicedCounts;
use self::profile_builder::{ProfileBuilder, ThreadKey};
pub(crate) use self::window::{SLICE, SlidingWindow, WindowLimits};
use crate::naming::{Namer, NamingContext, STACK_MISSING_SUMMARY};
use crate::sampling::SamplingTally;
use crate::sampling::message::{Message, SampleEvent, Stack};
use crate::stats::ReceiverCounters;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ProfileCollector {
    namer: Namer,
    kind: Kind,
    processes: HashMap<ProcessKey, Arc<ProcessDescription>>,
    stacks: HashMap<u64, Arc<Stack>>,
    threads: IndexedSet<ThreadKey>,
    spans: IndexedSet<Link>,
    counts: TimeSlicedCounts<EventKey>,
}

/// What the events have in common that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct EventKey {
    thread: u32,
    span: Option<u32>,
    stack: Option<u64>,
    outcome: Outcome,
}

/// What was recorded, but for the events.
pub(crate) struct RecordingMetadata<'a> {
    pub(crate) title: String,
    pub(crate) start: SystemTime,
    /// The same by `CLOCK_MONOTONIC`.
    pub(crate) start_ns: u64,
    pub(crate) duration: Duration,
    pub(crate) tally: &'a SamplingTally,
}

impl ProfileCollector {
    /// Gathers the events of this kind.
    pub(crate) fn new(namer: Namer, kind: Kind) -> Self {
        Self {
            namer,
            kind,
            processes: HashMap::new(),
            stacks: HashMap::new(),
            threads: IndexedSet::default(),
            spans: IndexedSet::default(),
            counts: TimeSlicedCounts::new(),
        }
    }

    pub(crate) fn handle(&mut self, message: Message) {
        match message {
            Message::File(id, facts) => self.namer.add_file(id, facts),
            Message::Process(key, description) => {
                self.processes.insert(key, description);
            }
            Message::JitSource(key, place) => self.namer.add_jit_source(key, place),
            // Their events are still to be named.
            Message::ProcessExited(_) | Message::ForgetFile(_) => {}
            Message::Event(event) if event.kind == self.kind => self.add_event(event),
            Message::Event(_) => {}
        }
    }

    /// What the live page names events by.
    pub(crate) fn naming_context(&mut self) -> NamingContext<'_> {
        NamingContext { namer: &mut self.namer, processes: &self.processes }
    }

    fn add_event(&mut self, event: SampleEvent) {
        let seen = EventKey {
            thread: self.threads.intern(ThreadKey {
                process: event.process,
                tid: event.tid,
                comm: event.comm,
            }),
            span: event.span.map(|span| self.spans.intern(span)),
            stack: event.stack.as_ref().map(|stack| stack.id),
            outcome: event.outcome,
        };
        if let Some(stack) = event.stack {
            self.stacks.entry(stack.id).or_insert(stack);
        }
        self.counts.add(event.time_ns, seen, event.value);
    }

    /// Names everything and makes a profile of it.
    pub(crate) fn into_profile(mut self, of: RecordingMetadata<'_>) -> Profile {
        let mut rows: Vec<_> = self.counts.rows_since(of.start_ns).collect();
        // The same profile for the same events, whatever the hash maps' order.
        rows.sort_unstable_by_key(|(slice, seen, _)| {
            (*slice, seen.thread, seen.stack, seen.outcome.label(), seen.span)
        });
        let mut draft = ProfileBuilder::new(Profile::new(of.title, SampleType::from_kind(self.kind)));
        let end_ns = of.start_ns.saturating_add(u64::try_from(of.duration.as_nanos()).unwrap_or(u64::MAX));
        let samples = rows.into_iter().filter_map(|(slice, seen, count)| {
            let thread = self.threads.values.get(seen.thread as usize)?;
            let walked = seen.stack.and_then(|number| self.stacks.get(&number));
            Some(ProfileSample {
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
        let thread = |key: &ThreadKey| {
            key.to_profile_thread(self.processes.get(&key.process).map(|process| &**process))
        };
        Profile {
            start: of.start,
            duration: of.duration,
            slice: self.counts.slice(),
            threads: self.threads.values.iter().map(thread).collect(),
            spans: self.spans.to_spans(),
            samples,
            outcomes: outcome_counts(of.tally),
            ..draft.profile
        }
    }
}

/// Numbers for values, in the order of arrival.
#[derive(Debug)]
pub(crate) struct IndexedSet<T> {
    pub(crate) values: Vec<T>,
    indices: HashMap<T, u32>,
}

impl<T> Default for IndexedSet<T> {
    fn default() -> Self {
        Self { values: Vec::new(), indices: HashMap::new() }
    }
}

impl<T: Copy + Eq + Hash> IndexedSet<T> {
    pub(crate) fn intern(&mut self, value: T) -> u32 {
        *self.indices.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32 - 1
        })
    }
}

impl IndexedSet<Link> {
    /// As a profile has them, by number.
    pub(crate) fn to_spans(&self) -> Vec<ProfileSpan> {
        self.values
            .iter()
            .map(|link| ProfileSpan { trace_id: link.trace_id, span_id: link.span_id })
            .collect()
    }
}

/// The lines of a summary: what happened to each interrupt.
pub(crate) fn outcome_counts(tally: &SamplingTally) -> Vec<sidewinder_render::OutcomeCount> {
    let counts = tally.interrupts.outcomes.iter().copied();
    outcome_counts_with(counts, [(MISSED, tally.interrupts.missed()), (NO_BODY, tally.stacks_missing)])
}

/// The same for those who look while profiling goes on.
pub(crate) fn current_outcome_counts(counted: &ReceiverCounters) -> Vec<sidewinder_render::OutcomeCount> {
    let counts =
        Outcome::ALL.iter().filter_map(|&outcome| Some((outcome, *counted.outcomes.get(outcome.label())?)));
    let others = [
        (MISSED, counted.missed),
        (NO_BODY, counted.stack_bodies_missing),
        (DROPPED, counted.events_dropped),
    ];
    outcome_counts_with(counts, others)
}

/// Ends of interrupts and samples that no walk reports: a name, what it means for the profile, and why.
type UnwalkedOutcome = (&'static str, Severity, &'static str);
const MISSED: UnwalkedOutcome =
    ("missed", Severity::Lost, "the kernel did not run the program for these interrupts");
const NO_BODY: UnwalkedOutcome = (
    STACK_MISSING_SUMMARY,
    Severity::Truncated,
    "these samples, counted above by how their walk ended, arrived without their stack",
);
const DROPPED: UnwalkedOutcome = (
    "dropped",
    Severity::Lost,
    "these samples, counted above by how their walk ended, came faster than they could be named",
);

fn outcome_counts_with<const OTHERS: usize>(
    counts: impl Iterator<Item = (Outcome, u64)>,
    others: [(UnwalkedOutcome, u64); OTHERS],
) -> Vec<sidewinder_render::OutcomeCount> {
    let row = |name: &str, count, severity, help: &str| sidewinder_render::OutcomeCount {
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
        cut if cut.is_loss() => Severity::Truncated,
        _ => Severity::Excluded,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sidewinder_bpf::{RawFrame, RawFrameKind, monotonic_ns};

    use super::*;
    use crate::naming::NamingOptions;
    use crate::sampling::message::Labels;

    pub(crate) const CPU: Kind = Kind::Cpu { samples_per_second: 97 };

    pub(crate) fn nothing_known() -> (Namer, HashMap<ProcessKey, Arc<ProcessDescription>>) {
        (Namer::new(NamingOptions::default()), HashMap::new())
    }

    /// An event of now on a stack of one frame, at `stack * 0x1000`.
    pub(crate) fn event(stack: u64, span: Option<Link>) -> Message {
        let frame = RawFrame::new(RawFrameKind::Anonymous, stack << 12, false, false);
        let mut comm = [0; 16];
        comm[..6].copy_from_slice(b"thread");
        Message::Event(SampleEvent {
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
