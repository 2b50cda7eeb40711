//! Compaction of a profile's tables: entries that no sample refers to any more are dropped, and the others get new indices.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

use sidewinder_render::{
    BinaryIndex, FrameIndex, Profile, ProfileSample, SpanIndex, StackIndex, ThreadIndex,
};

use super::profile_builder::{BorrowedFrame, ProfileBuilder};

/// The new indices of a table's entries, by their old indices.
pub(super) struct IndexRemap<T>(Vec<Option<T>>);

impl<T: Copy> IndexRemap<T> {
    fn new(count: usize) -> Self {
        Self(vec![None; count])
    }

    /// The new index of an entry; `insert` moves it to the new table the first time. `None`: the old table has no such
    /// entry.
    fn remap_or_insert_with(&mut self, from: u32, insert: impl FnOnce() -> T) -> Option<T> {
        self.0.get_mut(from as usize).map(|to| *to.get_or_insert_with(insert))
    }

    fn get(&self, from: u32) -> Option<T> {
        self.0.get(from as usize).copied().flatten()
    }

    /// The entries of `indices` that were kept, with their new indices. `raw` gives the integer of an index.
    pub(super) fn remap_values<K: Eq + Hash>(
        &self,
        indices: HashMap<K, T>,
        raw: impl Fn(T) -> u32,
    ) -> HashMap<K, T> {
        indices.into_iter().filter_map(|(key, index)| Some((key, self.get(raw(index))?))).collect()
    }
}

impl ProfileBuilder {
    /// Keeps only what these samples refer to, and all states of threads, and updates their indices. Returns the remapped indices of threads and spans.
    pub(super) fn retain_referenced<'a>(
        &mut self,
        samples: impl Iterator<Item = &'a mut ProfileSample>,
    ) -> (IndexRemap<ThreadIndex>, IndexRemap<SpanIndex>) {
        let Profile { title, measure, shape, start, slice, states, .. } = &self.profile;
        let empty = Profile::new(title.clone(), measure.clone());
        let kept = Profile { shape: *shape, start: *start, slice: *slice, states: states.clone(), ..empty };
        let old = mem::replace(self, Self::new(kept));
        let from = &old.profile;
        let mut binaries = IndexRemap::<BinaryIndex>::new(from.binaries.len());
        let mut frames = IndexRemap::<FrameIndex>::new(from.frames.len());
        let mut stacks = IndexRemap::<StackIndex>::new(from.stacks.len());
        let mut threads = IndexRemap::<ThreadIndex>::new(from.threads.len());
        let mut spans = IndexRemap::<SpanIndex>::new(from.spans.len());
        for sample in samples {
            let thread = threads.remap_or_insert_with(sample.thread.0, || {
                self.profile.threads.extend(from.threads.get(sample.thread.0 as usize).cloned());
                ThreadIndex(self.profile.threads.len() as u32 - 1)
            });
            let span = sample.span.and_then(|span| {
                spans.remap_or_insert_with(span.0, || {
                    self.profile.spans.extend(from.spans.get(span.0 as usize));
                    SpanIndex(self.profile.spans.len() as u32 - 1)
                })
            });
            let stack = stacks.remap_or_insert_with(sample.stack.0, || {
                let old_frames = from.stacks.get(sample.stack.0 as usize).map_or(&[][..], Vec::as_slice);
                let moved = old_frames.iter().filter_map(|index| {
                    let frame = from.frames.get(index.0 as usize)?;
                    frames.remap_or_insert_with(index.0, || {
                        let binary = frame.binary.and_then(|binary| {
                            binaries.remap_or_insert_with(binary.0, || {
                                self.profile.binaries.extend(from.binaries.get(binary.0 as usize).cloned());
                                BinaryIndex(self.profile.binaries.len() as u32 - 1)
                            })
                        });
                        self.intern_frame(&BorrowedFrame { binary, ..frame.into() })
                    })
                });
                let moved = moved.collect();
                self.intern_stack(moved)
            });
            if let (Some(thread), Some(stack)) = (thread, stack) {
                *sample = ProfileSample { thread, span, stack, ..*sample };
            }
        }
        self.binary_indices = binaries.remap_values(old.binary_indices, |binary| binary.0);
        self.kernel = old.kernel.and_then(|kernel| binaries.get(kernel.0));
        self.stack_indices = stacks.remap_values(old.stack_indices, |stack| stack.0);
        (threads, spans)
    }
}
