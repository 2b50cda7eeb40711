//! How much was counted some minutes ago: what `sidewinder status` calls wrong now is what has grown since.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use sidewinder_otlp::send::Counts;

use super::receiver::ReceiverStats;

/// The time that counts as now.
pub(crate) const WINDOW: Duration = Duration::from_secs(5 * 60);
/// How often a note is taken.
pub(crate) const INTERVAL: Duration = Duration::from_secs(30);

/// What had been counted at one time.
#[derive(Clone, Debug)]
pub(crate) struct StatsSnapshot {
    pub(crate) at: Instant,
    pub(crate) receivers: BTreeMap<String, ReceiverStats>,
    /// By the exporter's name.
    pub(crate) exporters: BTreeMap<String, Counts>,
}

/// The notes of the last minutes, oldest first.
#[derive(Debug, Default)]
pub(super) struct StatsHistory(VecDeque<StatsSnapshot>);

impl StatsHistory {
    pub(super) fn add(&mut self, note: StatsSnapshot) {
        let now = note.at;
        self.0.push_back(note);
        let is_older = |note: &StatsSnapshot| now.saturating_duration_since(note.at) >= WINDOW;
        // One from the beginning of the window, or before it, stays.
        while self.0.get(1).is_some_and(is_older) {
            self.0.pop_front();
        }
    }

    /// The last note from before the window; `None` where all there is began within it.
    pub(super) fn before(&self, now: Instant) -> Option<&StatsSnapshot> {
        self.0.iter().rev().find(|note| now.saturating_duration_since(note.at) >= WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_from_before_the_window_is_found_and_older_ones_are_forgotten() {
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
        assert_eq!(history.before(at(3_600)).map(|note| note.at), Some(at(3_300)));
        assert_eq!(history.before(at(3_629)).map(|note| note.at), Some(at(3_300)));
        assert!(history.0.len() <= 12, "{}", history.0.len());
        let mut young = StatsHistory::default();
        young.add(StatsSnapshot { at: at(0), receivers: BTreeMap::new(), exporters: BTreeMap::new() });
        assert!(young.before(at(299)).is_none());
    }
}
