//! Samples that have arrived before the process events of their time.

use std::collections::VecDeque;
use std::sync::Arc;

use sidewinder_bpf::Sample;

use super::stacks::Stacks;
use crate::sampling::feed::Stack;

/// The polls that a sample waits for its stack.
pub(crate) const STACK_PATIENCE_POLLS: u32 = 3;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct PendingSamples {
    /// By time.
    samples: VecDeque<PendingSample>,
}

#[derive(Debug)]
struct PendingSample {
    sample: Sample,
    /// The polls since the sample arrived.
    polls: u32,
}

impl PendingSamples {
    /// Counts a poll.
    pub(super) fn begin_poll(&mut self) {
        self.samples.iter_mut().for_each(|pending| pending.polls += 1);
    }

    /// Adds a sample. [`Self::sort`] follows the last of a poll.
    pub(super) fn push(&mut self, sample: Sample) {
        self.samples.push_back(PendingSample { sample, polls: 0 });
    }

    /// Puts the samples in order of time.
    pub(super) fn sort(&mut self) {
        self.samples.make_contiguous().sort_by_key(|pending| pending.sample.time_ns);
    }

    /// Takes the samples from before a time, but those whose stack may still arrive.
    pub(super) fn take_before(
        &mut self,
        before_ns: u64,
        stacks: &mut Stacks,
    ) -> Vec<(Sample, Option<Arc<Stack>>)> {
        let (mut ready, mut without_stack) = (Vec::new(), Vec::new());
        while self.samples.front().is_some_and(|next| next.sample.time_ns < before_ns)
            && let Some(pending) = self.samples.pop_front()
        {
            match stacks.get(pending.sample.stack) {
                None if pending.polls < STACK_PATIENCE_POLLS => without_stack.push(pending),
                stack => ready.push((pending.sample, stack)),
            }
        }
        without_stack.into_iter().rev().for_each(|pending| self.samples.push_front(pending));
        ready
    }
}
