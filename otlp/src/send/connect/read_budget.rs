//! How much a peer may send before its answer is whole.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes that the connections of one client may still receive. The libraries skip interim responses
/// (`100 Continue`) and many frames of HTTP/2 as fast as they come: without a limit, a peer that sends nothing else keeps a CPU
/// busy.
#[derive(Debug)]
pub(in crate::send) struct ReadBudget {
    left: AtomicU64,
}

impl ReadBudget {
    /// Far more than a response and its headers, or what the libraries read ahead of a part of one.
    const FULL: u64 = 4 << 20;

    pub(in crate::send) fn new() -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(Self::FULL) })
    }

    /// Allows another response, or another part of one.
    pub(in crate::send) fn refill(&self) {
        self.left.store(Self::FULL, Ordering::Relaxed);
    }

    /// # Errors
    /// If the peer has sent more. Its connection must end then.
    pub(super) fn spend(&self, bytes: usize) -> io::Result<()> {
        let take = |left: u64| left.checked_sub(bytes as u64);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other(format!(
                "more than {} KiB arrived without a whole response: endless `100 Continue`, or frames of HTTP/2",
                Self::FULL >> 10
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_once_and_refilled_for_each_response() {
        let budget = ReadBudget::new();
        let half = usize::try_from(ReadBudget::FULL / 2).unwrap();
        for _ in 0..2 {
            assert!(budget.spend(half).is_ok() && budget.spend(half).is_ok());
            assert!(budget.spend(1).is_err(), "nothing is left");
            budget.refill();
        }
    }
}
