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

use indexmap::IndexSet;
use sidewinder_bpf::{Outcome, WaitReason};
use sidewinder_kind::{Kind, KindSet};
use sidewinder_message::{LockId, SampleEvent, Stack};
use sidewinder_naming::{Namer, NamingStage, WalkedStack};
use sidewinder_profile::Link;
use sidewinder_render::{
    OutcomeCount, Profile, ProfileSample, StateIndex, StatedAttributes, ThreadIndex, ThreadState,
    TimeSlicedCounts,
};

use self::profile_builder::{ProfileBuilder, ThreadKey};
pub use self::window::{SLICE, SlidingWindow, WindowLimits};

/// Counts the events of one recording, and names them when it ends.
#[derive(Debug)]
pub struct ProfileCollector {
    stacks: HashMap<u64, Arc<Stack>>,
    threads: IndexSet<ThreadKey>,
    spans: IndexSet<Link>,
    states: IndexSet<WaitReason>,
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
pub struct RecordingMetadata<'a> {
    /// The title that the profile's viewers show.
    pub title: String,
    /// When it began.
    pub start: SystemTime,
    /// The start by `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// How long it took.
    pub duration: Duration,
    /// The outcomes of the interrupts of a kind of profile.
    pub outcomes: &'a dyn Fn(Kind) -> Vec<OutcomeCount>,
}

impl ProfileCollector {
    /// Gathers the events of these kinds.
    pub fn new(kinds: &KindSet) -> Self {
        Self {
            stacks: HashMap::new(),
            threads: IndexSet::default(),
            spans: IndexSet::default(),
            states: IndexSet::default(),
            counts: kinds.iter().map(|kind| (kind, TimeSlicedCounts::new())).collect(),
        }
    }

    /// Counts an event, which is named at the end.
    pub fn add_event(&mut self, event: SampleEvent, namer: &mut Namer) {
        let Some((_, counts)) = self.counts.iter_mut().find(|(kind, _)| *kind == event.kind) else { return };
        let key = EventKey {
            thread: index_of(
                &mut self.threads,
                ThreadKey { process: event.process, tid: event.tid, comm: event.comm },
            ),
            span: event.span.map(|span| index_of(&mut self.spans, span)),
            state: event.wait.map(|wait| index_of(&mut self.states, wait)),
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
    pub fn into_profiles(
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
        let spans = self.spans.iter().map(|span| builder.profile.dictionary.add_link(*span));
        let spans: Vec<_> = spans.collect();
        let samples = rows.into_iter().filter_map(|(slice, key, count)| {
            let thread = self.threads.get_index(key.thread as usize)?;
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
            threads: self.threads.iter().map(thread).collect(),
            states: self.states.iter().copied().map(thread_state).collect(),
            samples,
            outcomes: (recording.outcomes)(kind),
            ..builder.profile
        }
    }
}

/// The state of a thread, as a profile has it.
pub(crate) fn thread_state(wait: WaitReason) -> ThreadState {
    ThreadState { state: wait.state.into(), cause: wait.cause.unwrap_or_default().into() }
}

/// The index of a value, which is added if it is new.
fn index_of<T: Eq + Hash>(values: &mut IndexSet<T>, value: T) -> u32 {
    values.insert_full(value).0 as u32
}
