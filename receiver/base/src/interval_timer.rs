//! A timer for periodic work in a loop that runs more often.

use std::time::{Duration, Instant};

/// Returns at most once per interval that work is due.
#[derive(Clone, Debug)]
pub struct IntervalTimer {
    interval: Duration,
    last: Instant,
}

impl IntervalTimer {
    /// A timer that is first due one interval from now.
    pub fn new(interval: Duration) -> Self {
        Self::since(interval, Instant::now())
    }

    /// A timer that is first due one interval after `last`.
    pub fn since(interval: Duration, last: Instant) -> Self {
        Self { interval, last }
    }

    /// Whether an interval has passed since this last returned true.
    pub fn is_due(&mut self) -> bool {
        self.is_due_at(Instant::now())
    }

    /// The same at a given time.
    pub fn is_due_at(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.last) >= self.interval;
        if is_due {
            self.last = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_once_per_interval_and_skips_missed_ones() {
        let start = Instant::now();
        let mut timer = IntervalTimer { interval: Duration::from_millis(10), last: start };
        let is_due_at = [9, 10, 11, 45, 54, 55].map(|ms| timer.is_due_at(start + Duration::from_millis(ms)));
        assert_eq!(is_due_at, [false, true, false, true, false, true]);
    }
}
