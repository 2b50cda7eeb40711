//! Resource use of this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// User and system CPU time of all threads, including those that have ended.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_takes_time() {
        let before = cpu_time();
        assert!((0..1_u64 << 24).map(std::hint::black_box).sum::<u64>() > 0);
        assert!(cpu_time() > before);
    }
}
