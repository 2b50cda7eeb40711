//! The outcomes of interrupts as profiles and pages show them: each with what it means for the profile.

use sidewinder_bpf::{Outcome, StealTime};
use sidewinder_kind::Kind;
use sidewinder_naming::STACK_MISSING_SUMMARY;
use sidewinder_render::{OutcomeCount, Severity};
use sidewinder_sampling::SamplingTally;

use super::receiver::{MISSED, ReceiverCounters};

/// The lines of a recording's summary: the outcomes of its interrupts for a kind of profile.
pub fn outcome_counts(tally: &SamplingTally, kind: Kind) -> Vec<OutcomeCount> {
    let interrupts = tally.interrupts_of(kind);
    let counts = interrupts.outcomes.iter().copied();
    let missed = missed_row(kind, interrupts.missed(), interrupts.steal);
    outcome_counts_with(counts, [missed, row(NO_BODY, tally.stack_bodies_missing)])
}

/// The same from the counters of a running receiver, for the live page.
pub fn current_outcome_counts(counters: &ReceiverCounters, kind: Kind) -> Vec<OutcomeCount> {
    let counts = Outcome::ALL
        .iter()
        .filter_map(|&outcome| Some((outcome, counters.outcome_count(kind, outcome.label())?)));
    let others = [
        missed_row(kind, counters.outcome_count(kind, MISSED).unwrap_or(0), counters.cpu_steal),
        row(NO_BODY, counters.stack_bodies_missing),
        row(DROPPED, counters.events_dropped),
    ];
    outcome_counts_with(counts, others)
}

/// An outcome that no walk reports: its name, what it means for the profile, and an explanation.
type UnwalkedOutcome = (&'static str, Severity, &'static str);
const NO_BODY: UnwalkedOutcome = (
    STACK_MISSING_SUMMARY,
    Severity::Truncated,
    "these samples, counted above by how their walk ended, arrived without their stack",
);
const DROPPED: UnwalkedOutcome = (
    "dropped",
    Severity::Lost,
    "these samples, counted above by how their walk ended, came faster than they could be named",
);

fn row((name, severity, help): UnwalkedOutcome, count: u64) -> OutcomeCount {
    OutcomeCount { name: name.to_owned(), count, severity, help: help.to_owned() }
}

/// The row of interrupts without a program run. Those of the clock are mostly explained by steal time, on virtual machines.
fn missed_row(kind: Kind, count: u64, steal: StealTime) -> OutcomeCount {
    let cause = "timer interrupts that never ran, usually because the virtual machine was descheduled";
    let help = match (kind, steal.share()) {
        (Kind::Cpu { .. } | Kind::Wall { .. }, Some(share)) => {
            format!("{cause} (steal time in this period: {:.1}%)", 100.0 * share)
        }
        (Kind::Cpu { .. } | Kind::Wall { .. }, None) => cause.to_owned(),
        _ => "the kernel did not run the program for these interrupts".to_owned(),
    };
    OutcomeCount { help, ..row((MISSED, Severity::Lost, ""), count) }
}

fn outcome_counts_with<const OTHERS: usize>(
    counts: impl Iterator<Item = (Outcome, u64)>,
    others: [OutcomeCount; OTHERS],
) -> Vec<OutcomeCount> {
    let walk_outcomes =
        counts.map(|(outcome, count)| row((outcome.summary(), severity(outcome), outcome.meaning()), count));
    walk_outcomes.chain(others).filter(|row| row.count > 0).collect()
}

fn severity(outcome: Outcome) -> Severity {
    match outcome {
        Outcome::Complete => Severity::Complete,
        Outcome::Busy | Outcome::RingFull => Severity::Lost,
        truncated if truncated.is_loss() => Severity::Truncated,
        _ => Severity::Excluded,
    }
}
