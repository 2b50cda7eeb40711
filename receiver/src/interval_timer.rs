//! What is done every so often, by whoever passes by.

use std::time::{Duration, Instant};

/// Says when it is time again.
#[derive(Debug)]
pub(crate) struct IntervalTimer {
    interval: Duration,
    last: Instant,
}

impl IntervalTimer {
    /// The first time comes one interval from now.
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, last: Instant::now() }
    }

    /// Whether an interval has gone by since this was true last.
    pub(crate) fn is_due(&mut self) -> bool {
        self.is_due_at(Instant::now())
    }

    fn is_due_at(&mut self, now: Instant) -> bool {
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
    fn it_is_due_once_an_interval_and_makes_up_for_none() {
        let began = Instant::now();
        let mut every = IntervalTimer { interval: Duration::from_millis(10), last: began };
        let is_due_at = [9, 10, 11, 45, 54, 55].map(|ms| every.is_due_at(began + Duration::from_millis(ms)));
        assert_eq!(is_due_at, [false, true, false, true, false, true]);
    }
}
