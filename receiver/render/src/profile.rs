//! The profile that is rendered: stacks with counts, and the outcomes of interrupts.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_kind::{Kind, SampleShape};
use sidewinder_profile::{
    Dictionary, Frame, FrameIndex, Index as _, LinkIndex, SampleType, StackIndex, StatedAttributes,
    index_types,
};

use crate::annotation::Annotations;
use crate::container::ProfileContainer;
use crate::escape::escaped;

/// One recording.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The target of the profile, in the user's words: a command line, a process.
    pub title: String,
    /// The meaning of each event.
    pub measure: SampleType,
    /// What a file can say of each event: its time, its value, or only the sum of values.
    pub shape: SampleShape,
    /// The start of the recording.
    pub start: SystemTime,
    /// The duration of the recording.
    pub duration: Duration,
    /// The time that the file covers in which the profile was, in nanoseconds since 1970; empty if that is unknown.
    pub covered_unix_ns: Range<u64>,
    /// The length of the slices that divide the time since `start`; zero if times are not known.
    pub slice: Duration,
    /// The frames, their stacks, and what else samples refer to.
    pub dictionary: Dictionary,
    /// The threads of the samples.
    pub threads: Vec<ProfileThread>,
    /// States of threads.
    pub states: Vec<ThreadState>,
    /// The count of each stack, in any order; equal samples need not be merged.
    pub samples: Vec<ProfileSample>,
    /// The outcomes of interrupts; each interrupt is counted once.
    pub outcomes: Vec<OutcomeCount>,
    /// The recordings that were merged into this one; empty if it is a single one.
    pub recordings: Vec<MergedRecording>,
    /// What pages show of the code of functions.
    pub annotations: Annotations,
    /// Whether threads are shown apart.
    pub is_per_thread: bool,
}

index_types! {
    /// Index in [`Profile::threads`].
    pub ThreadIndex,
    /// Index in [`Profile::states`].
    pub StateIndex,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProfileThread {
    /// The name of its process; empty if unknown.
    pub process: Arc<str>,
    /// The PID of its process; 0 if unknown.
    pub pid: u32,
    /// Its name; empty if unknown.
    pub name: Arc<str>,
    /// Its TID; 0 if unknown.
    pub tid: u32,
    /// Its container.
    pub container: ProfileContainer,
}

/// What a thread does or waits for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadState {
    /// `running`, `runnable`, `sleeping`, `uninterruptible` or `stopped`.
    pub state: Arc<str>,
    /// The kind of system call in which it waits, for example `futex`; empty if it does not wait, or if that is unknown.
    pub cause: Arc<str>,
}

impl ThreadState {
    /// The key of the state among the attributes and labels of a sample.
    pub const STATE_KEY: &str = "sidewinder.wait.state";
    /// The key of the cause there.
    pub const CAUSE_KEY: &str = "sidewinder.wait.cause";
    /// The state of a thread that is on a CPU.
    pub const RUNNING: &str = "running";
}

/// Events with the same slice, thread, span, state, attributes and stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProfileSample {
    /// The index of the time slice since [`Profile::start`].
    pub slice: u32,
    /// The thread.
    pub thread: ThreadIndex,
    /// The span, if there is one.
    pub span: LinkIndex,
    /// The state of the thread, in profiles of waits and of wall time.
    pub state: Option<StateIndex>,
    /// What the sender states of it: the thread and the state follow from that, if there is a sender.
    pub stated: StatedAttributes,
    /// The stack.
    pub stack: StackIndex,
    /// The number of events.
    pub count: u64,
}

/// A recording that was merged into a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergedRecording {
    /// Its label.
    pub name: String,
    /// Its slices.
    pub slices: Range<u32>,
}

/// The effect of an outcome on the accuracy of the profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The sample is complete.
    Complete,
    /// Omitted on purpose: idle, out of scope.
    Excluded,
    /// The sample is present, but part of its stack is missing.
    Truncated,
    /// The sample is missing.
    Lost,
}

impl Severity {
    /// The label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Excluded => "aside",
            Self::Truncated => "cut",
            Self::Lost => "lost",
        }
    }
}

/// The number of interrupts with one outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutcomeCount {
    /// The outcome's name: `complete`, `no table`.
    pub name: String,
    /// The number of interrupts.
    pub count: u64,
    /// The effect on the profile.
    pub severity: Severity,
    /// Advice for the user; may be empty.
    pub help: String,
}

impl Profile {
    /// An empty profile of a kind.
    #[must_use]
    pub fn of_kind(title: String, kind: Kind) -> Self {
        Self { shape: kind.descriptor().shape, ..Self::new(title, SampleType::from_kind(kind)) }
    }

