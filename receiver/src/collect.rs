//! Aggregates the events of one recording into a profile for people to read: how often each stack was seen, when, and on
//! which thread.
//!
//! Input: events from the naming stage. Output: a [`Profile`].

mod compact;
mod profile_builder;
mod window;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_bpf::{Outcome, StealTime, WaitReason};
use sidewinder_kind::{Kind, KindSet};
use sidewinder_message::{LockId, SampleEvent, Stack};
use sidewinder_naming::{Namer, NamingStage, STACK_MISSING_SUMMARY, WalkedStack};
use sidewinder_profile::Link;
use sidewinder_render::{
    OutcomeCount, Profile, ProfileSample, Severity, StateIndex, StatedAttributes, ThreadIndex, ThreadState,
    TimeSlicedCounts,
};

use self::profile_builder::{ProfileBuilder, ThreadKey};
pub(crate) use self::window::{SLICE, SlidingWindow, WindowLimits};
use crate::sampling::SamplingTally;
use crate::stats::{MISSED, ReceiverCounters};

/// Counts the events of one recording, and names them when it ends.
#[derive(Debug)]
pub(crate) struct ProfileCollector {
    stacks: HashMap<u64, Arc<Stack>>,
    threads: IndexedSet<ThreadKey>,
    spans: IndexedSet<Link>,
    states: IndexedSet<WaitReason>,
    /// By kind, each of which becomes a profile.
    counts: Vec<(Kind, TimeSlicedCounts<EventKey>)>,
}

/// The properties shared by the events that are counted together. The integers are indices and a stack ID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct EventKey {
    thread: u32,
    span: Option<u32>,
    state: Option<u32>,
    stack: Option<u64>,
    outcome: Outcome,
    lock: Option<LockId>,
}

/// What a profile says about its recording, apart from the events.
pub(crate) struct RecordingMetadata<'a> {
    pub(crate) title: String,
    pub(crate) start: SystemTime,
    /// The start by `CLOCK_MONOTONIC`.
    pub(crate) start_ns: u64,
    pub(crate) duration: Duration,
    pub(crate) tally: &'a SamplingTally,
}

impl ProfileCollector {
    /// Gathers the events of these kinds.
    pub(crate) fn new(kinds: &KindSet) -> Self {
        Self {
            stacks: HashMap::new(),
            threads: IndexedSet::default(),
            spans: IndexedSet::default(),
            states: IndexedSet::default(),
            counts: kinds.iter().map(|kind| (kind, TimeSlicedCounts::new())).collect(),
        }
    }

    /// Counts an event, which is named at the end.
    pub(crate) fn add_event(&mut self, event: SampleEvent, namer: &mut Namer) {
        let Some((_, counts)) = self.counts.iter_mut().find(|(kind, _)| *kind == event.kind) else { return };
        let key = EventKey {
            thread: self.threads.intern(ThreadKey {
                process: event.process,
                tid: event.tid,
                comm: event.comm,
            }),
            span: event.span.map(|span| self.spans.intern(span)),
            state: event.wait.map(|wait| self.states.intern(wait)),
            stack: event.stack.as_ref().map(|stack| stack.id),
            outcome: event.outcome,
            lock: event.lock.and_then(|lock| lock.id),
        };
        if let Some(stack) = event.stack {
            namer.read_functions(event.process, &stack);
            namer.request_debug_files(&stack);
            self.stacks.entry(stack.id).or_insert(stack);
        }
        counts.add(event.time_ns, key, event.value);
    }

    /// Names all frames and builds the profile of each kind, in the order of the kinds.
    pub(crate) fn into_profiles(
        mut self,
        stage: &mut NamingStage,
        recording: &RecordingMetadata<'_>,
    ) -> Vec<Profile> {
        let counts = std::mem::take(&mut self.counts);
        counts.into_iter().map(|(kind, counts)| self.profile(kind, &counts, stage, recording)).collect()
    }

