//! The request that a receiver stops, which ends all that its thread waits for.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Whether a receiver must stop, and the deadline by which its exporters must have everything that it sampled.
#[derive(Debug)]
pub(super) struct StopRequest {
    deadline: OnceLock<Instant>,
    /// Readable from the request on: nobody reads it.
    requested: OwnedFd,
}

impl StopRequest {
    pub(super) fn new() -> io::Result<Self> {
        let requested = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { deadline: OnceLock::new(), requested })
    }

    /// Requests a stop. If there is a deadline already, it stays.
    pub(super) fn request(&self, deadline: Instant) {
        self.deadline.get_or_init(|| deadline);
        // It fails if the number is at its maximum: then it is readable.
        let _ = rustix::io::write(&self.requested, &1_u64.to_ne_bytes());
    }

    /// Waits for the request, at most for `timeout`, and returns whether there is one.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        while !self.is_requested() {
            let left = until.saturating_duration_since(Instant::now());
            // A wait that a signal has interrupted goes on.
            let Ok(timeout) = Timespec::try_from(left) else { break };
            if left.is_zero() {
                break;
            }
            let _ = poll(&mut [PollFd::new(&self.requested, PollFlags::IN)], Some(&timeout));
        }
        self.is_requested()
    }

    /// A descriptor that is readable from the request on.
    pub(super) fn readable_when_requested(&self) -> BorrowedFd<'_> {
        self.requested.as_fd()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    pub(super) fn is_requested(&self) -> bool {
        self.deadline().is_some()
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_request_ends_a_wait_and_keeps_its_first_deadline() {
        let stop = StopRequest::new().unwrap();
        assert!(!stop.wait(Duration::from_millis(1)), "nobody has requested a stop");
        let began = Instant::now();
        let deadline = began + Duration::from_secs(1);
        thread::scope(|threads| {
            threads.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                stop.request(deadline);
                stop.request(deadline + Duration::from_secs(1));
            });
            assert!(stop.wait(Duration::from_secs(600)));
        });
        assert!(began.elapsed() < Duration::from_secs(300), "the wait ended early");
        assert_eq!(stop.deadline(), Some(deadline));
    }
}
