//! The tally of interrupts by outcome.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use sidewinder_bpf::{Interrupts, Outcome, SampleKind, SampleRecord, UserProbeHits};
use sidewinder_kind::{Kind, KindSet, SampledProbe};

use super::code_objects::CodeObjectLosses;

/// The outcomes of all interrupts since the start.
#[derive(Clone, Debug, Default)]
pub struct SamplingTally {
    /// By kind of profile.
    pub interrupts: Vec<(Kind, Interrupts)>,
    /// Emitted events.
    pub events: u64,
    /// Emitted events without their stack.
    pub stack_bodies_missing: u64,
    /// Emitted events with the stack and the outcome of a deferred walk.
    pub walked_late: u64,
    /// Frames of deferred walks that stand for missing ones of a runtime.
    pub early_vm_frames: u64,
    /// Walks that were missing something, and for whose snapshot there was no room.
    pub snapshots_refused: u64,
    /// Waits that are missing from off-CPU time.
    pub off_cpu_waits_missing: WaitCounts,
    /// Waits without an interrupt of their own, and their events.
    pub long_waits: LongWaitCounts,
    /// The hits of probes.
    pub probes: Vec<(SampledProbe, UserProbeHits)>,
    /// Functions that young processes have sent, and that were dropped.
    pub code_object_losses: CodeObjectLosses,
}

/// Waits that are missing from off-CPU time, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitCounts {
    /// Threads had begun to wait before the start.
    pub unseen: u64,
    /// Records of ends for which the ring had no room.
    pub end_lost: u64,
    /// Sampled waits whose end never came: its record was lost, or the thread was gone at the end.
    pub without_end: u64,
    /// Wakers that are missing: their samples without the wait that they ended, and waits without the sample of their waker.
    pub waker_unmatched: u64,
}

/// Waits that were charged, or found, before they ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LongWaitCounts {
    /// Waits that were found in progress, since before the start or since a switch that sampling skipped.
    pub off_cpu_waits_found: FoundWaitCounts,
    /// Events of waits that went on: a wait has one for each time that it is charged.
    pub off_cpu_events_so_far: u64,
    /// How often the waits in progress could not be listed.
    pub off_cpu_lists_failed: u64,
}

/// Waits that were found in progress, by what became of their stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FoundWaitCounts {
    /// It was read.
    pub read: u64,
    /// It could not be read.
    pub unread: u64,
}

impl AddAssign for FoundWaitCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { read, unread } = more;
        self.read += read;
        self.unread += unread;
    }
}

impl AddAssign for LongWaitCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { off_cpu_waits_found, off_cpu_events_so_far, off_cpu_lists_failed } = more;
        self.off_cpu_waits_found += off_cpu_waits_found;
        self.off_cpu_events_so_far += off_cpu_events_so_far;
        self.off_cpu_lists_failed += off_cpu_lists_failed;
    }
}

impl AddAssign for WaitCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { unseen, end_lost, without_end, waker_unmatched } = more;
        self.unseen += unseen;
        self.end_lost += end_lost;
        self.without_end += without_end;
        self.waker_unmatched += waker_unmatched;
    }
}

impl SamplingTally {
    /// The interrupts for a kind of profile.
    pub fn interrupts_of(&self, kind: Kind) -> Interrupts {
        let sources = KindSet::new(kind).sampled();
        let of_sources = sources.iter().map(|source| self.find(|of| of == source));
        of_sources.reduce(|sum, of_source| sum.plus(&of_source)).unwrap_or_default()
    }

    /// The interrupts of the CPU clock.
    pub fn clock_interrupts(&self) -> Interrupts {
        self.find(is_of_clock)
    }

    /// The interrupts for all kinds of profile but CPU time. Those that are for several kinds are there once, for the first
    /// of these.
    pub fn interrupts_of_other_kinds(&self) -> impl Iterator<Item = (Kind, &Interrupts)> {
        let hook = |kind: Kind| kind.descriptor().hook;
        let others = self.interrupts.iter().enumerate().filter(move |(at, (kind, _))| {
            let mut before = self.interrupts.iter().take(*at);
            !is_of_clock(*kind) && before.all(|(earlier, _)| hook(*earlier) != hook(*kind))
        });
        others.map(|(_, (kind, interrupts))| (*kind, interrupts))
    }

    fn find(&self, is_wanted: impl Fn(Kind) -> bool) -> Interrupts {
        let found = self.interrupts.iter().find(|(kind, _)| is_wanted(*kind));
        found.map_or_else(Interrupts::default, |(_, interrupts)| interrupts.clone())
    }
}

fn is_of_clock(kind: Kind) -> bool {
    matches!(kind, Kind::Cpu { .. })
}

/// The interrupts whose outcome user space has corrected.
#[derive(Debug, Default)]
pub(super) struct OutcomeCorrections {
    /// The number of interrupts, by kind, the outcome that the eBPF programs counted, and the corrected one.
    by_outcomes: BTreeMap<(SampleKind, Outcome, Outcome), u64>,
}

impl OutcomeCorrections {
    /// Records the corrected outcome of a sample.
    pub(super) fn add(&mut self, sample: &SampleRecord, outcome: Outcome) {
        *self.by_outcomes.entry((sample.kind, sample.outcome, outcome)).or_default() += 1;
    }

    /// Moves interrupts of a kind from the outcomes that the eBPF programs counted to the corrected ones.
    pub(super) fn apply(&self, kind: SampleKind, interrupts: &mut Interrupts) {
        let of_kind = self.by_outcomes.iter().filter(|((of, ..), _)| *of == kind);
        for ((_, counted, corrected), count) in of_kind {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_share_their_interrupts_are_there_once_and_each_probe_for_itself() {
        let probes = ["first", "second"].map(|name| Kind::Probe(SampledProbe::new(name, None)));
        let kinds = KindSet::new(Kind::Cpu { samples_per_second: 19 }).with(Kind::OffCpu).with_locks();
        let kinds = probes.into_iter().fold(kinds, KindSet::with);
        let interrupts = kinds.iter().map(|kind| (kind, Interrupts::default())).collect();
        let tally = SamplingTally { interrupts, ..SamplingTally::default() };
        let others: Vec<_> = tally.interrupts_of_other_kinds().map(|(kind, _)| kind).collect();
        assert_eq!(others, [Kind::OffCpu, probes[0], probes[1]]);
    }
}
