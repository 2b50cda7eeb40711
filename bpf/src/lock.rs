//! Waits in futexes, as `c/lock.bpf.h` reports them.

use zerocopy::{IntoBytes, TryFromBytes};

use crate::intf::{self, sw_futex_use};

/// A wait in a futex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LockWait {
    /// The address of the lock in its process; of the futex, if that is all that is known.
    pub address: u64,
    /// What the call itself says of the wait.
    pub evidence: LockEvidence,
}

/// What the arguments of a call say of the futex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockEvidence {
    /// Nothing: it may be a condition, a semaphore, a parked thread or a lock.
    None,
    /// The futex is a lock, which is held.
    Held,
    /// The futex belongs to the thread, which is parked for the lock.
    Parked,
}

impl LockWait {
    /// Parses what a record or a map says; `None` if the thread does not wait in a futex.
    pub(crate) fn new(futex_use: u32, address: u64) -> Option<Self> {
        let evidence = match sw_futex_use::try_read_from_bytes(futex_use.as_bytes()).ok()? {
            sw_futex_use::SW_FUTEX_NONE => return None,
            sw_futex_use::SW_FUTEX_OTHER => LockEvidence::None,
            sw_futex_use::SW_FUTEX_LOCK => LockEvidence::Held,
            sw_futex_use::SW_FUTEX_PARKED => LockEvidence::Parked,
        };
        Some(Self { address, evidence })
    }
}

/// The number of waits that a sample with this probability stands for.
#[must_use]
pub fn waits_of_sample(probability: u64) -> f64 {
    intf::SW_CERTAIN as f64 / probability.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wait_in_a_futex_may_be_for_a_lock() {
        assert_eq!(LockWait::new(sw_futex_use::SW_FUTEX_NONE as u32, 0x1000), None);
        let held = LockWait { address: 0x1000, evidence: LockEvidence::Held };
        assert_eq!(LockWait::new(sw_futex_use::SW_FUTEX_LOCK as u32, 0x1000), Some(held));
        assert_eq!(LockWait::new(99, 0x1000), None);
    }

    #[test]
    fn a_sample_stands_for_the_inverse_of_its_probability() {
        assert_eq!([intf::SW_CERTAIN, intf::SW_CERTAIN / 8].map(waits_of_sample), [1.0, 8.0]);
    }
}
