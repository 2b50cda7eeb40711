//! Merges two recordings into one profile, for comparison.

use std::collections::HashMap;
use std::time::Duration;

use crate::interner::ValueInterner;
use crate::profile::{
    AttributeSetIndex, BinaryIndex, FrameIndex, MergedRecording, Profile, ProfileBinary, ProfileFrame,
    ProfileSample, ProfileSpan, ProfileThread, SpanIndex, StackIndex, StateIndex, ThreadIndex, ThreadState,
};

/// Both recordings, each as a part of one slice: the comparison is of shares, not of times.
#[must_use]
pub fn merge(before: &Profile, after: &Profile) -> Profile {
    let mut merged = Profile::new(format!("{} → {}", before.title, after.title), after.measure.clone());
    let mut tables = MergedTables::default();
    for (part, slice) in [before, after].into_iter().zip(0..) {
        tables.add(part, slice, &mut merged.samples);
        merged.recordings.push(MergedRecording { name: part.title.clone(), slices: slice..slice + 1 });
    }
    merged.start = after.start;
    merged.duration = Duration::ZERO;
    merged.binaries = tables.binaries.values;
    merged.frames = tables.frames.values;
    merged.stacks = tables.stacks.values;
    merged.threads = tables.threads.values;
    merged.spans = tables.spans.values;
    merged.states = tables.states.values;
    merged
}

#[derive(Default)]
struct MergedTables {
    binaries: ValueInterner<ProfileBinary>,
    frames: ValueInterner<ProfileFrame>,
    stacks: ValueInterner<Vec<FrameIndex>>,
    threads: ValueInterner<ProfileThread>,
    spans: ValueInterner<ProfileSpan>,
    states: ValueInterner<ThreadState>,
}

impl MergedTables {
    fn add(&mut self, part: &Profile, slice: u32, samples: &mut Vec<ProfileSample>) {
        let binaries: Vec<_> =
            part.binaries.iter().map(|binary| self.binaries.intern(binary.clone())).collect();
        let frames: Vec<_> = part
            .frames
            .iter()
            .map(|frame| {
                let binary = frame.binary.and_then(|at| binaries.get(at.0 as usize));
                self.frames.intern(ProfileFrame { binary: binary.copied().map(BinaryIndex), ..frame.clone() })
            })
            .collect();
        let stacks: Vec<_> = part
            .stacks
            .iter()
            .map(|stack| {
                let frames = stack.iter().filter_map(|at| frames.get(at.0 as usize)).copied();
                self.stacks.intern(frames.map(FrameIndex).collect())
            })
            .collect();
        let threads: Vec<_> = part.threads.iter().map(|thread| self.threads.intern(thread.clone())).collect();
        let spans: Vec<_> = part.spans.iter().map(|span| self.spans.intern(*span)).collect();
        let states: Vec<_> = part.states.iter().map(|state| self.states.intern(state.clone())).collect();
        let mut counts = HashMap::<ProfileSample, u64>::new();
        for sample in &part.samples {
            let (Some(&stack), Some(&thread)) =
                (stacks.get(sample.stack.0 as usize), threads.get(sample.thread.0 as usize))
            else {
                continue;
            };
            let span = sample.span.and_then(|span| spans.get(span.0 as usize)).copied().map(SpanIndex);
            let state = sample.state.and_then(|state| states.get(state.0 as usize)).copied().map(StateIndex);
            let (stack, thread) = (StackIndex(stack), ThreadIndex(thread));
            *counts
                .entry(ProfileSample {
                    slice,
                    thread,
                    span,
                    state,
                    attributes: AttributeSetIndex::EMPTY,
                    stack,
                    count: 0,
                })
                .or_default() += sample.count;
        }
        samples.extend(counts.into_iter().map(|(sample, count)| ProfileSample { count, ..sample }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{one_stack, sample};

    #[test]
    fn what_both_have_is_held_once_and_every_event_is_kept() {
        let joined = merge(&sample(), &sample());
        assert_eq!(joined.total_count(), 28);
        assert_eq!((joined.frames.len(), joined.stacks.len(), joined.threads.len()), (5, 5, 1));
        assert_eq!(joined.samples.iter().filter(|sample| sample.slice == 1).count(), 5);
    }

    #[test]
    fn what_one_has_is_added() {
        let joined = merge(&sample(), &one_stack(&["main", "other"]));
        assert_eq!(joined.total_count(), 15);
        assert_eq!(joined.stacks.len(), 6);
        assert_eq!(joined.recordings[1].slices, 1..2);
    }
}
