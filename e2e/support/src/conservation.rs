//! The law that every interrupt ends in exactly one counted outcome.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// What the profiler says at its end (`record --summary-json`).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Summary {
    /// Interrupts as the perf events' own clocks tell them, which is outside of the profiler's code.
    pub interrupts_by_witness: u64,
    /// Interrupts by their outcome, those that no program run saw (`missed`) among them.
    pub outcomes: BTreeMap<String, u64>,
    /// Events that left for the exporters.
    pub events_exported: u64,
    /// Interrupts among the idle ones for which no program ran: the CPU slept through them.
    pub idle_inferred: u64,
}

/// Why a summary breaks the law.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Breach {
    /// The outcomes do not add up to what the witness counted.
    Outcomes {
        /// The witness's number.
        witness: u64,
        /// The sum of the outcomes.
        sum: u64,
    },
    /// The receiver got another number of events than left.
    Received {
        /// Events that left.
        exported: u64,
        /// Events that arrived.
        received: u64,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outcomes { witness, sum } => {
                write!(f, "the witness counted {witness} interrupts, the outcomes add up to {sum}")
            }
            Self::Received { exported, received } => {
                write!(f, "{exported} events left, {received} arrived")
            }
        }
    }
}

impl std::error::Error for Breach {}

impl Summary {
    /// The sum of all outcomes.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.outcomes.values().sum()
    }

    /// Interrupts with this outcome.
    #[must_use]
    pub fn outcome(&self, name: &str) -> u64 {
        self.outcomes.get(name).copied().unwrap_or_default()
    }

    /// Interrupts that found a user stack, or should have.
    #[must_use]
    pub fn with_user_stack(&self) -> u64 {
        self.outcomes.iter().filter(|(name, _)| has_user_stack(name)).map(|(_, count)| count).sum()
    }

    /// The share of complete stacks among those.
    #[must_use]
    pub fn complete_share(&self) -> f64 {
        self.outcome("complete") as f64 / self.with_user_stack().max(1) as f64
    }

    /// Checks the law from the interrupt to the receiver, which got `received` events.
    ///
    /// The witness reads each CPU's clock at another instant than the counters, so that the two may differ by
    /// an interrupt at either end of the run on each of the `cpus`.
    ///
    /// # Errors
    /// The first breach.
    pub fn check(&self, received: u64, cpus: u64) -> Result<(), Breach> {
        let (witness, sum) = (self.interrupts_by_witness, self.sum());
        if witness.abs_diff(sum) > 2 * cpus {
            return Err(Breach::Outcomes { witness, sum });
        }
        if received != self.events_exported {
            return Err(Breach::Received { exported: self.events_exported, received });
        }
        Ok(())
    }

    /// The summary as it would be if one outcome were not counted.
    #[must_use]
    pub fn without(&self, outcome: &str) -> Self {
        let mut less = self.clone();
        less.outcomes.remove(outcome);
        less
    }
}

/// Whether interrupts that end so found a user stack, or should have.
#[must_use]
pub fn has_user_stack(outcome: &str) -> bool {
    !["idle", "out_of_scope", "kernel_thread", "exec", "exiting", "missed"].contains(&outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let outcomes = [("complete", 900), ("idle", 80), ("missed", 20)];
        Summary {
            interrupts_by_witness: 1_000,
            outcomes: outcomes.map(|(name, count)| (name.to_owned(), count)).into(),
            events_exported: 900,
            idle_inferred: 0,
        }
    }

    #[test]
    fn a_run_in_which_everything_is_counted_conserves_interrupts() {
        assert_eq!(summary().check(900, 2), Ok(()));
    }

    #[test]
    fn leaving_any_outcome_out_breaks_the_law() {
        let whole = summary();
        for (outcome, count) in &whole.outcomes {
            let breach = Breach::Outcomes { witness: 1_000, sum: 1_000 - count };
            assert_eq!(whole.without(outcome).check(900, 2), Err(breach), "{outcome}");
        }
    }

    #[test]
    fn an_event_that_is_lost_on_the_way_breaks_the_law() {
        assert_eq!(summary().check(899, 2), Err(Breach::Received { exported: 900, received: 899 }));
    }
}
