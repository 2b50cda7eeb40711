//! Whether two numbers of samples differ by more than chance explains.
//!
//! Samples are taken at times that have nothing to do with the program, so the number of them in a function is a Poisson variable.
//! Both tests are conditional on the sum of the two numbers:
//!
//! - [`rate_chance`]: of two numbers with the same rate, one is binomial. Its probability is its part of what both rates refer to,
//!   seconds or requests (Przyborowski and Wilenski, Biometrika 31, 1940).
//! - [`share_chance`]: of two numbers with the same share of all samples, one is hypergeometric (Fisher's exact test). It finds
//!   smaller changes of large shares, since shares vary less than rates.
//!
//! Many functions are compared at once, so [`false_discovery_threshold`] tells up to which probability to believe.

/// The largest sum of two numbers whose distribution is added up term by term; above it, the normal distribution is as good.
const EXACT_MAX: u64 = 20_000;

/// The probability of numbers that are as different or more, in both directions, if both have the same rate. `exposures` are what
/// rates refer to, both greater than 0.
pub(crate) fn rate_chance([before, after]: [u64; 2], [before_exposure, after_exposure]: [f64; 2]) -> f64 {
    let sum = before.saturating_add(after);
    let probability = before_exposure / (before_exposure + after_exposure);
    if sum == 0 || !(probability > 0.0 && probability < 1.0) {
        return 1.0;
    }
    let tails = if sum <= EXACT_MAX {
        [binomial_tail(before, sum, probability), binomial_tail(after, sum, 1.0 - probability)]
    } else {
        let deviation = (sum as f64 * probability * (1.0 - probability)).sqrt();
        let distance = (before as f64 - sum as f64 * probability) / deviation;
        [normal_tail(distance), normal_tail(-distance)]
    };
    (2.0 * tails[0].min(tails[1])).min(1.0)
}

/// The probability of numbers that are as different or more, in both directions, if both are the same share of `totals`, which they
/// don't exceed.
pub(crate) fn share_chance([before, after]: [u64; 2], [before_total, after_total]: [u64; 2]) -> f64 {
    let (sum, all) = (before.saturating_add(after), before_total.saturating_add(after_total));
    if sum == 0 || sum >= all || before_total == 0 || after_total == 0 {
        return 1.0;
    }
    if sum > all - sum {
        // What one function has more, the others have less: the rarer of both tells how exact the test has to be.
        return share_chance([before_total - before, after_total - after], [before_total, after_total]);
    }
    let tails = if sum <= EXACT_MAX {
        let population = Population { all, marked: sum };
        [population.tail(before, before_total), population.tail(after, after_total)]
    } else {
        let (part, share) = (before_total as f64 / all as f64, sum as f64 / all as f64);
        let deviation = (sum as f64 * part * (1.0 - part) * (1.0 - share)).sqrt();
        let distance = (before as f64 - sum as f64 * part) / deviation;
        [normal_tail(distance), normal_tail(-distance)]
    };
    (2.0 * tails[0].min(tails[1])).min(1.0)
}

/// The greatest of these probabilities to believe, if at most the part `rate` of what is believed may be chance; 0 if none. This is
/// the procedure of Benjamini and Hochberg (J. R. Statist. Soc. B 57, 1995).
pub(crate) fn false_discovery_threshold(mut chances: Vec<f64>, rate: f64) -> f64 {
    chances.sort_by(f64::total_cmp);
    let step = rate / chances.len().max(1) as f64;
    let believed = (1..).zip(&chances).filter(|(rank, chance)| **chance <= f64::from(*rank) * step);
    believed.last().map_or(0.0, |(_, chance)| *chance)
}

/// Samples, some of which are marked.
struct Population {
    all: u64,
    marked: u64,
}

impl Population {
    /// The probability of at least `least` marked ones among so many that are drawn.
    fn tail(&self, least: u64, drawn: u64) -> f64 {
        let unmarked = self.all - self.marked;
        let least = least.max(drawn.saturating_sub(unmarked));
        let most = self.marked.min(drawn);
        let mean = drawn as f64 * self.marked as f64 / self.all as f64;
        let mut logarithm = ln_choose(self.marked, least) + ln_choose(unmarked, drawn.saturating_sub(least))
            - ln_choose(self.all, drawn);
        let mut sum = 0.0;
        for found in least..=most {
            let term = logarithm.exp();
            sum += term;
            if found as f64 > mean && term < sum * 1e-12 {
                break;
            }
            let ways = (self.marked - found) as f64 * (drawn - found) as f64;
            logarithm += (ways / ((found + 1) as f64 * (unmarked + found + 1 - drawn) as f64)).ln();
        }
        sum.min(1.0)
    }
}

/// The probability of at least `least` successes in `trials`.
fn binomial_tail(least: u64, trials: u64, probability: f64) -> f64 {
    let (n, odds) = (trials as f64, probability / (1.0 - probability));
    let mut sum = 0.0;
    // From the most probable term of the tail on, upwards: later ones are smaller, and are left out once they don't matter.
    let mut logarithm = ln_choose(trials, least)
        + least as f64 * probability.ln()
        + (n - least as f64) * (-probability).ln_1p();
    for successes in least..=trials {
        let term = logarithm.exp();
        sum += term;
        if successes as f64 > n * probability && term < sum * 1e-12 {
            break;
        }
        logarithm += ((n - successes as f64) / (successes as f64 + 1.0) * odds).ln();
    }
    sum.min(1.0)
}

