//! How interrupts ended.

use std::collections::BTreeMap;

use sidewinder_bpf::{Interrupts, Outcome, Sample, SampleKind};

/// How all interrupts since the start ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) interrupts: Interrupts,
    /// Events that were handed on.
    pub(crate) events: u64,
    /// Of these, without their stack.
    pub(crate) bodies_missing: u64,
    /// Of these, with a stack that was walked after the interrupt. Their outcomes are those of the late walks.
    pub(crate) walked_late: u64,
    /// Walks that came too early, and of which too little was kept to walk again.
    pub(crate) snapshots_refused: u64,
}

/// Interrupts of which the kernel side did not have the last word.
#[derive(Debug, Default)]
pub(in crate::sampling) struct Corrections {
    /// By the outcome that the kernel side counted, and by the one that counts.
    by_outcomes: BTreeMap<(Outcome, Outcome), u64>,
}

impl Corrections {
    /// Takes note that a sample ends otherwise than it says.
    pub(in crate::sampling) fn note(&mut self, sample: &Sample, outcome: Outcome) {
        // Only interrupts are counted by the kernel side.
        if sample.kind == SampleKind::Cpu {
            *self.by_outcomes.entry((sample.outcome, outcome)).or_default() += 1;
        }
    }

    /// Moves what was counted to where it belongs.
    pub(in crate::sampling) fn apply(&self, interrupts: &mut Interrupts) {
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
