//! How interrupts ended.

use std::collections::BTreeMap;

use sidewinder_bpf::{Interrupts, Outcome, SampleKind, SampleRecord};

/// How all interrupts since the start ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct SamplingTally {
    pub(crate) interrupts: Interrupts,
    /// Events that were emitted.
    pub(crate) events: u64,
    /// Of these, without their stack.
    pub(crate) stacks_missing: u64,
    /// Of these, with the stack of a deferred walk, whose outcome is theirs.
    pub(crate) deferred_walks: u64,
    /// Walks that lacked something, and for whose snapshot there was no room.
    pub(crate) snapshots_refused: u64,
}

/// Interrupts whose outcome user space has changed.
#[derive(Debug, Default)]
pub(super) struct OutcomeCorrections {
    /// By the outcome that the kernel side counted, and the one that counts.
    by_outcomes: BTreeMap<(Outcome, Outcome), u64>,
}

impl OutcomeCorrections {
    /// Changes the outcome of a sample.
    pub(super) fn add(&mut self, sample: &SampleRecord, outcome: Outcome) {
        // The kernel side counts only interrupts.
        if sample.kind == SampleKind::Cpu {
            *self.by_outcomes.entry((sample.outcome, outcome)).or_default() += 1;
        }
    }

    /// Moves the counts of the kernel side to the outcomes that count.
    pub(super) fn apply(&self, interrupts: &mut Interrupts) {
        for ((counted, right), count) in &self.by_outcomes {
            for (outcome, total) in &mut interrupts.outcomes {
                if outcome == counted {
                    *total = total.saturating_sub(*count);
                }
                if outcome == right {
                    *total += count;
                }
            }
        }
    }
}