    /// An empty profile of events whose values are only summed up.
    #[must_use]
    pub fn new(title: String, measure: SampleType) -> Self {
        Self {
            title,
            measure,
            shape: SampleShape::Values,
            start: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            covered_unix_ns: 0..0,
            slice: Duration::ZERO,
            dictionary: Dictionary::default(),
            threads: Vec::new(),
            states: Vec::new(),
            samples: Vec::new(),
            outcomes: Vec::new(),
            recordings: Vec::new(),
            annotations: Annotations::default(),
            is_per_thread: false,
        }
    }

    /// The frames of a stack, leaf first. Invalid indices are skipped.
    pub fn frames_of(&self, stack: StackIndex) -> impl DoubleEndedIterator<Item = Frame<'_>> {
        self.dictionary.frames_of(stack).filter_map(|index| self.dictionary.frame(index))
    }

    /// Whether each frame is in a stack: the dictionary also has frames that no stack has any more.
    pub(crate) fn frames_in_stacks(&self) -> Vec<bool> {
        let mut is_in_stack = vec![false; self.dictionary.frame_count()];
        let mut is_seen = vec![false; self.dictionary.location_count()];
        for location in self.dictionary.stacks().flatten() {
            let Some(is_seen) = is_seen.get_mut(location.position()).filter(|is_seen| !**is_seen) else {
                continue;
            };
            *is_seen = true;
            for frame in self.dictionary.frames_at(*location) {
                is_in_stack.get_mut(frame.position()).into_iter().for_each(|is_in| *is_in = true);
            }
        }
        is_in_stack
    }

    /// Each frame that is in a stack, in the order of their indices.
    pub(crate) fn stacked_frames(&self) -> impl Iterator<Item = (FrameIndex, Frame<'_>)> {
        let is_in_stack = self.frames_in_stacks().into_iter();
        let frames = (0..).map(FrameIndex).zip(self.dictionary.frames());
        frames.zip(is_in_stack).filter(|(_, is_in_stack)| *is_in_stack).map(|(frame, _)| frame)
    }

    /// The thread of a sample, if known.
    pub(crate) fn thread_of(&self, sample: &ProfileSample) -> Option<&ProfileThread> {
        self.threads.get(sample.thread.0 as usize)
    }

    /// The label of a thread among those of other processes.
    pub(crate) fn thread_name(&self, thread: ThreadIndex) -> String {
        let Some(thread) = self.threads.get(thread.0 as usize) else { return String::from("[unknown]") };
        let numbered = |name: &str, number: u32| match number {
            0 => escaped(name).into_owned(),
            number => format!("{} {number}", escaped(name)),
        };
        if thread.name.is_empty() {
            return numbered(&thread.process, thread.pid);
        }
        format!("{} / {}", numbered(&thread.process, thread.pid), numbered(&thread.name, thread.tid))
    }

    /// Events of all samples.
    #[must_use]
    pub fn total_count(&self) -> u64 {
        self.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.count))
    }

    /// The samples without their times and attributes, sorted, with equal ones merged.
    pub(crate) fn samples_without_time(&self) -> Vec<ProfileSample> {
        merged(
            self.samples_without_attributes().into_iter().map(|sample| ProfileSample { slice: 0, ..sample }),
        )
    }

    /// The samples as they are shown, without their attributes: sorted, with equal ones merged.
    pub(crate) fn samples_without_attributes(&self) -> Vec<ProfileSample> {
        let shown = |sample: &ProfileSample| ProfileSample { stated: StatedAttributes::default(), ..*sample };
        merged(self.samples.iter().map(shown))
    }

    /// Each stack that has events, with their number.
    pub fn stack_counts(&self) -> impl Iterator<Item = (StackIndex, u64)> + use<> {
        self.stack_counts_of_process(None)
    }

    /// Each stack that has events in a process, or in all, with their number.
    pub(crate) fn stack_counts_of_process(
        &self,
        pid: Option<u32>,
    ) -> impl Iterator<Item = (StackIndex, u64)> + use<> {
        let is_counted = |sample: &&ProfileSample| {
            let thread = self.threads.get(sample.thread.0 as usize);
            pid.is_none() || thread.map(|thread| thread.pid) == pid
        };
        let mut counts = vec![0_u64; self.dictionary.stack_count()];
        for sample in self.samples.iter().filter(is_counted) {
            if let Some(count) = counts.get_mut(sample.stack.position()) {
                *count = count.saturating_add(sample.count);
            }
        }
        (0..).map(StackIndex).zip(counts).filter(|(_, count)| *count > 0)
    }
}

/// The samples, sorted, with equal ones merged.
fn merged(samples: impl Iterator<Item = ProfileSample>) -> Vec<ProfileSample> {
    let mut samples: Vec<_> = samples.collect();
    samples.sort_unstable();
    samples.dedup_by(|sample, before| {
        let is_same = *sample == ProfileSample { count: sample.count, ..*before };
        if is_same {
            before.count = before.count.saturating_add(sample.count);
        }
        is_same
    });
    samples
}

#[cfg(test)]
pub(crate) mod tests;
