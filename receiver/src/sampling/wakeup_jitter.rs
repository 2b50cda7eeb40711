//! Wake-up jitter: work that does not keep time with the samples.
//!
//! The sample that fills a ring wakes the receiver. If the receiver worked at once, it would always work between two samples:
//! it would never be interrupted itself, and its time would be counted as that of the program whose CPU it takes. At 997 Hz
//! that was 4% too much for processes of 5 ms on a CPU that they shared with it. Where samples are rare they seldom fill a
//! ring.

use std::time::Duration;

/// The longest delay: a ring goes on filling up meanwhile.
const PERIOD_MAX: Duration = Duration::from_millis(20);

/// Delays, spread evenly over the time between two samples.
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

    /// The next delay: multiples of the golden ratio, without their whole part, fill an interval evenly.
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
    fn no_delay_lets_a_ring_run_over_while_samples_are_rare() {
        let mut jitter = WakeupJitter::new(1);
        assert!((0..1_000).all(|_| jitter.next_delay() <= PERIOD_MAX));
    }
}
