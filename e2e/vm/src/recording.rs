//! A recording in a guest of a program whose chain of calls is known.

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use sidewinder_e2e_support::conservation::{Summary, has_user_stack};
use sidewinder_e2e_support::workload;

use crate::guest::Told;

/// What a recording has to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of the samples that found a user stack, so many are complete.
    pub(crate) complete_percent: f64,
    /// Of all samples that are complete, so many show the whole chain: the rest were taken before it began or after it ended.
    pub(crate) whole_chain_percent: f64,
}

/// What the profiler says of the program.
pub(crate) struct Recording {
    pub(crate) summary: Summary,
    pub(crate) chains: Chains,
}

impl Recording {
    /// Of the recording `name`, in which the program that `chain` names ran.
    pub(crate) fn read(told: &Told, name: &str, chain: &str) -> Result<Self> {
        let chain = workload::report_in(told.section(&format!("{chain}.chain"))?)?.chain;
        Self::of_chain(told, name, &chain)
    }

    /// Of the recording `name` of a program with this chain, outermost first.
    pub(crate) fn of_chain(told: &Told, name: &str, chain: &[String]) -> Result<Self> {
        let chains = Chains::judge(told.section(&format!("{name}.folded"))?, chain);
        Ok(Self { summary: read_summary(told, name)?, chains })
    }

    /// A line for people, and one more for what is not complete.
    pub(crate) fn row(&self, name: &str) -> String {
        let Self { summary, chains } = self;
        let row = format!(
            "  {name:<11} {:>5} samples, {:>6.2}% complete, {:>6.2}% of these with the whole chain, {} wrong, {:.2}% in the kernel",
            summary.with_user_stack(),
            100.0 * summary.complete_share(),
            percent(chains.whole, summary.outcome("complete")),
            chains.wrong,
            percent(chains.in_kernel, chains.received),
        );
        let is_cut =
            |(name, count): &(&String, &u64)| has_user_stack(name) && **count > 0 && *name != "complete";
        let cut: Vec<String> =
            summary.outcomes.iter().filter(is_cut).map(|(name, count)| format!("{count} {name}")).collect();
        if cut.is_empty() { format!("{row}\n") } else { format!("{row}; {}\n", cut.join(", ")) }
    }

    pub(crate) fn failures(&self, limits: Limits, cpus: u64) -> impl Iterator<Item = String> {
        let summary = &self.summary;
        let complete = 100.0 * summary.complete_share();
        let whole = percent(self.chains.whole, summary.outcome("complete"));
        let law = summary.check(self.chains.received, cpus);
        let Limits { complete_percent, whole_chain_percent } = limits;
        [
            (summary.with_user_stack() < 100).then(|| format!("too few samples: {summary:?}")),
            (complete < complete_percent).then(|| format!("{complete:.2}% are complete: {summary:?}")),
            (whole < whole_chain_percent).then(|| format!("{whole:.2}% show the whole chain")),
            self.chains
                .wrong_stack
                .as_ref()
                .map(|stack| format!("{} stacks were never there, such as {stack}", self.chains.wrong)),
            law.err().map(|breach| breach.to_string()),
        ]
        .into_iter()
        .flatten()
    }
}

/// What `record --summary-json` wrote.
pub(crate) fn read_summary<T: DeserializeOwned>(told: &Told, name: &str) -> Result<T> {
    serde_json::from_str(told.section(&format!("{name}.json"))?)
        .with_context(|| format!("no summary: {}", told.section(&format!("{name}.log")).unwrap_or_default()))
}

/// Samples of a profile, by what they show of a chain of calls.
#[derive(Default)]
pub(crate) struct Chains {
    pub(crate) received: u64,
    pub(crate) whole: u64,
    pub(crate) wrong: u64,
    /// One of these.
    wrong_stack: Option<String>,
    pub(crate) in_kernel: u64,
}

impl Chains {
    /// Judges stacks in folded form. One that is marked as cut keeps its leaf end, so it says nothing of the chain's start.
    fn judge(folded: &str, chain: &[String]) -> Self {
        let mut chains = Self::default();
        for (stack, count) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
            let count: u64 = count.parse().unwrap_or(0);
            // The first name is the process's.
            let frames = stack.split(';').skip(1).filter(|frame| chain.iter().any(|name| name == frame));
            let frames: Vec<&str> = frames.collect();
            let is_on_chain =
                chain.len() >= frames.len() && frames.iter().zip(chain).all(|(frame, name)| frame == name);
            chains.received += count;
            chains.in_kernel += if stack.ends_with("_[k]") { count } else { 0 };
            if is_on_chain {
                chains.whole += if frames.len() == chain.len() { count } else { 0 };
            } else if !stack.contains("[truncated: ") {
                chains.wrong += count;
                chains.wrong_stack.get_or_insert_with(|| stack.to_owned());
            }
        }
        chains
    }
}

pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_follows_the_chain_from_its_start_or_is_wrong_unless_it_is_cut() {
        let chain = ["main", "outer", "inner"].map(str::to_owned);
        let folded = "p;_start;main;outer;inner;clock 5\np;_start;main 3\np;_start;outer;inner 2\n\
                      p;[truncated: frame_limit];outer;inner 7\np;_start;main;inner 1\n";
        let chains = Chains::judge(folded, &chain);
        assert_eq!((chains.received, chains.whole, chains.wrong), (18, 5, 3));
    }
}