    fn profile(
        &self,
        kind: Kind,
        counts: &TimeSlicedCounts<EventKey>,
        stage: &mut NamingStage,
        recording: &RecordingMetadata<'_>,
    ) -> Profile {
        let mut rows: Vec<_> = counts.rows_since(recording.start_ns).collect();
        // The same events give the same profile, whatever the order of the hash maps.
        rows.sort_unstable_by_key(|(slice, key, _)| {
            (*slice, key.thread, key.stack, key.outcome.label(), key.span, key.state, key.lock)
        });
        let mut builder = ProfileBuilder::new(Profile::of_kind(recording.title.clone(), kind));
        let end_ns = recording
            .start_ns
            .saturating_add(u64::try_from(recording.duration.as_nanos()).unwrap_or(u64::MAX));
        let spans = self.spans.values.iter().map(|span| builder.profile.dictionary.add_link(*span));
        let spans: Vec<_> = spans.collect();
        let samples = rows.into_iter().filter_map(|(slice, key, count)| {
            let thread = self.threads.values.get(key.thread as usize)?;
            let walked = WalkedStack {
                process: thread.process,
                stack: key.stack.and_then(|id| self.stacks.get(&id)).map(|stack| &**stack),
                outcome: key.outcome,
                at_ns: end_ns,
            };
            Some(ProfileSample {
                slice,
                thread: ThreadIndex(key.thread),
                span: key.span.and_then(|span| spans.get(span as usize).copied()).unwrap_or_default(),
                state: key.state.map(StateIndex),
                stated: StatedAttributes::default(),
                stack: builder.stack(&mut stage.namer, walked, key.lock),
                count,
            })
        });
        let samples = samples.collect();
        let thread = |key: &ThreadKey| key.to_profile_thread(stage.process(key.process));
        Profile {
            start: recording.start,
            duration: recording.duration,
            slice: counts.slice(),
            threads: self.threads.values.iter().map(thread).collect(),
            states: self.states.values.iter().copied().map(thread_state).collect(),
            samples,
            outcomes: outcome_counts(recording.tally, kind),
            ..builder.profile
        }
    }
}

/// The state of a thread, as a profile has it.
pub(crate) fn thread_state(wait: WaitReason) -> ThreadState {
    ThreadState { state: wait.state.into(), cause: wait.cause.unwrap_or_default().into() }
}

/// Assigns indices to values, in the order of their first use.
#[derive(Debug)]
struct IndexedSet<T> {
    values: Vec<T>,
    indices: HashMap<T, u32>,
}

impl<T> Default for IndexedSet<T> {
    fn default() -> Self {
        Self { values: Vec::new(), indices: HashMap::new() }
    }
}

impl<T: Copy + Eq + Hash> IndexedSet<T> {
    fn intern(&mut self, value: T) -> u32 {
        *self.indices.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32 - 1
        })
    }
}

/// The lines of a recording's summary: the outcomes of its interrupts for a kind of profile.
pub(crate) fn outcome_counts(tally: &SamplingTally, kind: Kind) -> Vec<OutcomeCount> {
    let interrupts = tally.interrupts_of(kind);
    let counts = interrupts.outcomes.iter().copied();
    let missed = missed_row(kind, interrupts.missed(), interrupts.steal);
    outcome_counts_with(counts, [missed, row(NO_BODY, tally.stack_bodies_missing)])
}

/// The same from the counters of a running receiver, for the live page.
pub(crate) fn current_outcome_counts(counters: &ReceiverCounters, kind: Kind) -> Vec<OutcomeCount> {
    let counts = Outcome::ALL
        .iter()
        .filter_map(|&outcome| Some((outcome, counters.outcome_count(kind, outcome.label())?)));
    let others = [
        missed_row(kind, counters.outcome_count(kind, MISSED).unwrap_or(0), counters.cpu_steal),
        row(NO_BODY, counters.stack_bodies_missing),
        row(DROPPED, counters.events_dropped),
    ];
    outcome_counts_with(counts, others)
}

/// An outcome that no walk reports: its name, what it means for the profile, and an explanation.
type UnwalkedOutcome = (&'static str, Severity, &'static str);
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

fn row((name, severity, help): UnwalkedOutcome, count: u64) -> OutcomeCount {
    OutcomeCount { name: name.to_owned(), count, severity, help: help.to_owned() }
}

/// The row of interrupts without a program run. Those of the clock are mostly explained by steal time, on virtual machines.
fn missed_row(kind: Kind, count: u64, steal: StealTime) -> OutcomeCount {
    let cause = "timer interrupts that never ran, usually because the virtual machine was descheduled";
    let help = match (kind, steal.share()) {
        (Kind::Cpu { .. } | Kind::Wall { .. }, Some(share)) => {
            format!("{cause} (steal time in this period: {:.1}%)", 100.0 * share)
        }
        (Kind::Cpu { .. } | Kind::Wall { .. }, None) => cause.to_owned(),
        _ => "the kernel did not run the program for these interrupts".to_owned(),
    };
    OutcomeCount { help, ..row((MISSED, Severity::Lost, ""), count) }
}

fn outcome_counts_with<const OTHERS: usize>(
    counts: impl Iterator<Item = (Outcome, u64)>,
    others: [OutcomeCount; OTHERS],
) -> Vec<OutcomeCount> {
    let walk_outcomes =
        counts.map(|(outcome, count)| row((outcome.summary(), severity(outcome), outcome.meaning()), count));
    walk_outcomes.chain(others).filter(|row| row.count > 0).collect()
}

fn severity(outcome: Outcome) -> Severity {
    match outcome {
        Outcome::Complete => Severity::Complete,
        Outcome::Busy | Outcome::RingFull => Severity::Lost,
        truncated if truncated.is_loss() => Severity::Truncated,
        _ => Severity::Excluded,
    }
}
