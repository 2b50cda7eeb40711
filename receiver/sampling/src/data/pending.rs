//! Samples that have arrived before all process events up to their time.

use std::collections::VecDeque;
use std::sync::Arc;

use sidewinder_bpf::SampleRecord;
use sidewinder_message::Stack;

use super::stacks::StackCache;

/// How many polls a sample waits for its stack.
pub(crate) const STACK_TIMEOUT_POLLS: u32 = 3;

/// The samples that wait to be released.
#[derive(Debug, Default)]
pub(super) struct PendingSamples {
    /// Sorted by time.
    samples: VecDeque<PendingSample>,
}

#[derive(Debug)]
struct PendingSample {
    sample: SampleRecord,
    /// The number of polls since the sample arrived.
    polls: u32,
}

impl PendingSamples {
    /// Counts a poll for all pending samples.
    pub(super) fn begin_poll(&mut self) {
        self.samples.iter_mut().for_each(|pending| pending.polls += 1);
    }

    /// Adds a sample. Call [`Self::sort`] after the last one of a poll.
    pub(super) fn push(&mut self, sample: SampleRecord) {
        self.samples.push_back(PendingSample { sample, polls: 0 });
    }

    /// Sorts the samples by time.
    pub(super) fn sort(&mut self) {
        self.samples.make_contiguous().sort_by_key(|pending| pending.sample.time_ns);
    }

    /// Takes the samples from before a time, except those whose stack may still arrive.
    pub(super) fn take_before(
        &mut self,
        before_ns: u64,
        stacks: &mut StackCache,
    ) -> Vec<(SampleRecord, Option<Arc<Stack>>)> {
        let (mut ready, mut without_stack) = (Vec::new(), Vec::new());
        while self.samples.front().is_some_and(|next| next.sample.time_ns < before_ns)
            && let Some(pending) = self.samples.pop_front()
        {
            match stacks.get(pending.sample.stack) {
                None if pending.polls < STACK_TIMEOUT_POLLS => without_stack.push(pending),
                stack => ready.push((pending.sample, stack)),
            }
        }
        without_stack.into_iter().rev().for_each(|pending| self.samples.push_front(pending));
        ready
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_bpf::{Outcome, SampleKind, StackBody, StackEntries, StackHash};

    use super::*;

    fn sample(time_ns: u64, stack: u64) -> SampleRecord {
        SampleRecord {
            kind: SampleKind::Cpu,
            value: 1,
            time_ns,
            stack: StackHash(stack, 0),
            epoch: 1,
            pid: 1,
            tid: 1,
            cpu: 0,
            outcome: Outcome::Complete,
            in_kernel: false,
            has_snapshot: false,
            comm: [0; 16],
            context: None,
            labels: None,
            wait: None,
        }
    }

    #[test]
    fn samples_are_taken_in_order_of_time_and_wait_a_few_polls_for_their_stack() {
        let mut stacks = StackCache::default();
        stacks.insert(StackBody {
            hash: StackHash(7, 0),
            epoch: 1,
            entries: StackEntries::Frames(Box::default()),
        });
        let mut pending = PendingSamples::default();
        for (time_ns, stack) in [(3, 7), (1, 7), (2, 8), (9, 7)] {
            pending.push(sample(time_ns, stack));
        }
        pending.sort();
        let mut taken = |before_ns| -> Vec<(u64, bool)> {
            pending.begin_poll();
            let taken = pending.take_before(before_ns, &mut stacks).into_iter();
            taken.map(|(sample, stack)| (sample.time_ns, stack.is_some())).collect()
        };
        assert_eq!(taken(9), [(1, true), (3, true)], "the missing stack may still arrive");
        assert!(taken(9).is_empty());
        assert_eq!(taken(9), [(2, false)]);
        assert_eq!(taken(10), [(9, true)]);
    }
}
