//! Whether two numbers of samples differ by more than chance explains.
//!
//! Samples are taken at times that have nothing to do with the program, so the number of them in a function is a Poisson variable.
//! Of two such numbers with the same rate, given their sum, one is binomial: its probability is its part of what both rates refer
//! to (all samples, seconds, requests). This is the conditional test of Przyborowski and Wilenski (Biometrika 31, 1940).

/// The largest sum of two numbers whose distribution is added up term by term; above it, the normal distribution is as good.
const EXACT_MAX: u64 = 20_000;

/// The probability of numbers that are as different or more, in both directions, if both have the same rate. `exposures` are what
/// rates refer to, both greater than 0.
pub(crate) fn chance([before, after]: [u64; 2], [before_exposure, after_exposure]: [f64; 2]) -> f64 {
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
            let found = chance(counts, exposures);
            assert!((found - expected).abs() < expected * 0.01, "{counts:?}: {found}, not {expected}");
        }
    }

    #[test]
    fn large_numbers_are_judged_as_smaller_ones_are() {
        // 2 sigma and 5 sigma, on both sides of the limit.
        for sum in [EXACT_MAX - 2, EXACT_MAX + 2] {
            let deviation = (sum as f64 / 4.0).sqrt();
            for (sigmas, expected) in [(2.0, 0.0455), (5.0, 5.7e-7)] {
                let more = sum / 2 + (sigmas * deviation) as u64;
                let found = chance([more, sum - more], [1.0, 1.0]);
                assert!((found / expected - 1.0).abs() < 0.2, "{sum} {sigmas}: {found}");
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_a_probability_whichever_comes_first(a in 0_u64..50_000, b in 0_u64..50_000, x in 1.0_f64..1e6, y in 1.0_f64..1e6) {
            let found = chance([a, b], [x, y]);
            prop_assert!((0.0..=1.0).contains(&found));
            prop_assert!((found - chance([b, a], [y, x])).abs() < 1e-6);
        }
    }
}
