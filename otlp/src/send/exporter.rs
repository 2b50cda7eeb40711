//! A queue and the tasks that empty it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::queue::{Queue, Ticket};
use super::retry::RetryOptions;
use super::{Counts, State};
use crate::report::Report;

/// What exporters have in common, whatever they speak.
#[derive(Clone, PartialEq, Debug)]
pub struct ExporterOptions {
    /// The name in logs, as configured: `otlp_grpc/backup`.
    pub name: String,
    /// Room for encoded reports that wait or are being sent (`sending_queue::queue_size`).
    pub queue_bytes: usize,
    /// How many requests are under way at a time (`sending_queue::num_consumers`).
    pub consumers: usize,
    /// Larger requests are split, or not sent at all where that is not possible.
    pub max_request_bytes: usize,
    /// When to try again.
    pub retry: RetryOptions,
}

impl ExporterOptions {
    /// The defaults, under that name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queue_bytes: 8 << 20,
            consumers: 2,
            // What a Collector's gRPC server takes.
            max_request_bytes: 4 << 20,
            retry: RetryOptions::default(),
        }
    }
}

/// How one attempt to send a request went.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Verdict {
    /// The receiver has it.
    Accepted,
    /// The receiver has it without so many of its profiles.
    PartlyRejected { profiles: i64, message: String },
    /// The receiver does not want it, now or later.
    Rejected { reason: String },
    /// The receiver speaks another version of the signal.
    Incompatible { reason: String },
    /// The receiver answered, but not in a way that could be understood.
    Garbled { reason: String },
    /// Another attempt may have more success.
    Retry {
        /// Whether the receiver may have it nevertheless.
        may_have_arrived: bool,
        /// What the receiver asked for.
        delay: Option<Duration>,
        reason: String,
    },
}

/// The way to a receiver.
pub(super) trait Transport: Send + Sync + 'static {
    /// Sends one request, in bounded time.
    fn attempt(&self, message: Bytes) -> impl Future<Output = Verdict> + Send;
}

/// Sends reports to one receiver in the background.
///
/// [`Self::enqueue`] never waits. Each event that was handed over is in exactly one state of
/// [`Counts`] at any time. Dropping an exporter ends it at once, without sending what is queued.
#[derive(Debug)]
pub struct Exporter {
    queue: Arc<Queue>,
    refusal: Arc<Mutex<Option<PartialSuccess>>>,
    max_request_bytes: usize,
    workers: Mutex<JoinSet<()>>,
}

/// The last answer of a receiver that it has not taken everything, or has a warning.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PartialSuccess {
    /// How many profiles it has not taken, in its own words.
    pub rejected_profiles: i64,
    /// Why, without control characters and cut to a readable length.
    pub message: String,
}

/// An exporter at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExporterStats {
    /// What became of the events so far.
    pub counts: Counts,
    /// Bytes that wait or are being sent.
    pub queue_bytes: usize,
    /// Room for such bytes.
    pub queue_capacity_bytes: usize,
    /// Requests that are being sent or wait for their next attempt.
    pub in_flight_requests: usize,
    /// The last partial success, if there was one.
    pub last_partial_success: Option<PartialSuccess>,
}

impl Exporter {
    pub(super) fn start(options: ExporterOptions, transport: impl Transport, runtime: &Handle) -> Self {
        let queue = Arc::new(Queue::new(options.queue_bytes));
        let refusal = Arc::default();
        let worker = Arc::new(Worker {
            name: options.name,
            retry: options.retry,
            transport,
            refusal: Arc::clone(&refusal),
        });
        let mut workers = JoinSet::new();
        for _ in 0..options.consumers.max(1) {
            workers.spawn_on(Arc::clone(&worker).run(Arc::clone(&queue)), runtime);
        }
        Self { queue, refusal, max_request_bytes: options.max_request_bytes, workers: Mutex::new(workers) }
    }

    /// Queues a report, in pieces where it is too large for one request.
    ///
    /// What the queue has no room for is dropped and counted.
    pub fn enqueue(&self, report: Report) {
        let split = report.split(self.max_request_bytes);
        self.queue.lost(State::DroppedTooLarge, split.too_large);
        for report in split.reports {
            // A refusal is in the counts.
            let _ = self.queue.push(report);
        }
    }

