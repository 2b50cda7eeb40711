//! A queue of encoded reports to be sent, limited in bytes, and the counts of all events.
//!
//! One lock guards the counts, so that a snapshot of them is consistent: their sum is what was enqueued. No lock that
//! [`SendQueue::push`] takes is held during slow operations.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tracing::warn;

use super::storage::{AppendError, RecoveredReports, ReportLog, StoredReport};
use super::{Counts, State};
use crate::report::{Report, Tally};

/// A first-in-first-out queue of reports, in memory or on disk.
///
/// A report uses its space until it is settled, including while it is being sent. In a queue on disk, a report is only
/// sent once it is written.
#[derive(Debug)]
pub(super) struct SendQueue {
    memory_bytes: usize,
    state: Mutex<QueueState>,
    /// Of a queue on disk. Only locked by the exporter's own thread.
    log: Option<Mutex<ReportLog>>,
    /// Notifies that there is something to send.
    ready: Notify,
    /// Notifies that there is something to write to disk.
    write_needed: Notify,
    /// Notifies that nothing is waiting or being sent.
    idle: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Reports to write to disk.
    pending_writes: VecDeque<Report>,
    /// Reports to send.
    waiting: VecDeque<QueuedReport>,
    /// Bytes of the reports in memory that are waiting or being sent.
    bytes_in_memory: usize,
    bytes_on_disk: u64,
    in_flight: usize,
    closed: bool,
    counts: Counts,
}

/// Where a report is stored.
#[derive(Debug)]
enum QueuedReport {
    Memory(Report),
    Disk {
        stored: StoredReport,
        /// An earlier process stored it, and may have sent it.
        is_recovered: bool,
    },
}

impl QueuedReport {
    fn tally(&self) -> Tally {
        match self {
            Self::Memory(report) => report.tally(),
            Self::Disk { stored, .. } => stored.tally(),
        }
    }
}

/// A snapshot of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct QueueSnapshot {
    pub(super) counts: Counts,
    pub(super) bytes: u64,
    pub(super) in_flight: usize,
}

impl SendQueue {
    /// Creates a queue in memory.
    pub(super) fn new(memory_bytes: usize) -> Self {
        Self {
            memory_bytes,
            state: Mutex::default(),
            log: None,
            ready: Notify::new(),
            write_needed: Notify::new(),
            idle: Notify::new(),
        }
    }

    /// Creates a queue on disk, with the reports that are already there. New reports are in memory until they are
    /// written.
    pub(super) fn with_storage(memory_bytes: usize, log: ReportLog, recovered: RecoveredReports) -> Self {
        let queue = Self { log: Some(Mutex::new(log)), ..Self::new(memory_bytes) };
        let mut held = queue.lock_state();
        *held.counts.of(State::DroppedStorageDamaged) += recovered.lost;
        for stored in recovered.waiting {
            held.counts.queued += stored.tally();
            held.waiting.push_back(QueuedReport::Disk { stored, is_recovered: true });
        }
        queue.update_bytes_on_disk(&mut held);
        drop(held);
        queue.ready.notify_one();
        queue
    }

    /// Enqueues a report, or counts it as dropped if there is no room. Never blocks.
    pub(super) fn push(&self, report: Report) {
        let mut held = self.lock_state();
        let room = self.memory_bytes - held.bytes_in_memory.min(self.memory_bytes);
        let refused = match held.closed {
            true => Some(State::DroppedShutdown),
            false => (report.as_bytes().len() > room).then_some(State::DroppedQueueFull),
        };
        if let Some(state) = refused {
            *held.counts.of(state) += report.tally();
            return;
        }
        held.bytes_in_memory += report.as_bytes().len();
        held.counts.queued += report.tally();
        if self.log.is_some() {
            held.pending_writes.push_back(report);
            drop(held);
            self.write_needed.notify_one();
        } else {
            held.waiting.push_back(QueuedReport::Memory(report));
            drop(held);
            self.ready.notify_one();
        }
    }

    /// Writes reports to disk as they arrive; never returns.
    pub(super) async fn run_writer(self: Arc<Self>) {
        loop {
            let unsaved = self.write_needed.notified();
            self.write_pending();
            unsaved.await;
        }
    }

