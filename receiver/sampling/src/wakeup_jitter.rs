//! Wake-up jitter: keeps the receiver's own work from running in step with the sampling interrupts.
//!
//! The sample that fills a ring wakes the receiver. If the receiver worked at once, it would always run between two samples:
//! it would never be sampled itself, and its CPU time would be attributed to the program that shares its CPU. At 997 Hz this
//! overcounted processes that live for 5 ms, on a CPU shared with the receiver, by 4%. At low sampling rates the rings
//! seldom fill, so the bias doesn't matter.

use std::time::Duration;

/// The longest delay. The ring keeps filling during a delay, so it is short.
const PERIOD_MAX: Duration = Duration::from_millis(20);

/// Generates delays that are spread evenly over the time between two samples.
#[derive(Debug)]
pub(super) struct WakeupJitter {
    period: Duration,
    /// The last delay as a share of the period, from 0 to 1.
    share: f64,
}

impl WakeupJitter {
    pub(super) fn new(samples_per_second: u32) -> Self {
        let period = Duration::from_secs(1) / samples_per_second.max(1);
        Self { period: period.min(PERIOD_MAX), share: 0.0 }
    }

    /// The next delay. The fractional parts of the multiples of the golden ratio cover an interval evenly.
    pub(super) fn next_delay(&mut self) -> Duration {
        const GOLDEN_RATIO: f64 = 1.618_033_988_749_895;
        self.share = (self.share + GOLDEN_RATIO).fract();
        self.period.mul_f64(self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_fill_the_time_between_samples_evenly() {
        let mut jitter = WakeupJitter::new(1_000);
        let mut tenths = [0; 10];
        for _ in 0..1_000 {
            tenths[(jitter.next_delay().as_micros() / 100) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (98..=102).contains(count)), "{tenths:?}");
    }

    #[test]
    fn delays_are_bounded_at_low_sampling_rates() {
        let mut jitter = WakeupJitter::new(1);
        assert!((0..1_000).all(|_| jitter.next_delay() <= PERIOD_MAX));
    }
}
