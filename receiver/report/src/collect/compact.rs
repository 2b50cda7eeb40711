//! Compaction of a profile's tables: entries that no sample refers to any more are dropped, and the others get new indices.

use std::collections::HashMap;
use std::mem;

use sidewinder_profile::DictionaryCopier;
use sidewinder_render::{Profile, ProfileSample, ThreadIndex};

use super::profile_builder::ProfileBuilder;

impl ProfileBuilder {
    /// Keeps only what these samples refer to, and all states of threads, and updates their indices. Returns the new indices of
    /// threads.
    pub(super) fn retain_referenced<'a>(
        &mut self,
        samples: impl Iterator<Item = &'a mut ProfileSample>,
    ) -> HashMap<ThreadIndex, ThreadIndex> {
        let Profile { title, measure, shape, start, slice, states, .. } = &self.profile;
        let empty = Profile::new(title.clone(), measure.clone());
        let kept = Profile { shape: *shape, start: *start, slice: *slice, states: states.clone(), ..empty };
        let old = mem::replace(self, Self::new(kept)).profile;
        let Profile { dictionary, threads, .. } = &mut self.profile;
        let mut copier = DictionaryCopier::new(&old.dictionary);
        let mut new_threads = HashMap::new();
        for sample in samples {
            let thread = *new_threads.entry(sample.thread).or_insert_with(|| {
                threads.extend(old.threads.get(sample.thread.0 as usize).cloned());
                ThreadIndex(threads.len() as u32 - 1)
            });
            let span = copier.link(dictionary, sample.span);
            let stack = copier.stack(dictionary, sample.stack);
            *sample = ProfileSample { thread, span, stack, ..*sample };
        }
        new_threads
    }
}
