//! How long sampling waits between two polls of the kernel's events.
//!
//! A program that starts has a new event every millisecond, and until it is read the stacks of its samples are cut or
//! cost a snapshot each. A storm of such events costs as little as polls are rare. So polls are rare on average, and those
//! that nothing asked for are saved up for when something starts. But the rings are not to fill up in between.

use std::time::{Duration, Instant};

/// The most polls that are saved up.
const SAVED_MAX: u32 = 16;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct PollInterval {
    /// Between two polls, on average.
    average: Duration,
    /// When the next poll is due: before now by what was saved up.
    due: Instant,
    polled_at: Instant,
    /// The time in which events took half of the room in the rings, when they came as fast as up to the last poll.
    half_full_after: Duration,
}

impl PollInterval {
    /// Events are complete only after a millisecond.
    pub(super) const SHORTEST: Duration = Duration::from_millis(2);

    pub(super) fn new(average: Duration, now: Instant) -> Self {
        Self { average, due: now, polled_at: now, half_full_after: Duration::MAX }
    }

    /// The average time between two polls.
    pub(super) fn average(&self) -> Duration {
        self.average
    }

    /// How long to wait, when there are events now, until they are read.
    pub(super) fn next(&mut self, now: Instant) -> Duration {
        let earliest = now.checked_sub(self.average * SAVED_MAX).unwrap_or(now);
        self.due = self.due.max(earliest) + self.average;
        let wait = self.due.saturating_duration_since(now).min(self.half_full_after);
        wait.clamp(Self::SHORTEST.min(self.average), self.average)
    }

    /// Takes note of a poll, at which events filled this share of the rings, from 0 to 1.
    pub(super) fn polled(&mut self, now: Instant, filled: f64) {
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

    /// How many looks there are in a second in which there is always news.
    fn polls_in_a_stormy_second(interval: &mut PollInterval, began: Instant) -> u32 {
        let (mut now, mut looks) = (began, 0);
        while now < began + Duration::from_secs(1) {
            now += interval.next(now);
            looks += 1;
        }
        looks
    }

    #[test]
    fn looks_are_rare_in_a_storm_and_after_a_quiet_time_some_are_soon() {
        let began = Instant::now();
        let mut interval = PollInterval::new(AVERAGE, began);
        let looks =
            [0, 1, 5, 6].map(|at| polls_in_a_stormy_second(&mut interval, began + Duration::from_secs(at)));
        assert_eq!(looks.map(|looks| looks / 10), [5, 5, (50 + SAVED_MAX) / 10, 5], "{looks:?}");
    }

    #[test]
    fn where_programs_start_now_and_then_looks_are_always_soon() {
        let mut now = Instant::now();
        let mut interval = PollInterval::new(AVERAGE, now);
        for _ in 0..100 {
            now += Duration::from_millis(200);
            for _ in 0..8 {
                let rest = interval.next(now);
                assert_eq!(rest, PollInterval::SHORTEST);
                now += rest;
            }
        }
    }

    #[test]
    fn what_fills_its_room_fast_is_looked_at_before_it_is_full() {
        let mut now = Instant::now();
        let mut interval = PollInterval::new(AVERAGE, now);
        for (full_after_ms, expected_ms) in [(1_000, 20), (70, 20), (24, 12), (10, 5), (1, 2), (1_000, 20)] {
            interval.due = now + AVERAGE;
            now += Duration::from_millis(1);
            interval.polled(now, 1.0 / f64::from(full_after_ms));
            assert_eq!(interval.next(now).as_millis(), expected_ms, "full after {full_after_ms} ms");
        }
        interval.polled(now, 0.0);
        assert_eq!(interval.next(now), AVERAGE);
    }

    #[test]
    fn a_interval_that_is_short_anyway_stays() {
        let began = Instant::now();
        let mut interval = PollInterval::new(Duration::from_millis(1), began);
        assert_eq!(interval.next(began + Duration::from_secs(1)), Duration::from_millis(1));
    }
}
