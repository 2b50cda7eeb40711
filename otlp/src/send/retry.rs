//! When to try again, with the Collector's settings and meanings.

use std::time::Duration;

use tokio::time::Instant;

/// The longest wait that a receiver can ask for where attempts never end.
const MAX_ASKED_DELAY: Duration = Duration::from_secs(5 * 60);

/// The settings of `retry_on_failure`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RetryOptions {
    /// Whether there is a second attempt at all.
    pub enabled: bool,
    /// The wait after the first attempt.
    pub initial_interval: Duration,
    /// What each wait is multiplied by to get the next. At least 1.
    pub multiplier: f64,
    /// How far a wait is moved at random, as a part of it, from 0 to 1.
    pub randomization_factor: f64,
    /// The longest wait, before it is moved at random.
    pub max_interval: Duration,
    /// After how long no further attempt is made; zero for never.
    pub max_elapsed_time: Duration,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            initial_interval: Duration::from_secs(5),
            multiplier: 1.5,
            randomization_factor: 0.5,
            max_interval: Duration::from_secs(30),
            max_elapsed_time: Duration::from_secs(5 * 60),
        }
    }
}

/// A setting that makes no sense.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum RetryError {
    /// The multiplier.
    #[error("retry_on_failure::multiplier must be a number from 1 up, not {0}")]
    Multiplier(f64),
    /// The randomization factor.
    #[error("retry_on_failure::randomization_factor must be from 0 to 1, not {0}")]
    RandomizationFactor(f64),
}

impl RetryOptions {
    /// # Errors
    ///
    /// When a number is out of its range.
    pub(super) fn check(&self) -> Result<(), RetryError> {
        if !(self.multiplier >= 1.0 && self.multiplier.is_finite()) {
            return Err(RetryError::Multiplier(self.multiplier));
        }
        if !(0.0..=1.0).contains(&self.randomization_factor) {
            return Err(RetryError::RandomizationFactor(self.randomization_factor));
        }
        Ok(())
    }

    /// The waits of one request that is sent now for the first time.
    pub(super) fn begin(self) -> Backoff {
        Backoff { options: self, begun: Instant::now(), interval: self.initial_interval }
    }
}

/// The waits between the attempts at one request.
#[derive(Debug)]
pub(super) struct Backoff {
    options: RetryOptions,
    begun: Instant,
    interval: Duration,
}

impl Backoff {
    /// How long to wait after an attempt that failed, or `None` when it was the last.
    ///
    /// A receiver's own `asked_delay` is kept if it is longer.
    pub(super) fn next_delay(&mut self, asked_delay: Option<Duration>) -> Option<Duration> {
        let RetryOptions {
            enabled, multiplier, randomization_factor, max_interval, max_elapsed_time, ..
        } = self.options;
        if !enabled {
            return None;
        }
        let interval = self.interval.min(max_interval);
        self.interval = scale(interval, multiplier).min(max_interval);
        let moved = 1.0 + randomization_factor * (2.0 * rand::random::<f64>() - 1.0);
        let delay = scale(interval, moved).max(asked_delay.unwrap_or_default());
        if max_elapsed_time.is_zero() {
            return Some(delay.min(MAX_ASKED_DELAY.max(max_interval)));
        }
        let ends = self.begun.elapsed().saturating_add(delay);
        (ends <= max_elapsed_time).then_some(delay)
    }
}

fn scale(duration: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady() -> RetryOptions {
        RetryOptions { randomization_factor: 0.0, ..RetryOptions::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_up_to_the_longest_one() {
        let mut backoff = steady().begin();
        let waits: Vec<f64> =
            (0..7).filter_map(|_| backoff.next_delay(None)).map(|wait| wait.as_secs_f64()).collect();
        assert_eq!(waits, [5.0, 7.5, 11.25, 16.875, 25.3125, 30.0, 30.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_are_moved_by_at_most_their_half() {
        for _ in 0..1000 {
            let wait = RetryOptions::default().begin().next_delay(None).unwrap().as_secs_f64();
            assert!((2.5..=7.5).contains(&wait), "{wait}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_when_the_next_would_come_too_late() {
        let mut backoff = steady().begin();
        tokio::time::advance(Duration::from_secs(295)).await;
        assert_eq!(backoff.next_delay(None), Some(Duration::from_secs(5)));
        assert_eq!(backoff.next_delay(None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_can_ask_for_a_longer_wait_but_not_for_ever() {
        let ask = Duration::from_secs(60);
        assert_eq!(steady().begin().next_delay(Some(ask)), Some(ask));
        assert_eq!(steady().begin().next_delay(Some(Duration::from_millis(1))), Some(Duration::from_secs(5)));
        assert_eq!(steady().begin().next_delay(Some(Duration::MAX)), None);
        let endless = RetryOptions { max_elapsed_time: Duration::ZERO, ..steady() };
        assert_eq!(endless.begin().next_delay(Some(Duration::MAX)), Some(MAX_ASKED_DELAY));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(RetryOptions { multiplier: f64::NAN, ..steady() }.check().is_err());
        assert!(RetryOptions { multiplier: 0.5, ..steady() }.check().is_err());
        assert!(RetryOptions { randomization_factor: 1.5, ..steady() }.check().is_err());
        assert_eq!(steady().check(), Ok(()));
    }
}
