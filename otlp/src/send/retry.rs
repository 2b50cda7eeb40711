//! Retry delays, with the Collector's settings and semantics.

use std::time::Duration;

use sidewinder_config::Retry;
use tokio::time::Instant;

/// The longest delay that a receiver can ask for if retries never end.
const MAX_SERVER_DELAY: Duration = Duration::from_secs(5 * 60);

/// A multiplier with which delays would get shorter from one attempt to the next.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("retry_on_failure::multiplier must be a number from 1 up, not {0}")]
pub struct RetryError(f64);

/// # Errors
///
/// If delays would get shorter.
pub(super) fn check(retry: &Retry) -> Result<(), RetryError> {
    match retry.multiplier.get() {
        multiplier if multiplier < 1.0 => Err(RetryError(multiplier)),
        _ => Ok(()),
    }
}

/// The delays between the attempts of one request.
#[derive(Debug)]
pub(super) struct Backoff {
    retry: Retry,
    started: Instant,
    interval: Duration,
}

impl Backoff {
    /// The delays for a request whose first attempt starts now.
    pub(super) fn new(retry: Retry) -> Self {
        Self { retry, started: Instant::now(), interval: retry.initial_interval }
    }

    /// The delay after a failed attempt, or `None` if it was the last.
    ///
    /// A receiver's `asked_delay` is used if it is longer.
    pub(super) fn next_delay(&mut self, asked_delay: Option<Duration>) -> Option<Duration> {
        let Retry { enabled, multiplier, randomization_factor, max_interval, max_elapsed_time, .. } =
            self.retry;
        if !enabled {
            return None;
        }
        let interval = self.interval.min(max_interval);
        self.interval = scale(interval, multiplier.get()).min(max_interval);
        let moved = 1.0 + randomization_factor.get() * (2.0 * rand::random::<f64>() - 1.0);
        let delay = scale(interval, moved).max(asked_delay.unwrap_or_default());
        let Some(max_elapsed_time) = max_elapsed_time else {
            return Some(delay.min(MAX_SERVER_DELAY.max(max_interval)));
        };
        let ends = self.started.elapsed().saturating_add(delay);
        (ends <= max_elapsed_time).then_some(delay)
    }
}

fn scale(duration: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use sidewinder_config::{Fraction, Multiplier};

    use super::*;

    fn steady() -> Retry {
        Retry { randomization_factor: Fraction::default(), ..Retry::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_up_to_the_longest_one() {
        let mut backoff = Backoff::new(steady());
        let waits: Vec<f64> =
            (0..7).filter_map(|_| backoff.next_delay(None)).map(|wait| wait.as_secs_f64()).collect();
        assert_eq!(waits, [5.0, 7.5, 11.25, 16.875, 25.3125, 30.0, 30.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_are_moved_by_at_most_their_half() {
        for _ in 0..1000 {
            let wait = Backoff::new(Retry::default()).next_delay(None).unwrap().as_secs_f64();
            assert!((2.5..=7.5).contains(&wait), "{wait}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_when_the_next_would_come_too_late() {
        let mut backoff = Backoff::new(steady());
        tokio::time::advance(Duration::from_secs(295)).await;
        assert_eq!(backoff.next_delay(None), Some(Duration::from_secs(5)));
        assert_eq!(backoff.next_delay(None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_can_ask_for_a_longer_wait_but_not_for_ever() {
        let ask = Duration::from_secs(60);
        assert_eq!(Backoff::new(steady()).next_delay(Some(ask)), Some(ask));
        assert_eq!(
            Backoff::new(steady()).next_delay(Some(Duration::from_millis(1))),
            Some(Duration::from_secs(5))
        );
        assert_eq!(Backoff::new(steady()).next_delay(Some(Duration::MAX)), None);
        let endless = Retry { max_elapsed_time: None, ..steady() };
        assert_eq!(Backoff::new(endless).next_delay(Some(Duration::MAX)), Some(MAX_SERVER_DELAY));
    }

    #[test]
    fn waits_that_get_shorter_are_refused() {
        let multiplied_by =
            |multiplier| Retry { multiplier: Multiplier::new(multiplier).unwrap(), ..steady() };
        assert_eq!(check(&multiplied_by(0.5)), Err(RetryError(0.5)));
        assert_eq!(check(&multiplied_by(1.0)), Ok(()));
    }
}
