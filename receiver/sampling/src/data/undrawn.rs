//! The time of waits that were not drawn as samples: what the samples say of it, and what the scheduler's accounts say.
//!
//! A sample stands for waits that were not drawn, as if they were like its own. But to take it delays the switch, and leaves caches
//! and branch predictors cold for the thread that ends the wait. So a drawn wait of some microseconds is longer than others, by
//! more than the sample took, and no clock shows by how much. The accounts show how long the others were, all together.

use std::collections::HashMap;

/// The number of samples over which a difference is made up for. The factor of a sample is known before the sample is drawn: so it
/// changes the sum of a thread, and on average not the shares of its stacks.
const SAMPLES_TO_SETTLE: f64 = 64.0;
const FACTOR_MAX: f64 = 4.0;
/// The largest number of threads. When there are more, all start again.
const THREADS_MAX: usize = 16 << 10;

/// The undrawn waits of a thread.
#[derive(Debug, Default)]
struct Account {
    /// The time that they took, less what was charged for it.
    owed_ns: f64,
    /// The average of what a sample says of it, and the number of samples in that.
    mean_estimate_ns: f64,
    samples: f64,
}

impl Account {
    /// What to charge for undrawn waits where a sample says that they took this long.
    fn charge(&mut self, estimate_ns: f64) -> f64 {
        let settled_ns = SAMPLES_TO_SETTLE * self.mean_estimate_ns;
        let factor =
            if settled_ns > 0.0 { (1.0 + self.owed_ns / settled_ns).clamp(0.0, FACTOR_MAX) } else { 1.0 };
        self.samples = (self.samples + 1.0).min(SAMPLES_TO_SETTLE);
        self.mean_estimate_ns += (estimate_ns - self.mean_estimate_ns) / self.samples;
        let charged_ns = factor * estimate_ns;
        self.owed_ns -= charged_ns;
        charged_ns
    }
}

/// The undrawn waits of all threads. A thread with the ID of one that has ended takes over what is owed, which is that of few samples.
#[derive(Debug, Default)]
pub(super) struct UndrawnWaits {
    by_thread: HashMap<u32, Account>,
}

impl UndrawnWaits {
    /// Adds the time of waits that have ended.
    pub(super) fn add(&mut self, tid: u32, time_ns: u64) {
        if time_ns > 0 {
            self.account(tid).owed_ns += time_ns as f64;
        }
    }

    /// What to charge of the times for which a sample stands, apart from its own wait.
    pub(super) fn charge<const N: usize>(&mut self, tid: u32, estimates_ns: [u64; N]) -> [u64; N] {
        let estimate_ns: f64 = estimates_ns.iter().map(|estimate| *estimate as f64).sum();
        if estimate_ns == 0.0 {
            return estimates_ns;
        }
        let factor = self.account(tid).charge(estimate_ns) / estimate_ns;
        estimates_ns.map(|estimate| (estimate as f64 * factor) as u64)
    }

    fn account(&mut self, tid: u32) -> &mut Account {
        if self.by_thread.len() >= THREADS_MAX && !self.by_thread.contains_key(&tid) {
            self.by_thread.clear();
        }
        self.by_thread.entry(tid).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of ten waits one is drawn, which is a quarter longer for that. What is charged is the time of the others.
    #[test]
    fn the_sum_is_that_of_the_accounts_though_drawn_waits_are_longer() {
        let mut waits = UndrawnWaits::default();
        let (mut took_ns, mut charged_ns) = (0, 0);
        for _ in 0..10_000 {
            waits.add(1, 9 * 1_000);
            took_ns += 9 * 1_000;
            let [charged] = waits.charge(1, [9 * 1_250]);
            charged_ns += charged;
        }
        let error = charged_ns as f64 / took_ns as f64 - 1.0;
        assert!((0.0..0.003).contains(&error), "{error}");
    }

    /// Waits in two functions in turn, of which one takes a thousand times as long. Which wait is drawn is a matter of chance.
    #[test]
    fn each_stack_keeps_its_share() {
        const LENGTHS: [u64; 2] = [1_000, 1_000_000];
        const WAITS: usize = 400_000;
        let mut waits = UndrawnWaits::default();
        let (mut charged, mut undrawn_ns, mut random) = ([0; 2], 0, 1_u64);
        for number in 0..WAITS {
            // Knuth's MMIX generator.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (of, length) = (number % 2, LENGTHS[number % 2]);
            if random >> 32 < (1 << 32) / 10 {
                let [rest] = waits.charge(7, [9 * length]);
                waits.add(7, std::mem::take(&mut undrawn_ns));
                charged[of] += length + rest;
            } else {
                undrawn_ns += length;
            }
        }
        for (charged, length) in charged.into_iter().zip(LENGTHS) {
            let error = charged as f64 / (length * WAITS as u64 / 2) as f64 - 1.0;
            assert!(error.abs() < 0.03, "{length}: {error}");
        }
    }

    #[test]
    fn what_was_never_drawn_is_charged_in_time_and_within_bounds() {
        let mut waits = UndrawnWaits::default();
        assert_eq!(waits.charge(1, [0, 0]), [0, 0], "a certain sample stands for its own wait only");
        assert_eq!(waits.charge(1, [60, 30]), [60, 30], "nothing else is known");
        waits.add(1, u64::MAX);
        assert_eq!(waits.charge(1, [60, 30]), [240, 120]);
        assert_eq!(waits.charge(2, [60, 30]), [60, 30], "another thread");
        for tid in 0..2 * THREADS_MAX as u32 {
            waits.add(tid, 1);
        }
        assert!(waits.by_thread.len() <= THREADS_MAX);
    }
}
