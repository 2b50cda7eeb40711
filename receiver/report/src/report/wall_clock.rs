//! Unix time of events, whose times are those of `CLOCK_MONOTONIC`.

use std::time::{SystemTime, UNIX_EPOCH};

use sidewinder_bpf::monotonic_ns;

/// Converts times of `CLOCK_MONOTONIC` to Unix time, by the offset between both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClock {
    unix_offset_ns: u64,
}

impl WallClock {
    /// How often the clocks are compared. The quickest comparison is used: this thread may be preempted between two
    /// readings.
    const ATTEMPTS: u32 = 8;

    pub(super) fn now() -> Self {
        let attempts = (0..Self::ATTEMPTS).map(|_| {
            let before_ns = monotonic_ns();
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let took_ns = monotonic_ns().saturating_sub(before_ns);
            let unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
            (took_ns, unix_ns.saturating_sub(before_ns + took_ns / 2))
        });
        Self { unix_offset_ns: attempts.min().map_or(0, |(_, ahead_ns)| ahead_ns) }
    }

    pub(super) fn unix_ns(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_add(self.unix_offset_ns)
    }
}
