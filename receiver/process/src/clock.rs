//! The clock of process events.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// The current time of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    let now = duration(clock_gettime(ClockId::Monotonic));
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// The wall-clock time of a number of clock ticks after boot, from the current offset between both clocks.
pub(crate) fn time_of_ticks(ticks_after_boot: u64) -> Option<SystemTime> {
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let after_boot = Duration::from_secs(ticks_after_boot / ticks_per_second)
        + Duration::from_nanos(ticks_after_boot % ticks_per_second * 1_000_000_000 / ticks_per_second);
    let up = duration(clock_gettime(ClockId::Boottime));
    SystemTime::now().checked_sub(up.saturating_sub(after_boot))
}

/// These clocks count from boot and are never negative.
fn duration(time: Timespec) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
