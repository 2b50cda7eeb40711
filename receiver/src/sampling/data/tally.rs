//! The tally of interrupts by outcome.

use std::collections::BTreeMap;

use sidewinder_bpf::{Interrupts, Outcome, SampleKind, SampleRecord};

use super::code_objects::CodeObjectLosses;

/// The outcomes of all interrupts since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct SamplingTally {
    pub(crate) interrupts: Interrupts,
    /// Emitted events.
    pub(crate) events: u64,
    /// Emitted events without their stack.
    pub(crate) stacks_missing: u64,
    /// Emitted events with the stack and the outcome of a deferred walk.
    pub(crate) deferred_walks: u64,
    /// Walks that were missing something, and for whose snapshot there was no room.
    pub(crate) snapshots_refused: u64,
    /// Functions that young processes have sent, and that were dropped.
    pub(crate) code_object_losses: CodeObjectLosses,
}

/// The interrupts whose outcome user space has corrected.
#[derive(Debug, Default)]
pub(super) struct OutcomeCorrections {
    /// The number of interrupts, by the outcome that the eBPF programs counted and the corrected one.
    by_outcomes: BTreeMap<(Outcome, Outcome), u64>,
}

impl OutcomeCorrections {
    /// Records the corrected outcome of a sample.
    pub(super) fn add(&mut self, sample: &SampleRecord, outcome: Outcome) {
        // The eBPF programs count only interrupts, which have the kind `Cpu`.
        if sample.kind == SampleKind::Cpu {
            *self.by_outcomes.entry((sample.outcome, outcome)).or_default() += 1;
        }
    }

    /// Moves interrupts from the outcomes that the eBPF programs counted to the corrected ones.
    pub(super) fn apply(&self, interrupts: &mut Interrupts) {
        for ((counted, corrected), count) in &self.by_outcomes {
            for (outcome, total) in &mut interrupts.outcomes {
                if outcome == counted {
                    *total = total.saturating_sub(*count);
                }
                if outcome == corrected {
                    *total += count;
                }
            }
        }
    }
}
