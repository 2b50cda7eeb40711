//! The ends of waits: the values of off-CPU samples.

use zerocopy::{FromBytes, IntoBytes, TryFromBytes};

use crate::intf::{self, sw_wait_cause, sw_wait_end, sw_wait_state};
use crate::lock::LockWait;

/// The probability of a sample that was certain to be taken.
pub const CERTAIN: u64 = intf::SW_CERTAIN;

/// The end of a wait that was sampled when it began, or when it was found in progress.
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
    /// The futex in which it waited, if waits for locks are sampled.
    pub lock: Option<LockWait>,
    /// How long it waited for a CPU in between.
    pub runnable_ns: u64,
    /// The part of that time in which the sample was taken.
    pub walk_ns: u64,
    /// How long the thread's waits were that were not drawn, since the last end that says so.
    pub undrawn_ns: u64,
    /// The sample of the thread that ended it, if those are taken.
    pub waker: Option<WakerSample>,
}

/// Identifies the sample of a thread that ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WakerSample {
    /// The thread of the sample.
    pub tid: u32,
    /// Its time.
    pub time_ns: u64,
}

/// The state of a thread, and what it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitReason {
    /// `sleeping`, `uninterruptible` or `stopped`; `running` or `runnable` if it does not wait.
    pub state: &'static str,
    /// The kind of system call that it is in, as `futex`; `other`, or `none` if it is in none. `None` if it does not wait.
    pub cause: Option<&'static str>,
}

impl WaitReason {
    /// The thread runs.
    pub const RUNNING: Self = Self { state: "running", cause: None };
    /// The thread waits for a CPU.
    pub const RUNNABLE: Self = Self { state: "runnable", cause: None };

    /// Parses the flags of a sample; `None` if it is not that of a wait.
    pub(crate) fn from_flags(flags: u32) -> Option<Self> {
        let [_, state, cause, _] = flags.to_le_bytes();
        let state = match sw_wait_state::try_read_from_bytes(u32::from(state).as_bytes()).ok()? {
            sw_wait_state::SW_WAIT_NONE => return None,
            sw_wait_state::SW_WAIT_SLEEPING => "sleeping",
            sw_wait_state::SW_WAIT_UNINTERRUPTIBLE => "uninterruptible",
            sw_wait_state::SW_WAIT_STOPPED => "stopped",
            sw_wait_state::SW_WAIT_RUNNABLE => return Some(Self::RUNNABLE),
        };
        let cause = match sw_wait_cause::try_read_from_bytes(u32::from(cause).as_bytes()).ok()? {
            sw_wait_cause::SW_CAUSE_OTHER_CALL => "other",
            sw_wait_cause::SW_CAUSE_NO_CALL => "none",
            sw_wait_cause::SW_CAUSE_SLEEP => "sleep",
            sw_wait_cause::SW_CAUSE_FUTEX => "futex",
            sw_wait_cause::SW_CAUSE_POLL => "poll",
            sw_wait_cause::SW_CAUSE_READ => "read",
            sw_wait_cause::SW_CAUSE_WRITE => "write",
            sw_wait_cause::SW_CAUSE_RECEIVE => "receive",
            sw_wait_cause::SW_CAUSE_SEND => "send",
            sw_wait_cause::SW_CAUSE_CONNECT => "connect",
            sw_wait_cause::SW_CAUSE_ACCEPT => "accept",
            sw_wait_cause::SW_CAUSE_OPEN => "open",
            sw_wait_cause::SW_CAUSE_SYNC => "sync",
            sw_wait_cause::SW_CAUSE_FILE_LOCK => "file_lock",
            sw_wait_cause::SW_CAUSE_CHILD => "child",
            sw_wait_cause::SW_CAUSE_SIGNAL => "signal",
            sw_wait_cause::SW_CAUSE_IPC => "ipc",
            sw_wait_cause::SW_CAUSE_ASYNC_IO => "async_io",
        };
        Some(Self { state, cause: Some(cause) })
    }
}

/// The value of a wait: its length, divided by the probability with which it was sampled.
#[must_use]
pub fn weighted_off_cpu_ns(off_cpu_ns: u64, probability: u64) -> u64 {
    let weighted = u128::from(off_cpu_ns) * u128::from(intf::SW_CERTAIN) / u128::from(probability.max(1));
    u64::try_from(weighted).unwrap_or(u64::MAX)
}

impl WaitEnd {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (end, _) = sw_wait_end::read_from_prefix(bytes).ok()?;
        let sw_wait_end { tid, start_ns, time_ns, off_cpu_ns, runnable_ns, walk_ns, undrawn_ns, .. } = end;
        let lock = LockWait::new(end.futex_use.into(), end.lock);
        let waker = WakerSample { tid: end.waker_tid, time_ns: end.waker_ns };
        let waker = Some(waker).filter(|waker| waker.time_ns > 0);
        Some(Self { tid, start_ns, time_ns, off_cpu_ns, runnable_ns, walk_ns, undrawn_ns, lock, waker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_for_the_inverse_of_its_probability() {
        assert_eq!(weighted_off_cpu_ns(7, intf::SW_CERTAIN), 7);
        assert_eq!(weighted_off_cpu_ns(7_000_000_000_000, intf::SW_CERTAIN / 4), 28_000_000_000_000);
        assert_eq!(weighted_off_cpu_ns(u64::MAX, 1), u64::MAX);
        assert_eq!(weighted_off_cpu_ns(0, 0), 0);
    }

    #[test]
    fn only_the_sample_of_a_wait_has_a_reason() {
        let flags = |state: sw_wait_state, cause: sw_wait_cause| {
            intf::SW_SAMPLE_IN_KERNEL
                | (state as u32) << intf::SW_SAMPLE_WAIT_STATE_SHIFT
                | (cause as u32) << intf::SW_SAMPLE_WAIT_CAUSE_SHIFT
        };
        let futex = flags(sw_wait_state::SW_WAIT_SLEEPING, sw_wait_cause::SW_CAUSE_FUTEX);
        let reason = WaitReason { state: "sleeping", cause: Some("futex") };
        assert_eq!(WaitReason::from_flags(futex), Some(reason));
        let runnable = flags(sw_wait_state::SW_WAIT_RUNNABLE, sw_wait_cause::SW_CAUSE_FUTEX);
        assert_eq!(WaitReason::from_flags(runnable), Some(WaitReason::RUNNABLE));
        let none = flags(sw_wait_state::SW_WAIT_NONE, sw_wait_cause::SW_CAUSE_FUTEX);
        assert_eq!([none, 0x0000_ff00, 0x00ff_0100].map(WaitReason::from_flags), [None; 3]);
    }
}
