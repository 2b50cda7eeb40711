//! How the values of two recordings are compared: what they are divided by, their unit, and the test for chance.

use crate::profile::Profile;
use crate::significance::{rate_chance, share_chance};

/// What the values of both recordings are divided by before they are compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DifferenceBasis {
    /// All of a recording's samples: its CPU time.
    Total,
    /// The duration of each recording.
    Duration,
    /// So many requests, or other units of work, before and after.
    Requests([u64; 2]),
}

/// Why two recordings can't be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DifferenceError {
    /// One of them does not say how long it took.
    #[error("one of the profiles does not state its duration")]
    NoDuration,
    /// Their values have different units.
    #[error("the profiles are of different types: {0} and {1}")]
    DifferentTypes(&'static str, &'static str),
}

/// A smaller change of a displayed value is shown as 0.00.
pub(super) const VISIBLE_MIN: f64 = 0.005;

/// How both recordings are compared.
pub(super) struct Comparison {
    basis: DifferenceBasis,
    /// What values are divided by.
    divisors: [f64; 2],
    scale: Scale,
    /// The value of one sample; `None` if it is not known which values are of one sample.
    sample_value: Option<u64>,
    /// All samples of each recording, if it is known which values are of one.
    samples: [u64; 2],
}

/// The unit of displayed values.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// What a value is multiplied by.
    factor: f64,
    /// Empty for numbers of events.
    unit: &'static str,
}

const SHARES: [Scale; 1] = [Scale { factor: 100.0, unit: "%" }];
/// Of nanoseconds.
const TIMES_PER_SECOND: [Scale; 3] = [
    Scale { factor: 1e-6, unit: "ms/s" },
    Scale { factor: 1e-3, unit: "us/s" },
    Scale { factor: 1.0, unit: "ns/s" },
];
const TIMES: [Scale; 3] = [
    Scale { factor: 1e-6, unit: "ms" },
    Scale { factor: 1e-3, unit: "us" },
    Scale { factor: 1.0, unit: "ns" },
];
const COUNTS_PER_SECOND: [Scale; 3] = [
    Scale { factor: 1.0, unit: "/s" },
    Scale { factor: 1e3, unit: "in 1,000 s" },
    Scale { factor: 1e6, unit: "in 10^6 s" },
];
const COUNTS_PER_REQUEST: [Scale; 3] = [
    Scale { factor: 1.0, unit: "" },
    Scale { factor: 1e3, unit: "in 1,000" },
    Scale { factor: 1e6, unit: "in 10^6" },
];
/// In its unit, all of a recording is this much or more: then a thousandth of it is visible.
const TOTAL_MIN: f64 = 10.0;

impl Comparison {
    pub(super) fn new(profiles: [&Profile; 2], basis: DifferenceBasis) -> Result<Self, DifferenceError> {
        let [_, after] = profiles;
        let measure = &after.measure;
        let units = profiles.map(unit_of);
        // Shares can be compared with those of counts, such as folded stacks, which don't say what they count.
        let are_shares = basis == DifferenceBasis::Total && units.contains(&COUNTS);
        if units[0] != units[1] && !are_shares {
            return Err(DifferenceError::DifferentTypes(units[0], units[1]));
        }
        // Samples at different rates stand for different times.
        let value_ns = profiles.map(|profile| profile.measure.period_ns().max(1) as f64);
        let is_cpu_time = measure.period_ns() > 0;
        let totals = profiles.map(Profile::total_count);
        let (divisors, scales) = match basis {
            DifferenceBasis::Total => (totals.map(|total| total as f64), &SHARES[..]),
            DifferenceBasis::Duration => {
                let seconds = profiles.map(|profile| profile.duration.as_secs_f64());
                if seconds.iter().any(|seconds| *seconds <= 0.0) {
                    return Err(DifferenceError::NoDuration);
                }
                let scales = if is_cpu_time { &TIMES_PER_SECOND } else { &COUNTS_PER_SECOND };
                (seconds, &scales[..])
            }
            DifferenceBasis::Requests(requests) => {
                let scales = if is_cpu_time { &TIMES } else { &COUNTS_PER_REQUEST };
                (requests.map(|requests| requests as f64), &scales[..])
            }
        };
        let divisors = match basis {
            DifferenceBasis::Total => divisors,
            _ => [divisors[0] / value_ns[0], divisors[1] / value_ns[1]],
        };
        let greatest = (totals[0] as f64 / divisors[0]).max(totals[1] as f64 / divisors[1]);
        let scale = scales.iter().find(|scale| greatest * scale.factor >= TOTAL_MIN).or(scales.last());
        let sample_value = match measure.event_period() {
            _ if measure.is_duration() => None,
            Some(period) => Some(period.amount.max(1)),
            _ => Some(1),
        };
        Ok(Self {
            basis,
            divisors,
            scale: scale.copied().unwrap_or(SHARES[0]),
            sample_value,
            samples: totals.map(|total| total / sample_value.unwrap_or(1)),
        })
    }