    /// What became of the events so far, and how full the queue is.
    #[must_use]
    pub fn stats(&self) -> ExporterStats {
        let snapshot = self.queue.snapshot();
        ExporterStats {
            counts: snapshot.counts,
            queue_bytes: snapshot.bytes,
            queue_capacity_bytes: self.queue.capacity_bytes(),
            in_flight_requests: snapshot.in_flight,
            last_partial_success: lock(&self.refusal).clone(),
        }
    }

    /// Takes nothing more in, sends what is queued, but no longer than `timeout`, and counts the
    /// rest as lost.
    pub async fn shutdown(&self, timeout: Duration) -> Counts {
        self.queue.close();
        // What is not drained by then is abandoned.
        let _ = tokio::time::timeout(timeout, self.queue.drained()).await;
        let mut workers = std::mem::take(&mut *lock(&self.workers));
        workers.shutdown().await;
        self.queue.abandon();
        self.queue.snapshot().counts
    }
}

/// What the tasks of an exporter share.
struct Worker<T> {
    name: String,
    retry: RetryOptions,
    transport: T,
    refusal: Arc<Mutex<Option<PartialSuccess>>>,
}

impl<T: Transport> Worker<T> {
    async fn run(self: Arc<Self>, queue: Arc<Queue>) {
        loop {
            self.deliver(queue.next().await).await;
        }
    }

    /// Attempts until there is nothing more to attempt.
    async fn deliver(&self, mut ticket: Ticket) {
        let exporter = self.name.as_str();
        let mut backoff = self.retry.begin();
        let mut is_told = false;
        loop {
            ticket.begin_attempt();
            match self.transport.attempt(ticket.message()).await {
                Verdict::Accepted => return ticket.settle(State::Delivered),
                Verdict::PartlyRejected { profiles, message } => {
                    let end = end_of_partial(profiles, ticket.profiles());
                    warn!(exporter, profiles, message, end = end.as_str(), "partial success");
                    let refusal = PartialSuccess { rejected_profiles: profiles, message };
                    *lock(&self.refusal) = Some(refusal);
                    return ticket.settle(end);
                }
                Verdict::Rejected { reason } => {
                    warn!(exporter, reason, "the receiver rejected a request");
                    return ticket.settle(State::Rejected);
                }
                Verdict::Incompatible { reason } => {
                    warn!(exporter, reason, "the receiver speaks another version of OTLP profiles");
                    return ticket.settle(State::Incompatible);
                }
                Verdict::Garbled { reason } => {
                    warn!(exporter, reason, "the receiver's answer makes no sense");
                    return ticket.settle(State::Unknown);
                }
                Verdict::Retry { may_have_arrived, delay, reason } => {
                    ticket.end_attempt(may_have_arrived);
                    let Some(delay) = backoff.next_delay(delay) else {
                        warn!(exporter, reason, "a request could not be sent, giving up");
                        return ticket.give_up();
                    };
                    // Once for each request where people look, each time for those who look closer.
                    if std::mem::replace(&mut is_told, true) {
                        debug!(exporter, reason, ?delay, "a request could not be sent, trying again");
                    } else {
                        warn!(exporter, reason, ?delay, "a request could not be sent, trying again");
                    }
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }
}

/// What these locks guard is replaced as a whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the events of a request ended of whose `sent` profiles so many were `rejected`.
fn end_of_partial(rejected: i64, sent: u64) -> State {
    match u64::try_from(rejected) {
        // A warning only.
        Ok(0) => State::Delivered,
        Ok(rejected) if rejected < sent => State::PartiallyRejected,
        Ok(_) => State::Rejected,
        Err(_) => State::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_success_counts_profiles() {
        assert_eq!(end_of_partial(0, 3), State::Delivered);
        assert_eq!(end_of_partial(2, 3), State::PartiallyRejected);
        assert_eq!(end_of_partial(3, 3), State::Rejected);
        assert_eq!(end_of_partial(i64::MAX, 3), State::Rejected);
        assert_eq!(end_of_partial(-1, 3), State::Unknown);
    }
}
