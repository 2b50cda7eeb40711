//! From the thread that samples to the one that names. Sampling never waits, and what waits is bounded.

use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing::warn;

use crate::every::Every;
use crate::sampling::feed::Message;

/// How often messages are passed on, at the most: to wake the other side costs both more than a few messages do.
pub(crate) const PASS_ON: Duration = Duration::from_millis(100);
/// Batches of messages that may wait.
const BATCHES_WAITING_MAX: usize = 64;
/// Messages that may wait beyond that; events that come after are dropped, and counted.
const MESSAGES_WAITING_MAX: usize = 100_000;

/// The end at which sampling puts what it has.
#[derive(Debug)]
pub(crate) struct Handover {
    outgoing: SyncSender<Vec<Message>>,
    /// What the next [`Self::pass_on`] takes along; sampling adds to it.
    pub(crate) waiting: Vec<Message>,
    passing_on: Every,
    dropped: u64,
}

/// Both ends.
pub(crate) fn handover() -> (Handover, Receiver<Vec<Message>>) {
    let (outgoing, incoming) = sync_channel(BATCHES_WAITING_MAX);
    (Handover { outgoing, waiting: Vec::new(), passing_on: Every::new(PASS_ON), dropped: 0 }, incoming)
}

impl Handover {
    /// Events that were dropped, as naming could not keep up.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Passes on what waits, if it is time to and there is room. `receiver` is for the log.
    pub(crate) fn pass_on(&mut self, receiver: &str) {
        if !self.waiting.is_empty() && self.passing_on.is_due() {
            self.pass_on_now(receiver);
        }
    }

    fn pass_on_now(&mut self, receiver: &str) {
        match self.outgoing.try_send(mem::take(&mut self.waiting)) {
            Ok(()) => {}
            Err(TrySendError::Full(waiting) | TrySendError::Disconnected(waiting)) => self.waiting = waiting,
        }
        if self.waiting.len() > MESSAGES_WAITING_MAX {
            // What events refer to is kept: later ones refer to it too.
            let before = self.waiting.len();
            self.waiting.retain(|message| !matches!(message, Message::Event(_)));
            let dropped = (before - self.waiting.len()) as u64;
            self.dropped += dropped;
            warn!(receiver, dropped, "naming can't keep up: events are dropped");
        }
    }

    /// Passes on all that waits, as soon as there is room, and that nothing more comes.
    pub(crate) fn pass_all_on(self) {
        // The other side only ends after this one.
        let _ = self.outgoing.send(self.waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::tests::event;
    use crate::sampling::feed::ProcessKey;

    #[test]
    fn what_waits_is_bounded_and_what_events_refer_to_is_kept() {
        let (mut handover, incoming) = handover();
        let departed = || Message::Departed(ProcessKey { pid: 7, instance: 1 });
        for _ in 0..BATCHES_WAITING_MAX {
            handover.waiting.push(departed());
            handover.pass_on_now("test");
        }
        assert!(handover.waiting.is_empty());
        // Nobody takes anything.
        handover.waiting.extend((0..MESSAGES_WAITING_MAX as u64).map(|stack| event(stack, None)));
        handover.pass_on_now("test");
        assert_eq!((handover.dropped(), handover.waiting.len()), (0, MESSAGES_WAITING_MAX));
        handover.waiting.push(departed());
        handover.pass_on_now("test");
        assert_eq!((handover.dropped(), handover.waiting.len()), (MESSAGES_WAITING_MAX as u64, 1));
        // Room again.
        assert_eq!(incoming.try_iter().count(), BATCHES_WAITING_MAX);
        handover.pass_all_on();
        assert!(matches!(incoming.try_recv().as_deref(), Ok([Message::Departed(_)])));
    }
}
