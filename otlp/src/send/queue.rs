//! Encoded reports that wait to be sent, bounded in bytes, and the account of all events.
//!
//! One lock guards both, so that a snapshot of the counts is always of one moment: their sum is what
//! was handed over.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{Counts, State};
use crate::report::{Report, Tally};

/// A first-in-first-out queue of reports.
///
/// A report takes its place until it is settled: those being sent count as well.
#[derive(Debug)]
pub(super) struct Queue {
    capacity_bytes: usize,
    held: Mutex<Held>,
    /// Something was pushed, or the queue was closed.
    changed: Notify,
    /// Nothing is waiting or being sent any more.
    idle: Notify,
}

#[derive(Debug, Default)]
struct Held {
    waiting: VecDeque<Report>,
    /// Of the reports that wait or are being sent.
    bytes: usize,
    in_flight: usize,
    closed: bool,
    counts: Counts,
}

/// What a queue holds at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Snapshot {
    pub(super) counts: Counts,
    pub(super) bytes: usize,
    pub(super) in_flight: usize,
}

impl Queue {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        Self { capacity_bytes, held: Mutex::default(), changed: Notify::new(), idle: Notify::new() }
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Takes a report in, or counts it as lost where there is no room. Never waits.
    pub(super) fn push(&self, report: Report) -> Result<(), State> {
        let mut held = self.held();
        let room = self.capacity_bytes - held.bytes.min(self.capacity_bytes);
        let refused = match held.closed {
            true => Some(State::DroppedShutdown),
            false => (report.as_bytes().len() > room).then_some(State::DroppedQueueFull),
        };
        if let Some(state) = refused {
            *held.counts.of(state) += report.tally();
            return Err(state);
        }
        held.bytes += report.as_bytes().len();
        held.counts.queued += report.tally();
        held.waiting.push_back(report);
        drop(held);
        self.changed.notify_one();
        Ok(())
    }

    /// Counts events that never came as far as the queue.
    pub(super) fn lost(&self, state: State, tally: Tally) {
        *self.held().counts.of(state) += tally;
    }

    /// The next report to be sent, once there is one.
    pub(super) async fn next(self: &Arc<Self>) -> Ticket {
        loop {
            let changed = self.changed.notified();
            if let Some(ticket) = self.take() {
                return ticket;
            }
            changed.await;
        }
    }

    fn take(self: &Arc<Self>) -> Option<Ticket> {
        let mut held = self.held();
        let report = held.waiting.pop_front()?;
        held.in_flight += 1;
        if !held.waiting.is_empty() {
            // A notification that nobody was waiting for is kept only once.
            self.changed.notify_one();
        }
        Some(Ticket { queue: Arc::clone(self), report, may_have_arrived: false, sending: false, end: None })
    }

    /// Takes nothing in any more.
    pub(super) fn close(&self) {
        self.held().closed = true;
    }

    /// Returns when nothing is waiting or being sent.
    pub(super) async fn drained(&self) {
        loop {
            let idle = self.idle.notified();
            if self.held().is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// Counts what is still waiting as lost to the shutdown.
    pub(super) fn abandon(&self) {
        let mut held = self.held();
        for report in std::mem::take(&mut held.waiting) {
            held.release(&report, State::DroppedShutdown);
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let held = self.held();
        Snapshot { counts: held.counts, bytes: held.bytes, in_flight: held.in_flight }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing under the lock can panic halfway through a change.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    /// Moves the events of `report` from the queue to their end.
    fn release(&mut self, report: &Report, end: State) {
        self.bytes -= report.as_bytes().len();
        self.counts.queued = self.counts.queued - report.tally();
        *self.counts.of(end) += report.tally();
    }
}

/// A report that is being sent. Whatever happens to it, its events are counted once: a ticket that
/// is dropped before it is settled ends as unknown if the receiver may have the report.
#[derive(Debug)]
pub(super) struct Ticket {
    queue: Arc<Queue>,
    report: Report,
    may_have_arrived: bool,
    sending: bool,
    end: Option<State>,
}

impl Ticket {
    pub(super) fn message(&self) -> Bytes {
        self.report.shared_bytes()
    }

    pub(super) fn profiles(&self) -> u64 {
        self.report.profiles()
    }

    /// An attempt begins.
    pub(super) fn begin_attempt(&mut self) {
        self.sending = true;
    }

    /// The attempt failed, but another may follow.
    pub(super) fn end_attempt(&mut self, may_have_arrived: bool) {
        self.sending = false;
        self.may_have_arrived |= may_have_arrived;
    }

    /// How its events ended.
    pub(super) fn settle(mut self, end: State) {
        self.end = Some(end);
    }

    /// No further attempt is made.
    pub(super) fn give_up(self) {
        let end = if self.may_have_arrived { State::Unknown } else { State::DroppedRetriesExhausted };
        self.settle(end);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let end = self.end.unwrap_or(if self.sending || self.may_have_arrived {
            State::Unknown
        } else {
            State::DroppedShutdown
        });
        let mut held = self.queue.held();
        held.release(&self.report, end);
        held.in_flight -= 1;
        if held.is_idle() {
            self.queue.idle.notify_waiters();
        }
    }
}
