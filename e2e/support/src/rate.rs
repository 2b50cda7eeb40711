//! How many events a program's CPU time makes.

use std::fmt;
use std::fs;

use crate::conservation::Summary;

/// A watch of the time for which hypervisors keep CPUs of this machine from running.
#[derive(Clone, Copy, Debug)]
pub struct StolenTime {
    before_ns: u64,
}

impl StolenTime {
    /// Starts a watch.
    #[must_use]
    pub fn start() -> Self {
        Self { before_ns: stolen_since_boot_ns() }
    }

    /// What has been stolen since.
    #[must_use]
    pub fn elapsed_ns(self) -> u64 {
        stolen_since_boot_ns() - self.before_ns
    }
}

/// `steal` in proc_stat(5); 0 where that can't be read.
fn stolen_since_boot_ns() -> u64 {
    const TICK_NS: u64 = 10_000_000;
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all_cpus = stat.lines().next().unwrap_or_default();
    all_cpus.split_ascii_whitespace().nth(8).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0)
        * TICK_NS
}

/// At most this share of the events may be lacking because the machine did not interrupt.
const MAX_MISSED_SHARE: f64 = 0.1;

/// What there should be at a rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// Events of the program's own CPU time.
    pub events: f64,
    /// Events that may come on top: stolen time passes on the clock that interrupts, and on no program's account.
    pub stolen: f64,
    /// Events that may be lacking: interrupts that were due and of which no program heard, as a CPU was held back by a
    /// host that does not call that stolen, so that it is on the program's account.
    pub missed: f64,
    /// Events that may be lacking or come on top by chance.
    pub by_chance: f64,
}

impl Expected {
    /// The events of some CPU time, while so much was stolen.
    #[must_use]
    pub fn of(samples_per_second: u32, cpu_ns: u64, stolen_ns: u64) -> Self {
        let at_rate = |ns: u64| f64::from(samples_per_second) * ns as f64 / 1e9;
        Self { events: at_rate(cpu_ns), stolen: at_rate(stolen_ns), missed: 0.0, by_chance: 0.0 }
    }

    /// The same, if the profiler that says this has missed interrupts.
    #[must_use]
    pub fn but_for_missed(self, summary: &Summary) -> Self {
        let missed = summary.outcome("missed") as f64;
        Self { missed: missed.min(MAX_MISSED_SHARE * self.events), ..self }
    }

    /// The same of a program that others take turns with: which of its pieces an interrupt finds is chance, and four standard
    /// deviations of that are admitted. A program that occupies its CPU has its interrupts at equal distances.
    #[must_use]
    pub fn beside_others(self) -> Self {
        Self { by_chance: 4.0 * self.events.sqrt(), ..self }
    }

    /// Whether so many events are right but for a share of `tolerance`.
    #[must_use]
    pub fn admits(&self, events: usize, tolerance: f64) -> bool {
        let events = events as f64;
        events >= self.events * (1.0 - tolerance) - self.missed - self.by_chance
            && events <= self.events * (1.0 + tolerance) + self.stolen + self.by_chance
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} expected, up to {:.1} of them missed, up to {:.1} more of stolen time, and {:.1} by chance",
            self.events, self.missed, self.stolen, self.by_chance
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_excuses_more_events_and_missed_interrupts_some_fewer() {
        let alone = Expected::of(1_000, 1_000_000_000, 0);
        let admitted =
            |expected: Expected| [979, 981, 1_019, 1_021].map(|events| expected.admits(events, 0.02));
        assert_eq!(admitted(alone), [false, true, true, false]);
        assert_eq!(admitted(Expected::of(1_000, 1_000_000_000, 10_000_000)), [false, true, true, true]);
        let beside = Expected::of(400, 1_000_000_000, 0).beside_others();
        assert_eq!(
            [311, 313, 487, 489].map(|events| beside.admits(events, 0.02)),
            [false, true, true, false]
        );
        let after = |missed| {
            alone.but_for_missed(&Summary {
                interrupts_by_witness: 9,
                outcomes: [("missed".to_owned(), missed)].into(),
                events_exported: 9,
                idle_inferred: 0,
            })
        };
        assert_eq!(admitted(after(1)), [true, true, true, false]);
        assert!(!after(500).admits(879, 0.02), "no number of them excuses that most is lacking");
        assert_eq!(after(0), alone);
    }
}