    /// Writes all pending reports to disk.
    fn write_pending(&self) {
        let Some(log) = &self.log else { return };
        loop {
            let Some(report) = self.lock_state().pending_writes.pop_front() else { return };
            let appended = lock(log).append(&report);
            let mut held = self.lock_state();
            held.bytes_in_memory -= report.as_bytes().len();
            match appended {
                Ok(stored) => {
                    held.waiting.push_back(QueuedReport::Disk { stored, is_recovered: false });
                    self.ready.notify_one();
                }
                Err(AppendError::Full) => held.end(report.tally(), State::DroppedQueueFull),
                Err(AppendError::Write(error)) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "a report cannot be written to the queue's disk and is lost");
                    held.end(report.tally(), State::DroppedWriteFailed);
                }
            }
            self.update_bytes_on_disk(&mut held);
            self.notify_if_idle(&held);
        }
    }

    /// Waits for the next report to send.
    pub(super) async fn next(self: &Arc<Self>) -> InFlightReport {
        loop {
            let ready = self.ready.notified();
            if let Some(ticket) = self.take() {
                return ticket;
            }
            ready.await;
        }
    }

    fn take(self: &Arc<Self>) -> Option<InFlightReport> {
        let mut held = self.lock_state();
        let place = held.waiting.pop_front()?;
        held.in_flight += 1;
        if !held.waiting.is_empty() {
            // Only one notification is stored if no task was waiting.
            self.ready.notify_one();
        }
        let may_have_arrived = matches!(place, QueuedReport::Disk { is_recovered: true, .. });
        let open = place.tally();
        Some(InFlightReport {
            queue: Arc::clone(self),
            queued: place,
            unsettled: open,
            may_have_arrived,
            sending: false,
        })
    }

    /// Stops accepting reports.
    pub(super) fn close(&self) {
        self.lock_state().closed = true;
    }

    /// Waits until nothing is waiting or being sent.
    pub(super) async fn wait_until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.lock_state().is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// Abandons the waiting reports: they stay on disk if the queue is there, and are lost if its folder is gone; those in
    /// memory are counted as dropped at shutdown.
    pub(super) fn abandon(&self) {
        self.write_pending();
        let mut held = self.lock_state();
        for place in std::mem::take(&mut held.waiting) {
            match place {
                QueuedReport::Memory(report) => {
                    held.bytes_in_memory -= report.as_bytes().len();
                    held.end(report.tally(), State::DroppedShutdown);
                }
                QueuedReport::Disk { stored, .. } if !self.is_kept(&stored) => {
                    held.end(stored.tally(), State::DroppedStorageDamaged);
                }
                QueuedReport::Disk { .. } => {}
            }
        }
    }

    pub(super) fn snapshot(&self) -> QueueSnapshot {
        let held = self.lock_state();
        QueueSnapshot {
            counts: held.counts,
            bytes: held.bytes_on_disk + held.bytes_in_memory as u64,
            in_flight: held.in_flight,
        }
    }

    /// Whether the next start will find a report.
    fn is_kept(&self, stored: &StoredReport) -> bool {
        self.log.as_ref().is_some_and(|log| lock(log).is_kept(stored))
    }

    fn update_bytes_on_disk(&self, held: &mut QueueState) {
        held.bytes_on_disk = self.log.as_ref().map_or(0, |log| lock(log).bytes());
    }

    fn notify_if_idle(&self, held: &QueueState) {
        if held.is_idle() {
            self.idle.notify_waiters();
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }
}

/// Changes under these locks can't panic halfway, so a poisoned lock is still consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl QueueState {
    fn is_idle(&self) -> bool {
        self.pending_writes.is_empty() && self.waiting.is_empty() && self.in_flight == 0
    }

    /// Moves events from the queued state to their final state.
    fn end(&mut self, tally: Tally, end: State) {
        self.counts.queued = self.counts.queued - tally;
        *self.counts.of(end) += tally;
    }
}

/// A report that is being sent. Its events are counted exactly once: events that aren't settled when the ticket is
/// dropped stay on disk, or end as unknown if the receiver may have them.
#[derive(Debug)]
pub(super) struct InFlightReport {
    queue: Arc<SendQueue>,
    queued: QueuedReport,
    /// The events that aren't settled yet.
    unsettled: Tally,
    may_have_arrived: bool,
    sending: bool,
}

impl InFlightReport {
    /// The report; `None` if it is no longer on disk, in which case its events are lost.
    pub(super) fn report(&mut self) -> Option<Report> {
        let stored = match &self.queued {
            QueuedReport::Memory(report) => return Some(report.clone()),
            QueuedReport::Disk { stored, .. } => *stored,
        };
        let read = self.queue.log.as_ref().map(|log| lock(log).read(&stored));
        match read {
            Some(Ok(Some(report))) => return Some(report),
            Some(Err(error)) => warn!(%error, "a report cannot be read from the queue's disk and is lost"),
            _ => warn!("a report on the queue's disk is damaged and lost"),
        }
        self.settle(self.unsettled, State::DroppedStorageDamaged);
        None
    }

    /// Records the start of an attempt.
    pub(super) fn begin_attempt(&mut self) {
        self.sending = true;
    }

    /// Records a failed attempt that may be retried.
    pub(super) fn end_attempt(&mut self, may_have_arrived: bool) {
        self.sending = false;
        self.may_have_arrived |= may_have_arrived;
    }

    /// Settles the report's events: one part's, or all.
    pub(super) fn settle(&mut self, tally: Tally, end: State) {
        self.sending = false;
        self.unsettled = self.unsettled - tally;
        self.queue.lock_state().end(tally, end);
    }

    /// Records that no further attempt is made for these events.
    pub(super) fn give_up(&mut self, tally: Tally) {
        let end = if self.may_have_arrived { State::Unknown } else { State::DroppedRetriesExhausted };
        self.settle(tally, end);
    }

    /// Records that a part was split: if a sample was split, the number of samples grows.
    pub(super) fn recount(&mut self, before: Tally, after: Tally) {
        self.unsettled = self.unsettled - before + after;
        let mut held = self.queue.lock_state();
        held.counts.queued = held.counts.queued - before + after;
    }
}

impl Drop for InFlightReport {
    fn drop(&mut self) {
        if let (QueuedReport::Disk { stored, .. }, Some(log), 0) =
            (&self.queued, &self.queue.log, self.unsettled.events)
        {
            lock(log).mark_done(stored);
        }
        let lost_as = match &self.queued {
            QueuedReport::Memory(_) => Some(State::DroppedShutdown),
            QueuedReport::Disk { stored, .. } if self.unsettled.events > 0 && !self.queue.is_kept(stored) => {
                Some(State::DroppedStorageDamaged)
            }
            QueuedReport::Disk { .. } => None,
        };
        let mut held = self.queue.lock_state();
        if let QueuedReport::Memory(report) = &self.queued {
            held.bytes_in_memory -= report.as_bytes().len();
        }
        if let Some(lost_as) = lost_as {
            let may_have_arrived = self.sending || self.may_have_arrived;
            held.end(self.unsettled, if may_have_arrived { State::Unknown } else { lost_as });
        }
        self.queue.update_bytes_on_disk(&mut held);
        held.in_flight -= 1;
        self.queue.notify_if_idle(&held);
    }
}
