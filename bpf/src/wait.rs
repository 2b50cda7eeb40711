//! The ends of waits: the values of off-CPU samples.

use std::fs;

use zerocopy::FromBytes;

use crate::intf::{self, sw_wait, sw_wait_end};

/// The end of a wait that was sampled when it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitEnd {
    /// The thread of the sample.
    pub tid: u32,
    /// The time of the sample.
    pub start_ns: u64,
    /// When the thread left a CPU again, and so the time up to which it is accounted for.
    pub time_ns: u64,
    /// How long it was neither running nor runnable in between.
    pub off_cpu_ns: u64,
}

/// The value of a wait: its length, divided by the probability with which it was sampled.
#[must_use]
pub fn weighted_off_cpu_ns(off_cpu_ns: u64, probability: u64) -> u64 {
    let weighted = u128::from(off_cpu_ns) * u128::from(intf::SW_CERTAIN) / u128::from(probability.max(1));
    u64::try_from(weighted).unwrap_or(u64::MAX)
}

impl WaitEnd {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (sw_wait_end { tid, start_ns, time_ns, off_cpu_ns, .. }, _) =
            sw_wait_end::read_from_prefix(bytes).ok()?;
        Some(Self { tid, start_ns, time_ns, off_cpu_ns })
    }

    /// A sampled wait up to `time_ns`; `None` if it isn't sampled, or the thread is gone.
    pub(crate) fn in_progress(wait: &sw_wait, time_ns: u64) -> Option<Self> {
        if wait.is_waiting == 0 || wait.probability == 0 {
            return None;
        }
        let path = format!("/proc/{}/task/{}/schedstat", wait.pid, wait.tid);
        let (on_cpu_ns, runnable_ns) = parse_schedstat(&fs::read_to_string(path).ok()?)?;
        let wall_ns = time_ns.saturating_sub(wait.time_ns);
        let other_ns =
            on_cpu_ns.saturating_sub(wait.on_cpu_ns) + runnable_ns.saturating_sub(wait.runnable_ns);
        Some(Self {
            tid: wait.tid,
            start_ns: wait.time_ns,
            time_ns,
            off_cpu_ns: wall_ns.saturating_sub(other_ns),
        })
    }
}

/// The time on CPUs and the time spent waiting for one, in nanoseconds (Documentation/scheduler/sched-stats.rst).
fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
    Some((fields.next()??, fields.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monotonic_ns;

    #[test]
    fn a_wait_counts_for_the_inverse_of_its_probability() {
        assert_eq!(weighted_off_cpu_ns(7, intf::SW_CERTAIN), 7);
        assert_eq!(weighted_off_cpu_ns(7_000_000_000_000, intf::SW_CERTAIN / 4), 28_000_000_000_000);
        assert_eq!(weighted_off_cpu_ns(u64::MAX, 1), u64::MAX);
        assert_eq!(weighted_off_cpu_ns(0, 0), 0);
    }

    #[test]
    fn a_thread_that_still_waits_is_charged_up_to_now() {
        let (tid, pid) = (rustix::thread::gettid().as_raw_nonzero().get() as u32, std::process::id());
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap();
        let (on_cpu_ns, runnable_ns) = parse_schedstat(&text).unwrap();
        let time_ns = monotonic_ns();
        let wait = sw_wait {
            time_ns,
            on_cpu_ns,
            runnable_ns,
            pid,
            tid,
            probability: intf::SW_CERTAIN,
            is_waiting: 1,
            ..sw_wait::default()
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        let end = WaitEnd::in_progress(&wait, monotonic_ns()).unwrap();
        assert_eq!((end.tid, end.start_ns), (tid, time_ns));
        assert!(end.off_cpu_ns >= 15_000_000 && end.off_cpu_ns <= end.time_ns - time_ns, "{end:?}");
        assert_eq!(WaitEnd::in_progress(&sw_wait { is_waiting: 0, ..wait }, time_ns), None);
        assert_eq!(WaitEnd::in_progress(&sw_wait { tid: u32::MAX, ..wait }, time_ns), None, "it is gone");
        assert_eq!(parse_schedstat("1\n"), None);
    }
}
