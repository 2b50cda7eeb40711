//! Event counts by key and slice of time, in bounded memory. When there are too many slices or rows, slices become longer.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// The initial length of a slice of time.
const SLICE_NS: u64 = 1_000_000;
/// With more slices than this, the length of a slice doubles.
const SLICES_MAX: u64 = 2000;
/// With more rows than this, the length of a slice doubles too, as long as that reduces their number.
const ROWS_MAX: usize = 1 << 19;

/// Event counts by slice of `CLOCK_MONOTONIC`, and by key: what the events have in common.
#[derive(Debug)]
pub struct TimeSlicedCounts<K> {
    slice_ns: u64,
    first: u64,
    last: u64,
    rows: HashMap<(u64, K), u64>,
    rows_max: usize,
}

impl<K: Copy + Eq + Hash> TimeSlicedCounts<K> {
    /// No events.
    #[must_use]
    pub fn new() -> Self {
        Self { slice_ns: SLICE_NS, first: u64::MAX, last: 0, rows: HashMap::new(), rows_max: ROWS_MAX }
    }

    /// Adds events of the same time and key.
    pub fn add(&mut self, time_ns: u64, key: K, count: u64) {
        let slice = time_ns / self.slice_ns;
        (self.first, self.last) = (self.first.min(slice), self.last.max(slice));
        let row = self.rows.entry((slice, key)).or_default();
        *row = row.saturating_add(count);
        while self.last - self.first >= SLICES_MAX {
            self.coarsen();
        }
        if self.rows.len() > self.rows_max {
            self.coarsen();
            // Rows that did not merge now, because they differ in more than their time, will not merge later.
            self.rows_max = ROWS_MAX.max(self.rows.len() * 2);
        }
    }

    /// The current length of a slice.
    #[must_use]
    pub fn slice(&self) -> Duration {
        Duration::from_nanos(self.slice_ns)
    }

    /// Each row, with its slice counted from the one that contains `start_ns`. Earlier events are counted in that slice.
    pub fn rows_since(&self, start_ns: u64) -> impl Iterator<Item = (u32, K, u64)> {
        let first = start_ns / self.slice_ns;
        self.rows.iter().map(move |(&(slice, key), &count)| {
            (u32::try_from(slice.saturating_sub(first)).unwrap_or(u32::MAX), key, count)
        })
    }

    fn coarsen(&mut self) {
        self.slice_ns *= 2;
        (self.first, self.last) = (self.first / 2, self.last / 2);
        for ((slice, key), count) in std::mem::take(&mut self.rows) {
            let row = self.rows.entry((slice / 2, key)).or_default();
            *row = row.saturating_add(count);
        }
    }
}

impl<K: Copy + Eq + Hash> Default for TimeSlicedCounts<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_event_is_lost_when_slices_grow() {
        let mut counts = TimeSlicedCounts::new();
        for event in 0..100_000_u64 {
            counts.add(7 * SLICE_NS + event * SLICE_NS / 3, event % 2, 1);
        }
        let slices = 33_333 * SLICE_NS / u64::try_from(counts.slice().as_nanos()).unwrap();
        assert!((SLICES_MAX / 2..=SLICES_MAX).contains(&slices), "{slices}");
        let rows: Vec<_> = counts.rows_since(7 * SLICE_NS).collect();
        assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), 100_000);
        assert_eq!(rows.iter().map(|row| u64::from(row.0)).max(), Some(slices));
        assert!(rows.len() as u64 <= 2 * (SLICES_MAX + 1));
    }

    #[test]
    fn rows_that_never_merge_make_slices_grow_only_once() {
        let mut counts = TimeSlicedCounts { rows_max: 100, ..TimeSlicedCounts::new() };
        for event in 0..1000_u64 {
            counts.add(event, event, 1);
        }
        assert_eq!(counts.slice(), Duration::from_nanos(2 * SLICE_NS));
        assert_eq!(counts.rows_since(0).count(), 1000);
    }
}
