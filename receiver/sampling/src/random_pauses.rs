//! Probabilistic profiling: sampling in a random share of time, for fleets in which not every machine has to be profiled at
//! all times.
//!
//! Owner: the sampling thread, in its maintenance. Input: a clock. Output: whether to sample.

use std::time::{Duration, Instant};

use sidewinder_config::Percent;

use sidewinder_base::interval_timer::IntervalTimer;

/// Decides at the beginning of each interval whether to sample in it.
#[derive(Clone, Debug)]
pub struct RandomPauses {
    interval: Duration,
    /// The share of the intervals in which to sample, in percent.
    sampled_percent: u32,
    /// For the decisions after the first.
    timer: Option<IntervalTimer>,
    is_paused: bool,
}

impl RandomPauses {
    /// `None` if no interval is a pause.
    pub fn new(interval: Duration, sampled: Percent) -> Option<Self> {
        let sampled_percent = sampled.get();
        (sampled_percent < 100).then_some(Self { interval, sampled_percent, timer: None, is_paused: false })
    }

    /// Whether sampling is paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether to pause or to continue from now on; `None`: neither.
    pub fn change(&mut self) -> Option<bool> {
        self.change_at(Instant::now(), || rand::random_range(0..100))
    }

    /// `draw` returns a number below 100, each as likely as any other.
    fn change_at(&mut self, now: Instant, draw: impl FnOnce() -> u32) -> Option<bool> {
        let is_due = match &mut self.timer {
            Some(timer) => timer.is_due_at(now),
            None => {
                self.timer = Some(IntervalTimer::since(self.interval, now));
                true
            }
        };
        if !is_due {
            return None;
        }
        let is_paused = draw() >= self.sampled_percent;
        let has_changed = std::mem::replace(&mut self.is_paused, is_paused) != is_paused;
        has_changed.then_some(is_paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_is_decided_once_at_its_beginning() {
        let minute = Duration::from_secs(60);
        let mut pauses = RandomPauses::new(minute, Percent::new(30).unwrap()).unwrap();
        let start = Instant::now();
        let mut change = |seconds, drawn| pauses.change_at(start + Duration::from_secs(seconds), || drawn);
        assert_eq!(change(0, 30), Some(true));
        assert_eq!(change(59, 0), None, "the same interval");
        assert_eq!(change(60, 29), Some(false));
        assert_eq!(change(120, 0), None, "as before");
        assert_eq!(change(200, 99), Some(true));
    }

    #[test]
    fn at_100_percent_there_is_no_pause() {
        assert!(RandomPauses::new(Duration::from_secs(60), Percent::new(100).unwrap()).is_none());
    }

    /// Of 10,000 decisions at 30%, 3,000 with a standard deviation of 46.
    #[test]
    fn the_share_is_that_of_the_configuration() {
        let mut pauses = RandomPauses::new(Duration::ZERO, Percent::new(30).unwrap()).unwrap();
        let sampled = (0..10_000).filter(|_| {
            pauses.change();
            !pauses.is_paused
        });
        assert!((2_700..3_300).contains(&sampled.count()));
    }
}