    /// Both values in the displayed unit.
    pub(super) fn values(&self, counts: [u64; 2]) -> [f64; 2] {
        let value = |count: u64, divisor: f64| {
            if divisor > 0.0 { count as f64 * self.scale.factor / divisor } else { 0.0 }
        };
        [value(counts[0], self.divisors[0]), value(counts[1], self.divisors[1])]
    }

    /// By how much the second value is more, in the displayed unit.
    pub(super) fn change(&self, counts: [u64; 2]) -> f64 {
        let [before, after] = self.values(counts);
        after - before
    }

    /// The unit behind the head of a column.
    pub(super) fn unit(&self) -> String {
        if self.scale.unit.is_empty() { String::new() } else { format!(", {}", self.scale.unit) }
    }

    /// The unit behind a number.
    pub(super) fn unit_behind(&self) -> String {
        match self.scale.unit {
            "" => String::new(),
            "%" => "%".to_owned(),
            unit => format!(" {unit}"),
        }
    }

    /// Whether values are numbers of samples, which can be tested for chance.
    pub(super) fn can_test(&self) -> bool {
        self.sample_value.is_some()
    }

    pub(super) fn test_name(&self) -> &'static str {
        if self.basis == DifferenceBasis::Total { "Fisher's exact test" } else { "binomial test" }
    }

    /// The share of all samples of both recordings together.
    pub(super) fn pooled_share(&self, counts: [u64; 2]) -> f64 {
        let all = self.samples.iter().map(|samples| *samples as f64).sum::<f64>();
        self.in_samples(counts).iter().map(|samples| *samples as f64).sum::<f64>() / all.max(1.0)
    }

    /// The probability that chance makes these values as different or more, if they can be tested.
    pub(super) fn chance(&self, counts: [u64; 2]) -> f64 {
        let samples = self.in_samples(counts);
        let [before, after] = self.samples;
        match self.basis {
            // Functions with one displayed name may be in the same stack, and have more in total than there is.
            DifferenceBasis::Total => {
                share_chance([samples[0].min(before), samples[1].min(after)], self.samples)
            }
            DifferenceBasis::Duration | DifferenceBasis::Requests(_) => rate_chance(samples, self.divisors),
        }
    }

    fn in_samples(&self, counts: [u64; 2]) -> [u64; 2] {
        counts.map(|count| count / self.sample_value.unwrap_or(1))
    }
}

/// The unit of profiles that have none.
pub(super) const COUNTS: &str = "counts";

pub(super) fn unit_of(profile: &Profile) -> &'static str {
    match (profile.measure.is_duration(), profile.measure.period_ns() > 0) {
        (true, _) => "times",
        (false, true) => "samples of CPU time",
        (false, false) => COUNTS,
    }
}
