//! A budget of time for work that can be delayed.

use std::time::{Duration, Instant};

/// A share of wall-clock time, of which some can be saved, like a token bucket. More can be spent than is available; the
/// debt is then paid off with time.
#[derive(Debug)]
pub struct TimeBudget {
    divisor: u32,
    burst: Duration,
    /// The time up to which the share has been spent.
    spent_until: Instant,
}

impl TimeBudget {
    /// A budget of one part in `divisor` of all time, of which `burst` can be saved. It starts with `burst` saved.
    pub fn new(divisor: u32, burst: Duration) -> Self {
        let now = Instant::now();
        Self { divisor, burst, spent_until: now.checked_sub(burst * divisor).unwrap_or(now) }
    }

    /// The time that may be spent now.
    pub fn remaining(&self, now: Instant) -> Duration {
        (now.saturating_duration_since(self.spent_until) / self.divisor).min(self.burst)
    }

    /// Records that time was spent.
    pub fn spend(&mut self, time: Duration, now: Instant) {
        let saved_from = now.checked_sub(self.burst * self.divisor).unwrap_or(self.spent_until);
        self.spent_until = self.spent_until.max(saved_from) + time * self.divisor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn spent_time_is_earned_back_and_savings_are_bounded() {
        let mut budget = TimeBudget::new(100, SECOND);
        // Far enough from boot that earlier times can be represented.
        let now = Instant::now() + 1000 * SECOND;
        assert_eq!(budget.remaining(now), SECOND, "savings are limited to the burst");
        budget.spend(SECOND / 2, now);
        assert_eq!(budget.remaining(now), SECOND / 2);
        budget.spend(SECOND, now);
        assert_eq!(budget.remaining(now + 40 * SECOND), Duration::ZERO, "half a second is owed");
        assert_eq!(budget.remaining(now + 60 * SECOND), SECOND / 10);
        assert_eq!(budget.remaining(now + 1000 * SECOND), SECOND);
    }
}
