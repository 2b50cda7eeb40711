//! The values of each function or binary in two recordings, and whether chance explains that they differ.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::comparison::{Comparison, VISIBLE_MIN};
use crate::escape::escaped_or_empty;
use crate::functions::{FunctionOrder, functions};
use crate::names::DisplayNames;
use crate::profile::Profile;
use crate::significance::false_discovery_threshold;

/// The part of the changes that are called certain, and that are chance all the same.
pub(super) const FALSE_DISCOVERY_RATE: f64 = 0.05;
/// What has a smaller share of the samples of both recordings together is not tested: of thousands of functions with a sample or
/// two, none shows a change, and each would raise what the others have to show. The share says nothing about the change.
pub(super) const TESTED_SHARE_MIN: f64 = 0.005;

/// Whether chance explains a change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Verdict {
    /// It doesn't; its probability is this.
    Certain(f64),
    /// It does.
    Noise(f64),
    /// Not tested: a share below [`TESTED_SHARE_MIN`].
    TooFew,
    /// Not tested: values are no numbers of samples.
    NoSamples,
}

impl Verdict {
    /// The probability that chance makes such a change, if it was tested.
    pub(super) fn chance(self) -> Option<f64> {
        match self {
            Self::Certain(chance) | Self::Noise(chance) => Some(chance),
            Self::TooFew | Self::NoSamples => None,
        }
    }

    /// Whether the change is no noise, as far as that can be known.
    pub(super) fn is_certain(self) -> bool {
        matches!(self, Self::Certain(_) | Self::NoSamples)
    }
}

/// What was counted in a function or a binary, before and after.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// As it is displayed.
    pub(super) name: String,
    /// Empty for a binary.
    pub(super) binary: String,
    pub(super) own: [u64; 2],
    pub(super) total: [u64; 2],
    pub(super) own_verdict: Verdict,
    pub(super) total_verdict: Verdict,
}

/// The functions, or the binaries, of both recordings.
pub(super) struct Changes {
    changes: Vec<Change>,
    /// How many of them had their own value tested.
    pub(super) tested: usize,
}

impl Changes {
    pub(super) fn of_functions(
        profiles: [&Profile; 2],
        names: &DisplayNames,
        comparison: &Comparison,
    ) -> Self {
        Self::new(
            profiles,
            |name, binary| (names.shown(name).into_owned(), escaped_or_empty(binary).into_owned()),
            comparison,
        )
    }

    pub(super) fn of_binaries(profiles: [&Profile; 2], comparison: &Comparison) -> Self {
        let key = |_: &str, binary: &str| (escaped_or_empty(binary).into_owned(), String::new());
        let mut binaries = Self::new(profiles, key, comparison);
        for binary in &mut binaries.changes {
            // A stack counts for each of its functions, so the sums of their totals mean nothing.
            (binary.total, binary.total_verdict) = ([0; 2], Verdict::TooFew);
        }
        binaries
    }

    /// Adds up the functions for which `key` returns the same name and binary.
    fn new(
        profiles: [&Profile; 2],
        key: impl Fn(&str, &str) -> (String, String),
        comparison: &Comparison,
    ) -> Self {
        let mut counts = HashMap::<(String, String), [[u64; 2]; 2]>::new();
        for (side, profile) in profiles.into_iter().enumerate() {
            for row in functions(profile) {
                let sums = counts.entry(key(&row.name, row.binary)).or_default();
                for (sum, count) in sums.iter_mut().zip([row.self_count, row.total_count]) {
                    if let Some(sum) = sum.get_mut(side) {
                        *sum = sum.saturating_add(count);
                    }
                }
            }
        }
        let counts: Vec<_> = counts.into_iter().collect();
        let own_verdicts = verdicts(counts.iter().map(|(_, [own, _])| *own), comparison);
        let total_verdicts = verdicts(counts.iter().map(|(_, [_, total])| *total), comparison);
        let tested = own_verdicts.iter().filter(|verdict| verdict.chance().is_some()).count();
        let changes = counts.into_iter().zip(own_verdicts.into_iter().zip(total_verdicts));
        let changes = changes.map(|(((name, binary), [own, total]), (own_verdict, total_verdict))| Change {
            name,
            binary,
            own,
            total,
            own_verdict,
            total_verdict,
        });
        Self { changes: changes.collect(), tested }
    }

    /// What changes visibly: those first of which chance does not explain it, then by the size of the self or the total change,
    /// whatever the direction.
    pub(super) fn visible(&self, comparison: &Comparison, order: FunctionOrder) -> Vec<&Change> {
        let size = |counts| comparison.change(counts).abs();
        let mut rows: Vec<_> = self
            .changes
            .iter()
            .filter(|change| size(change.own).max(size(change.total)) >= VISIBLE_MIN)
            .map(|change| {
                let is_uncertain = !change.own_verdict.is_certain() && !change.total_verdict.is_certain();
                let thousandths = |counts| Reverse((size(counts) * 1000.0).round() as u64);
                let [own, total] = [change.own, change.total].map(thousandths);
                let (first, second) =
                    if order == FunctionOrder::SelfCount { (own, total) } else { (total, own) };
                let key = (first, second, &change.name, &change.binary);
                ((is_uncertain, key), change)
            })
            .collect();
        rows.sort_by_key(|(key, _)| *key);
        rows.into_iter().map(|(_, change)| change).collect()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter()
    }
}

/// Tests a value of each function, or of each binary, as one of all of them.
fn verdicts(counts: impl Iterator<Item = [u64; 2]>, comparison: &Comparison) -> Vec<Verdict> {
    if !comparison.can_test() {
        return counts.map(|_| Verdict::NoSamples).collect();
    }
    let chances: Vec<Option<f64>> = counts
        .map(|counts| {
            (comparison.pooled_share(counts) >= TESTED_SHARE_MIN).then(|| comparison.chance(counts))
        })
        .collect();
    let threshold =
        false_discovery_threshold(chances.iter().copied().flatten().collect(), FALSE_DISCOVERY_RATE);
    let verdict = |chance: Option<f64>| match chance {
        None => Verdict::TooFew,
        Some(chance) if chance <= threshold => Verdict::Certain(chance),
        Some(chance) => Verdict::Noise(chance),
    };
    chances.into_iter().map(verdict).collect()
}
