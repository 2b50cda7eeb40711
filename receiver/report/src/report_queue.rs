//! The queue of messages from the sampling thread to the reporter. It is bounded, and does not block sampling until it is
//! closed.

use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use sidewinder_base::interval_timer::IntervalTimer;
use tracing::warn;

use sidewinder_message::Message;

/// The shortest time between two batches: waking the reporter costs both threads more than a few messages do.
pub const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// The batches that the queue holds.
const BATCHES_MAX: usize = 64;
/// The messages that may be pending beyond these. Further events are dropped, and counted.
const PENDING_MAX: usize = 100_000;

/// The sampling thread's end of the queue.
#[derive(Debug)]
pub struct ReportQueue {
    batches: SyncSender<Vec<Message>>,
    /// The next batch.
    pending: Vec<Message>,
    flush_timer: IntervalTimer,
    dropped: u64,
}

impl ReportQueue {
    /// A queue, and the reporter's end of it.
    pub fn new() -> (Self, Receiver<Vec<Message>>) {
        let (batches, incoming) = sync_channel(BATCHES_MAX);
        (
            Self {
                batches,
                pending: Vec::new(),
                flush_timer: IntervalTimer::new(FLUSH_INTERVAL),
                dropped: 0,
            },
            incoming,
        )
    }

    /// Events that were dropped because the reporter could not keep up.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds messages to the next batch.
    pub fn add(&mut self, mut messages: Vec<Message>) {
        self.pending.append(&mut messages);
    }

    /// Sends the pending messages if it is time and the queue has room. `receiver` is for the log.
    pub fn flush(&mut self, receiver: &str) {
        if !self.pending.is_empty() && self.flush_timer.is_due() {
            self.flush_now(receiver);
        }
    }

    fn flush_now(&mut self, receiver: &str) {
        match self.batches.try_send(mem::take(&mut self.pending)) {
            Ok(()) => {}
            Err(TrySendError::Full(pending) | TrySendError::Disconnected(pending)) => self.pending = pending,
        }
        if self.pending.len() > PENDING_MAX {
            // Later events refer to the processes and files of the dropped ones too.
            let before = self.pending.len();
            self.pending.retain(|message| !message.is_event());
            let dropped = (before - self.pending.len()) as u64;
            self.dropped += dropped;
            warn!(receiver, dropped, "naming can't keep up: events are dropped");
        }
    }

    /// Sends the pending messages as soon as the queue has room, and closes it.
    pub fn close(self) {
        // The reporter ends only after the queue is closed.
        let _ = self.batches.send(self.pending);
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_message::test_support::event;
    use sidewinder_process::ProcessKey;

    use super::*;

    #[test]
    fn the_queue_is_bounded_and_keeps_what_events_refer_to() {
        let (mut queue, incoming) = ReportQueue::new();
        let exited = || Message::ProcessExited(ProcessKey { pid: 7, instance: 1 });
        for _ in 0..BATCHES_MAX {
            queue.pending.push(exited());
            queue.flush_now("test");
        }
        assert!(queue.pending.is_empty());
        // The reporter takes nothing.
        queue.pending.extend((0..PENDING_MAX as u64).map(|stack| Message::Event(event(stack, None))));
        queue.flush_now("test");
        assert_eq!((queue.dropped(), queue.pending.len()), (0, PENDING_MAX));
        queue.pending.push(exited());
        queue.flush_now("test");
        assert_eq!((queue.dropped(), queue.pending.len()), (PENDING_MAX as u64, 1));
        // The queue has room again.
        assert_eq!(incoming.try_iter().count(), BATCHES_MAX);
        queue.close();
        assert!(matches!(incoming.try_recv().as_deref(), Ok([Message::ProcessExited(_)])));
    }
}
