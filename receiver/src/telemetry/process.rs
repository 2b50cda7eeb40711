//! What this process itself takes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// User and system time of all threads, those that ended included.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Physical memory, as `/proc/self/statm` has it; `None` where that can't be read.
pub(super) fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_takes_time_and_holding_takes_memory() {
        let before = (cpu_time(), resident_bytes().unwrap());
        let held = vec![1_u8; 32 << 20];
        assert!(held.iter().map(|byte| u64::from(*byte)).sum::<u64>() == 32 << 20);
        let after = (cpu_time(), resident_bytes().unwrap());
        assert!(after.0 > before.0, "{before:?} {after:?}");
        assert!(after.1 >= before.1 + (24 << 20), "{before:?} {after:?}");
    }
}
