//! Snapshots of the counters from the last minutes. `sidewinder status` reports counters that have grown since the window
//! began.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use sidewinder_otlp::send::Counts;

use super::receiver::ReceiverStats;

/// The time before now that counts as current.
pub(crate) const WINDOW: Duration = Duration::from_secs(5 * 60);
/// How often a snapshot is taken.
pub(crate) const INTERVAL: Duration = Duration::from_secs(30);

/// The counters at one time.
#[derive(Clone, Debug)]
pub(crate) struct StatsSnapshot {
    pub(crate) at: Instant,
    pub(crate) receivers: BTreeMap<String, ReceiverStats>,
    /// By the exporter's name.
    pub(crate) exporters: BTreeMap<String, Counts>,
}

/// The snapshots of the last minutes, oldest first.
#[derive(Debug, Default)]
pub(super) struct StatsHistory(VecDeque<StatsSnapshot>);

impl StatsHistory {
    pub(super) fn add(&mut self, snapshot: StatsSnapshot) {
        let now = snapshot.at;
        self.0.push_back(snapshot);
        let is_older = |snapshot: &StatsSnapshot| now.saturating_duration_since(snapshot.at) >= WINDOW;
        // One from the beginning of the window, or before it, is kept.
        while self.0.get(1).is_some_and(is_older) {
            self.0.pop_front();
        }
    }

    /// The last snapshot from before the window; `None` if all of them are within it.
    pub(super) fn before(&self, now: Instant) -> Option<&StatsSnapshot> {
        self.0.iter().rev().find(|snapshot| now.saturating_duration_since(snapshot.at) >= WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_snapshot_before_the_window_is_kept_and_older_ones_are_dropped() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut history = StatsHistory::default();
        assert!(history.before(at(0)).is_none());
        for seconds in (0..=3_600).step_by(30) {
            history.add(StatsSnapshot {
                at: at(seconds),
                receivers: BTreeMap::new(),
                exporters: BTreeMap::new(),
            });
        }
        assert_eq!(history.before(at(3_600)).map(|snapshot| snapshot.at), Some(at(3_300)));
        assert_eq!(history.before(at(3_629)).map(|snapshot| snapshot.at), Some(at(3_300)));
        assert!(history.0.len() <= 12, "{}", history.0.len());
        let mut young = StatsHistory::default();
        young.add(StatsSnapshot { at: at(0), receivers: BTreeMap::new(), exporters: BTreeMap::new() });
        assert!(young.before(at(299)).is_none());
    }
}
