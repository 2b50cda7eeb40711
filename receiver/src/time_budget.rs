//! A share of all time for something that can wait.

use std::time::{Duration, Instant};

/// One part in so many of all time, of which some may be saved. More may be spent than there is: it is paid back by waiting.
#[derive(Debug)]
pub(crate) struct TimeBudget {
    divisor: u32,
    burst: Duration,
    /// The time up to which the share has been spent.
    spent_until: Instant,
}

impl TimeBudget {
    /// Begins with all that may be saved.
    pub(crate) fn new(one_in: u32, saved_max: Duration) -> Self {
        let now = Instant::now();
        Self {
            divisor: one_in,
            burst: saved_max,
            spent_until: now.checked_sub(saved_max * one_in).unwrap_or(now),
        }
    }

    /// What may be spent now.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        (now.saturating_duration_since(self.spent_until) / self.divisor).min(self.burst)
    }

    /// Takes note of what was spent.
    pub(crate) fn spend(&mut self, time: Duration, now: Instant) {
        let saved_from = now.checked_sub(self.burst * self.divisor).unwrap_or(self.spent_until);
        self.spent_until = self.spent_until.max(saved_from) + time * self.divisor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_spent_is_earned_in_time_and_some_is_saved() {
        let mut share = TimeBudget::new(100, SECOND);
        // Far enough after the boot that the time before can be told.
        let now = Instant::now() + 1000 * SECOND;
        assert_eq!(share.remaining(now), SECOND, "no more is saved than that");
        share.spend(SECOND / 2, now);
        assert_eq!(share.remaining(now), SECOND / 2);
        share.spend(SECOND, now);
        assert_eq!(share.remaining(now + 40 * SECOND), Duration::ZERO, "half a second is owed");
        assert_eq!(share.remaining(now + 60 * SECOND), SECOND / 10);
        assert_eq!(share.remaining(now + 1000 * SECOND), SECOND);
    }
}
