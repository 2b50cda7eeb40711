//! A share of all time for something that can wait.

use std::time::{Duration, Instant};

/// One part in so many of all time, of which some may be saved. More may be spent than there is: it is paid back by waiting.
#[derive(Debug)]
pub(crate) struct TimeShare {
    one_in: u32,
    saved_max: Duration,
    /// The time up to which the share has been spent.
    spent_to: Instant,
}

impl TimeShare {
    /// Begins with all that may be saved.
    pub(crate) fn new(one_in: u32, saved_max: Duration) -> Self {
        let now = Instant::now();
        Self { one_in, saved_max, spent_to: now.checked_sub(saved_max * one_in).unwrap_or(now) }
    }

    /// What may be spent now.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        (now.saturating_duration_since(self.spent_to) / self.one_in).min(self.saved_max)
    }

    /// Takes note of what was spent.
    pub(crate) fn spend(&mut self, time: Duration, now: Instant) {
        let saved_from = now.checked_sub(self.saved_max * self.one_in).unwrap_or(self.spent_to);
        self.spent_to = self.spent_to.max(saved_from) + time * self.one_in;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_spent_is_earned_in_time_and_some_is_saved() {
        let mut share = TimeShare::new(100, SECOND);
        // Far enough after the boot that the time before can be told.
        let now = Instant::now() + 1000 * SECOND;
        assert_eq!(share.left(now), SECOND, "no more is saved than that");
        share.spend(SECOND / 2, now);
        assert_eq!(share.left(now), SECOND / 2);
        share.spend(SECOND, now);
        assert_eq!(share.left(now + 40 * SECOND), Duration::ZERO, "half a second is owed");
        assert_eq!(share.left(now + 60 * SECOND), SECOND / 10);
        assert_eq!(share.left(now + 1000 * SECOND), SECOND);
    }
}
