//! The interval between two polls of the side band, the kernel's process events.
//!
//! A program that starts causes a new event every millisecond. Until the events are read, the stacks of its samples are
//! truncated or cost a snapshot each. Polling rarely keeps many events cheap. So the average rate of polls is limited, and
//! polls that weren't needed are saved, as in a token bucket, for when a program starts. Polls come earlier if the rings
//! would fill up.

use std::time::{Duration, Instant};

/// How long a CPU may take to write an event after timestamping it.
pub(super) const EVENT_DELAY_NS: u64 = 1_000_000;
/// The maximum number of saved polls.
const SAVED_POLLS_MAX: u32 = 16;

/// Decides how long to wait before the next poll.
#[derive(Debug)]
pub(super) struct PollInterval {
    /// The average interval.
    average: Duration,
    /// When the next poll is due. Saved polls move it into the past.
    due: Instant,
    polled_at: Instant,
    /// How long the rings take to become half full, at the event rate seen by the last poll.
    half_full_after: Duration,
}

impl PollInterval {
    /// The shortest interval. Events are complete only after so long ([`EVENT_DELAY_NS`]), so that each
    /// poll can apply all events that the previous one has left. Code that a program has just mapped is often the code that it
    /// executes next, so each millisecond counts. (A wait for a fraction of a millisecond more would last for two.)
    pub(super) const SHORTEST: Duration = Duration::from_nanos(EVENT_DELAY_NS);

    pub(super) fn new(average: Duration, now: Instant) -> Self {
        Self { average, due: now, polled_at: now, half_full_after: Duration::MAX }
    }

    /// The average time between two polls.
    pub(super) fn average(&self) -> Duration {
        self.average
    }

    /// How long to wait before reading the events that are in the rings now.
    pub(super) fn next_wait(&mut self, now: Instant) -> Duration {
        let earliest = now.checked_sub(self.average * SAVED_POLLS_MAX).unwrap_or(now);
        self.due = self.due.max(earliest) + self.average;
        let wait = self.due.saturating_duration_since(now).min(self.half_full_after);
        wait.clamp(Self::SHORTEST.min(self.average), self.average)
    }

    /// Records a poll. `filled` is how full it found the fullest ring, from 0 to 1.
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

    /// The number of polls in one second during which there are always events.
    fn polls_in_a_busy_second(interval: &mut PollInterval, start: Instant) -> u32 {
        let (mut now, mut polls) = (start, 0);
        while now < start + Duration::from_secs(1) {
            now += interval.next_wait(now);
            polls += 1;
        }
        polls
    }

    #[test]
    fn polls_are_rare_under_load_and_frequent_after_a_quiet_time() {
        let start = Instant::now();
        let mut interval = PollInterval::new(AVERAGE, start);
        let polls =
            [0, 1, 5, 6].map(|at| polls_in_a_busy_second(&mut interval, start + Duration::from_secs(at)));
        assert_eq!(polls.map(|polls| polls / 10), [5, 5, (50 + SAVED_POLLS_MAX) / 10, 5], "{polls:?}");
    }

    #[test]
    fn polls_are_prompt_if_programs_start_occasionally() {
        let mut now = Instant::now();
        let mut interval = PollInterval::new(AVERAGE, now);
        for _ in 0..100 {
            now += Duration::from_millis(200);
            for _ in 0..8 {
                let wait = interval.next_wait(now);
                assert_eq!(wait, PollInterval::SHORTEST);
                now += wait;
            }
        }
    }

    #[test]
    fn rings_that_fill_fast_are_polled_before_they_are_full() {
        let mut now = Instant::now();
        let mut interval = PollInterval::new(AVERAGE, now);
        for (full_after_ms, expected_ms) in [(1_000, 20), (70, 20), (24, 12), (10, 5), (1, 1), (1_000, 20)] {
            interval.due = now + AVERAGE;
            now += Duration::from_millis(1);
            interval.record_poll(now, 1.0 / f64::from(full_after_ms));
            assert_eq!(interval.next_wait(now).as_millis(), expected_ms, "full after {full_after_ms} ms");
        }
        interval.record_poll(now, 0.0);
        assert_eq!(interval.next_wait(now), AVERAGE);
    }

    #[test]
    fn a_short_average_interval_is_kept() {
        let start = Instant::now();
        let mut interval = PollInterval::new(Duration::from_millis(1), start);
        assert_eq!(interval.next_wait(start + Duration::from_secs(1)), Duration::from_millis(1));
    }
}
