//! Merges two recordings into one profile, for comparison.

use std::collections::HashMap;
use std::time::Duration;

use sidewinder_profile::{Dictionary, DictionaryCopier, StatedAttributes, Table};

use crate::profile::{
    MergedRecording, Profile, ProfileSample, ProfileThread, StateIndex, ThreadIndex, ThreadState,
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
    merged.dictionary = tables.dictionary;
    merged.threads = tables.threads.into_values();
    merged.states = tables.states.into_values();
    merged
}

#[derive(Default)]
struct MergedTables {
    dictionary: Dictionary,
    threads: Table<ThreadIndex, ProfileThread>,
    states: Table<StateIndex, ThreadState>,
}

impl MergedTables {
    fn add(&mut self, part: &Profile, slice: u32, samples: &mut Vec<ProfileSample>) {
        let mut copier = DictionaryCopier::new(&part.dictionary);
        let threads: Vec<_> = part.threads.iter().map(|thread| self.threads.intern(thread.clone())).collect();
        let states: Vec<_> = part.states.iter().map(|state| self.states.intern(state.clone())).collect();
        let mut counts = HashMap::<ProfileSample, u64>::new();
        for sample in &part.samples {
            let Some(&thread) = threads.get(sample.thread.0 as usize) else { continue };
            let state = sample.state.and_then(|state| states.get(state.0 as usize)).copied();
            *counts
                .entry(ProfileSample {
                    slice,
                    thread,
                    span: copier.link(&mut self.dictionary, sample.span),
                    state,
                    stated: StatedAttributes::default(),
                    stack: copier.stack(&mut self.dictionary, sample.stack),
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
    use crate::profile::tests::{frame_names, one_stack, sample};

    #[test]
    fn what_both_have_is_held_once_and_every_event_is_kept() {
        let joined = merge(&sample(), &sample());
        assert_eq!(joined.total_count(), 28);
        let dictionary = &joined.dictionary;
        let counts = (frame_names(&joined).len(), dictionary.stack_count(), joined.threads.len());
        assert_eq!(counts, (5, 6, 1), "and the empty stack");
        assert_eq!(joined.samples.iter().filter(|sample| sample.slice == 1).count(), 5);
    }

    #[test]
    fn what_one_has_is_added() {
        let joined = merge(&sample(), &one_stack(&["main", "other"]));
        assert_eq!(joined.total_count(), 15);
        assert_eq!(joined.dictionary.stack_count(), 7);
        assert_eq!(joined.recordings[1].slices, 1..2);
    }
}