fn ln_choose(n: u64, k: u64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n.saturating_sub(k))
}

/// Stirling's series, with an error below 1e-10 from 10 on; exact below.
fn ln_factorial(n: u64) -> f64 {
    if n < 10 {
        return (2..=n).map(|factor| (factor as f64).ln()).sum();
    }
    let n = n as f64;
    let series = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5));
    n * n.ln() - n + 0.5 * (2.0 * std::f64::consts::PI * n).ln() + series
}

/// The probability that a standard normal variable is at least `distance`, with an error below 1.5e-7 (Abramowitz and Stegun,
/// 7.1.26).
fn normal_tail(distance: f64) -> f64 {
    let x = distance.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let polynomial = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let tail = 0.5 * polynomial.iter().fold(0.0, |sum, factor| sum * t + factor) * t * (-x * x).exp();
    if distance > 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn probabilities_are_those_of_the_exact_test() {
        // R: 2 * min(pbinom(39, 85, 0.5), pbinom(45, 85, 0.5, lower.tail = FALSE)) and so on.
        for (counts, exposures, expected) in [
            ([39, 46], [1000.0, 1000.0], 0.515_7),
            ([5, 25], [1000.0, 1000.0], 0.000_325),
            ([0, 3], [1.0, 1.0], 0.25),
            ([10, 20], [100.0, 200.0], 1.0),
            ([0, 0], [1.0, 1.0], 1.0),
        ] {
            let found = rate_chance(counts, exposures);
            assert!((found - expected).abs() < expected * 0.01, "{counts:?}: {found}, not {expected}");
        }
    }

    #[test]
    fn shares_are_tested_as_fisher_does() {
        // By the definition: the terms of the hypergeometric distribution, added up.
        for (counts, totals, expected) in [
            ([3, 1], [4, 4], 2.0 * 17.0 / 70.0),
            ([0, 5], [10, 10], 2.0 * 252.0 / 15_504.0),
            ([331, 417], [3_350, 3_350], 0.000_96),
            ([2, 1], [2, 4], 2.0 * 4.0 / 20.0),
            ([5, 5], [5, 5], 1.0),
            ([0, 0], [9, 9], 1.0),
        ] {
            let found = share_chance(counts, totals);
            assert!((found - expected).abs() < expected * 0.01, "{counts:?}: {found}, not {expected}");
        }
        let (exact, normal) =
            (share_chance([9_900, 10_100], [40_000; 2]), share_chance([9_901, 10_101], [40_000; 2]));
        assert!((exact - normal).abs() < 0.005, "{exact} {normal}");
    }

    #[test]
    fn the_greatest_probability_below_its_rank_is_believed() {
        let threshold = |chances: &[f64]| false_discovery_threshold(chances.to_vec(), 0.05);
        assert_eq!(threshold(&[]), 0.0);
        assert_eq!(threshold(&[0.02, 0.9, 0.8, 0.7, 0.6]), 0.0);
        assert_eq!(threshold(&[0.9, 0.009, 0.8, 0.7, 0.6]), 0.009);
        assert_eq!(
            threshold(&[0.011, 0.02, 0.03, 0.9, 0.8]),
            0.03,
            "0.011 alone is too much, the three together are not"
        );
    }

    #[test]
    fn large_numbers_are_judged_as_smaller_ones_are() {
        // 2 sigma and 5 sigma, on both sides of the limit.
        for sum in [EXACT_MAX - 2, EXACT_MAX + 2] {
            let deviation = (sum as f64 / 4.0).sqrt();
            for (sigmas, expected) in [(2.0, 0.0455), (5.0, 5.7e-7)] {
                let more = sum / 2 + (sigmas * deviation) as u64;
                let found = rate_chance([more, sum - more], [1.0, 1.0]);
                assert!((found / expected - 1.0).abs() < 0.2, "{sum} {sigmas}: {found}");
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_a_probability_whichever_comes_first(a in 0_u64..50_000, b in 0_u64..50_000, x in 1.0_f64..1e6, y in 1.0_f64..1e6) {
            let found = rate_chance([a, b], [x, y]);
            prop_assert!((0.0..=1.0).contains(&found));
            prop_assert!((found - rate_chance([b, a], [y, x])).abs() < 1e-6);
        }

        #[test]
        fn of_shares_it_is_a_probability_too(a in 0_u64..50_000, b in 0_u64..50_000, x in 0_u64..100_000, y in 0_u64..100_000) {
            let totals = [a + x, b + y];
            let found = share_chance([a, b], totals);
            prop_assert!((0.0..=1.0).contains(&found), "{found}");
            prop_assert!((found - share_chance([b, a], [totals[1], totals[0]])).abs() < 1e-6);
            // What one function has more, the others have less.
            prop_assert!((found - share_chance([x, y], totals)).abs() < 1e-6);
        }
    }
}
