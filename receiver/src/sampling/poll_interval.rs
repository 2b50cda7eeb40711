//! The interval between two polls of the kernel's events.
//!
//! A program that starts has a new event every millisecond, and until these are read the stacks of its samples are cut or cost
//! a snapshot each. Polling seldom keeps the cost of many events low. So polls are rare on average, and polls that nothing
//! called for are saved for when a program starts. But the rings must not fill up in between.

use std::time::{Duration, Instant};

/// The most polls that are saved.
const SAVED_POLLS_MAX: u32 = 16;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct PollInterval {
    /// The average interval.
    average: Duration,
    /// When the next poll is due; it lies in the past by what is saved.
    due: Instant,
    polled_at: Instant,
    /// The time in which the rings become half full, at the rate of events up to the last poll.
    half_full_after: Duration,
}

impl PollInterval {
    /// The shortest interval. Events are complete only after a millisecond.
    pub(super) const SHORTEST: Duration = Duration::from_millis(2);

    pub(super) fn new(average: Duration, now: Instant) -> Self {
        Self { average, due: now, polled_at: now, half_full_after: Duration::MAX }
    }

    /// The average time between two polls.
    pub(super) fn average(&self) -> Duration {
        self.average
    }

    /// How long to leave the events that are there now in their rings.
    pub(super) fn next_wait(&mut self, now: Instant) -> Duration {
        let earliest = now.checked_sub(self.average * SAVED_POLLS_MAX).unwrap_or(now);
        self.due = self.due.max(earliest) + self.average;
        let wait = self.due.saturating_duration_since(now).min(self.half_full_after);
        wait.clamp(Self::SHORTEST.min(self.average), self.average)
    }

    /// Records a poll that found this share of the rings full, from 0 to 1.
    pub(super) fn record_poll(&mut self, now: Instant, filled: f64) {
        let since = now.saturating_duration_since(self.polled_at);
        self.polled_at = now;
        let half_full_after = since.as_secs_f64() * 0.5 / filled;
        self.half_full_after = Duration::try_from_secs_f64(half_full_after).unwrap_or(Duration::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AVERAGE: Duration = Duration::from_millis(20);

    /// The polls of a second in which there are always events.
    fn polls_in_a_busy_second(interval: &mut PollInterval, began: Instant) -> u32 {
        let (mut now, mut polls) = (began, 0);
        while now < began + Duration::from_secs(1) {
            now += interval.next_wait(now);
            polls += 1;
        }
        polls
    }

    #[test]
    fn polls_are_rare_among_many_events_and_some_are_soon_after_a_quiet_time() {
        let began = Instant::now();
        let mut interval = PollInterval::new(AVERAGE, began);
        let polls =
            [0, 1, 5, 6].map(|at| polls_in_a_busy_second(&mut interval, began + Duration::from_secs(at)));
        assert_eq!(polls.map(|polls| polls / 10), [5, 5, (50 + SAVED_POLLS_MAX) / 10, 5], "{polls:?}");
    }

    #[test]
    fn polls_are_always_soon_if_programs_start_now_and_then() {
        let mut now = Instant::now();
        let mut interval = PollInterval::new(AVERAGE, now);
        for _ in 0..100 {
            now += Duration::from_millis(200);
            for _ in 0..8 {
                let rest = interval.next_wait(now);
                assert_eq!(rest, PollInterval::SHORTEST);
                now += rest;
            }
        }
    }

    #[test]
    fn rings_that_fill_fast_are_polled_before_they_are_full() {
        let mut now = Instant::now();
        let mut interval = PollInterval::new(AVERAGE, now);
        for (full_after_ms, expected_ms) in [(1_000, 20), (70, 20), (24, 12), (10, 5), (1, 2), (1_000, 20)] {
            interval.due = now + AVERAGE;
            now += Duration::from_millis(1);
            interval.record_poll(now, 1.0 / f64::from(full_after_ms));
            assert_eq!(interval.next_wait(now).as_millis(), expected_ms, "full after {full_after_ms} ms");
        }
        interval.record_poll(now, 0.0);
        assert_eq!(interval.next_wait(now), AVERAGE);
    }

    #[test]
    fn an_interval_that_is_short_anyway_stays() {
        let began = Instant::now();
        let mut interval = PollInterval::new(Duration::from_millis(1), began);
        assert_eq!(interval.next_wait(began + Duration::from_secs(1)), Duration::from_millis(1));
    }
}
