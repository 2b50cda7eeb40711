//! What a profiler counts, and says at its end.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::conservation::Summary;
use crate::log;

/// What both forms say: `record` in the file of `--summary-json`, the service in the last line of its log.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Counts {
    /// How all interrupts ended.
    #[serde(flatten)]
    pub summary: Summary,
    /// How the interrupts for other kinds than CPU time ended, by the name of the kind. The service names no outcome of which there
    /// is none.
    pub outcomes_of_other_kinds: BTreeMap<String, BTreeMap<String, u64>>,
    /// Waits that are missing from off-CPU time.
    #[serde(rename = "off_cpu_waits_missing")]
    pub missing_waits: MissingWaits,
    /// Waits that were charged, or found, before they ended.
    #[serde(rename = "off_cpu_waits_in_progress")]
    pub waits_in_progress: WaitsInProgress,
}

/// Waits that are missing from off-CPU time, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct MissingWaits {
    /// There was no room for the record of their end.
    pub end_lost: u64,
    /// Their end never came.
    pub without_end: u64,
}

/// Waits that were charged, or found, before they ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct WaitsInProgress {
    /// Found in a list of threads.
    pub found: u64,
    /// Events of waits that went on.
    pub events: u64,
    /// How often there was no list.
    pub lists_failed: u64,
}

impl Counts {
    /// What a service's log says where the first run of its receiver ends; `None` where it does not.
    #[must_use]
    pub fn from_log(log: &str) -> Option<Self> {
        let end = log::entries(log).find(|entry| entry.counts("counters").is_some())?;
        let counters: BTreeMap<_, _> = end.counts("counters")?.into_iter().collect();
        // Most counters are left out where they are 0.
        let number = |name: &str| counters.get(name).copied().unwrap_or_default();
        let mut of_clock = BTreeMap::from([("missed".to_owned(), number("missed"))]);
        let mut of_other_kinds: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for (key, number) in end.counts("outcomes")? {
            let (of_kind, outcome) = match key.split_once('.') {
                Some((kind, outcome)) => (of_other_kinds.entry(kind.to_owned()).or_default(), outcome),
                None => (&mut of_clock, key),
            };
            of_kind.insert(outcome.to_owned(), number);
        }
        Some(Self {
            summary: Summary {
                interrupts_by_witness: *counters.get("interrupts_by_witness")?,
                outcomes: of_clock,
                events_exported: *counters.get("events_exported")?,
                idle_inferred: number("idle_inferred"),
            },
            outcomes_of_other_kinds: of_other_kinds,
            missing_waits: MissingWaits {
                end_lost: number("off_cpu_waits_missing_end_lost"),
                without_end: number("off_cpu_waits_missing_without_end"),
            },
            waits_in_progress: WaitsInProgress {
                found: number("off_cpu_waits_found_read"),
                events: number("off_cpu_events_so_far"),
                lists_failed: number("off_cpu_lists_failed"),
            },
        })
    }
}

impl Summary {
    /// What a daemon's log says at its end; `None` where it does not.
    #[must_use]
    pub fn from_log(log: &str) -> Option<Self> {
        Some(Counts::from_log(log)?.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_and_a_summary_say_the_same() -> anyhow::Result<()> {
        let log = r#"{"fields": {"message": "profiling", "samples_per_second": 97}}
            {"fields": {"message": "profiling ended", "outcomes": "complete=9 off_cpu.complete=5 off_cpu.not_drawn=3",
            "counters": "missed=1 interrupts_by_witness=10 events_exported=9 off_cpu_waits_missing_unseen=7 off_cpu_waits_missing_without_end=2 off_cpu_waits_found_read=4 off_cpu_events_so_far=6 tables_bytes=8"}}"#;
        let log = &log.replace(",\n", ",");
        let said = r#"{"interrupts_by_witness": 10, "outcomes": {"complete": 9, "missed": 1}, "events_exported": 9, "idle_inferred": 0,
            "outcomes_of_other_kinds": {"off_cpu": {"complete": 5, "not_drawn": 3}},
            "off_cpu_waits_missing": {"unseen": 7, "end_lost": 0, "without_end": 2, "waker_unmatched": 0},
            "off_cpu_waits_in_progress": {"found": 4, "unread": 0, "events": 6, "lists_failed": 0}}"#;
        assert_eq!(Counts::from_log(log), Some(serde_json::from_str(said)?));
        assert_eq!(Counts::from_log(log.lines().next().unwrap_or_default()), None);
        Ok(())
    }
}
