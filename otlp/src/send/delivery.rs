//! Delivers queued reports to a receiver: attempts, splitting, and isolation of requests that may crash the receiver.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sidewinder_config::Retry;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::counts::State;
use super::notes::{ExporterStatus, PartialSuccess};
use super::options::ExporterOptions;
use super::outcome::SendOutcome;
use super::queue::{InFlightReport, SendQueue};
use super::retry::Backoff;
use crate::report::Report;

/// A request without a response after this many attempts may be what crashes the receiver: others are sent first.
const UNANSWERED_ATTEMPTS_MAX: u32 = 5;
/// It is considered to be one if it gets this many attempts without a response, while others are delivered in between.
const QUARANTINED_ATTEMPTS_MAX: u32 = 3;
/// At most this many requests are set aside at a time: each is in memory.
const QUARANTINE_CAPACITY: usize = 4;

/// Sends requests to a receiver.
pub(super) trait Transport: Send + Sync + 'static {
    /// Sends one request, within a bounded time.
    fn attempt(&self, message: Bytes) -> impl Future<Output = SendOutcome> + Send;
}

/// The state that the tasks of an exporter share.
pub(super) struct DeliveryWorker<T> {
    name: String,
    retry: Retry,
    max_request_bytes: usize,
    transport: T,
    status: Arc<Mutex<ExporterStatus>>,
    /// The number of requests that the receiver has accepted.
    delivered: AtomicU64,
    quarantine: RequestQuarantine,
}

/// A report that is being delivered.
struct DeliveryJob {
    /// The ticket of the whole report. Dropped last: its events are settled part by part.
    in_flight: InFlightReport,
    /// The remaining parts, the next one last.
    pieces: Vec<Report>,
    /// The next part, once it has been attempted.
    attempts: Option<PieceAttempts>,
}

/// A part that was attempted before.
struct PieceAttempts {
    piece: Report,
    backoff: Backoff,
    /// Consecutive attempts without a response.
    unanswered: u32,
    unanswered_while_others_delivered: u32,
    /// The number of deliveries before the last attempt.
    delivered_before: u64,
    not_before: Instant,
    has_warned: bool,
}

/// The next action after an attempt.
enum NextStep {
    Settled(State),
    GiveUp,
    Split { max_bytes: usize },
    Retry,
    Quarantine,
}

impl<T: Transport> DeliveryWorker<T> {
    pub(super) fn new(options: &ExporterOptions, transport: T, notes: Arc<Mutex<ExporterStatus>>) -> Self {
        Self {
            name: options.name.clone(),
            retry: options.retry,
            max_request_bytes: options.max_request_bytes,
            transport,
            status: notes,
            delivered: AtomicU64::new(0),
            quarantine: RequestQuarantine::default(),
        }
    }

    pub(super) async fn run(self: Arc<Self>, queue: Arc<SendQueue>) {
        loop {
            let job = tokio::select! {
                job = self.quarantine.next_due() => job,
                mut in_flight = queue.next() => match in_flight.report() {
                    Some(report) => DeliveryJob { in_flight, pieces: vec![report], attempts: None },
                    None => continue,
                },
            };
            self.deliver(job).await;
        }
    }

    /// Attempts part after part until nothing is left to attempt, or others should go first.
    async fn deliver(&self, mut job: DeliveryJob) {
        while let Some(mut attempts) = self.next_piece(&mut job) {
            let piece = attempts.piece.clone();
            let next = match piece.as_bytes().len() > self.max_request_bytes {
                true => NextStep::Split { max_bytes: self.max_request_bytes },
                false => {
                    tokio::time::sleep_until(attempts.not_before).await;
                    job.in_flight.begin_attempt();
                    let verdict = self.transport.attempt(piece.shared_bytes()).await;
                    self.handle_outcome(verdict, &mut attempts, &mut job.in_flight)
                }
            };
            match next {
                NextStep::Settled(end) => job.in_flight.settle(piece.tally(), end),
                NextStep::GiveUp => job.in_flight.give_up(piece.tally()),
                NextStep::Split { max_bytes } => split_piece(piece, max_bytes, &mut job),
                NextStep::Retry => job.attempts = Some(attempts),
                NextStep::Quarantine => {
                    job.attempts = Some(attempts);
                    match self.quarantine.insert(job) {
                        None => return,
                        Some(refused) => job = refused,
                    }
                }
            }
        }
    }

    fn next_piece(&self, job: &mut DeliveryJob) -> Option<PieceAttempts> {
        job.attempts.take().or_else(|| {
            Some(PieceAttempts {
                piece: job.pieces.pop()?,
                backoff: Backoff::new(self.retry),
                unanswered: 0,
                unanswered_while_others_delivered: 0,
                delivered_before: 0,
                not_before: Instant::now(),
                has_warned: false,
            })
        })
    }

    fn handle_outcome(
        &self,
        verdict: SendOutcome,
        attempts: &mut PieceAttempts,
        ticket: &mut InFlightReport,
    ) -> NextStep {
        let exporter = self.name.as_str();
        match (verdict.reason(), &verdict) {
            // Parts of it may be accepted.
            (Some(reason), SendOutcome::TooLarge { .. }) => {
                lock(&self.status).last_failure = Some(reason.to_owned());
            }
            (Some(reason), _) => lock(&self.status).record_failure(reason),
            (None, _) => lock(&self.status).outage = None,
        }
        match verdict {
            SendOutcome::Accepted => {
                self.delivered.fetch_add(1, Ordering::Relaxed);
                NextStep::Settled(State::Delivered)
            }
            SendOutcome::PartlyRejected(refusal) => {
                self.delivered.fetch_add(1, Ordering::Relaxed);
                let end = state_after_partial_success(refusal.rejected_profiles, attempts.piece.profiles());
                let PartialSuccess { rejected_profiles, message } = &refusal;
                warn!(exporter, rejected_profiles, message, end = end.as_str(), "partial success");
                lock(&self.status).last_partial_success = Some(refusal);
                NextStep::Settled(end)
            }
            SendOutcome::Rejected { reason } => {
                warn!(exporter, reason, "the receiver rejected a request");
                NextStep::Settled(State::Rejected)
            }
            SendOutcome::TooLarge { reason } => {
                let bytes = attempts.piece.as_bytes().len();
                warn!(exporter, reason, bytes, "a request was too large for the receiver, splitting it");
                NextStep::Split { max_bytes: bytes / 2 }
            }
            SendOutcome::WriteFailed { reason } => {
                warn!(exporter, reason, "can't write a report, dropping it");
                NextStep::Settled(State::DroppedWriteFailed)
            }
            SendOutcome::Incompatible { reason } => {
                warn!(exporter, reason, "the receiver speaks another version of OTLP profiles");
                NextStep::Settled(State::Incompatible)
            }
            SendOutcome::MalformedResponse { reason } => {
                warn!(exporter, reason, "the receiver's response is invalid");
                NextStep::Settled(State::Unknown)
            }
            SendOutcome::Retry { may_have_arrived, answered, delay, reason } => {
                ticket.end_attempt(may_have_arrived);
                let Some(delay) = attempts.backoff.next_delay(delay) else {
                    warn!(exporter, reason, "a request could not be sent, giving up");
                    return NextStep::GiveUp;
                };
                // Once per request at the visible log level, and each time at a more detailed one.
                if std::mem::replace(&mut attempts.has_warned, true) {
                    debug!(exporter, reason, ?delay, "a request could not be sent, trying again");
                } else {
                    warn!(exporter, reason, ?delay, "a request could not be sent, trying again");
                }
                attempts.not_before = Instant::now() + delay;
                self.count_unanswered(attempts, may_have_arrived && !answered)
            }
        }
    }

    /// A request that a working receiver repeatedly doesn't respond to must be given up at some point.
    fn count_unanswered(&self, attempts: &mut PieceAttempts, is_strike: bool) -> NextStep {
        let delivered = self.delivered.load(Ordering::Relaxed);
        let others_went = delivered > std::mem::replace(&mut attempts.delivered_before, delivered);
        if !is_strike {
            attempts.unanswered = 0;
            return NextStep::Retry;
        }
        attempts.unanswered += 1;
        if attempts.unanswered < UNANSWERED_ATTEMPTS_MAX {
            return NextStep::Retry;
        }
        if attempts.unanswered > UNANSWERED_ATTEMPTS_MAX && others_went {
            attempts.unanswered_while_others_delivered += 1;
        }
        if attempts.unanswered_while_others_delivered >= QUARANTINED_ATTEMPTS_MAX {
            let strikes = attempts.unanswered;
            warn!(
                exporter = self.name,
                strikes, "the receiver takes others but never answers this request, giving it up"
            );
            return NextStep::GiveUp;
        }
        NextStep::Quarantine
    }
}

/// Replaces `piece` by its parts.
fn split_piece(piece: Report, max_bytes: usize, job: &mut DeliveryJob) {
    let before = piece.tally();
    let split = piece.split(max_bytes);
    let after = split.reports.iter().fold(split.too_large, |sum, piece| sum + piece.tally());
    job.in_flight.recount(before, after);
    job.in_flight.settle(split.too_large, State::DroppedTooLarge);
    job.pieces.extend(split.reports.into_iter().rev());
}

/// Requests that were set aside.
#[derive(Default)]
struct RequestQuarantine {
    jobs: Mutex<Vec<DeliveryJob>>,
    changed: Notify,
}

impl RequestQuarantine {
    /// Sets a request aside until it is due; returns it if there are already too many.
    fn insert(&self, job: DeliveryJob) -> Option<DeliveryJob> {
        let mut parked = lock(&self.jobs);
        if parked.len() >= QUARANTINE_CAPACITY {
            return Some(job);
        }
        parked.push(job);
        drop(parked);
        self.changed.notify_one();
        None
    }

    /// Waits for the next request that is due.
    async fn next_due(&self) -> DeliveryJob {
        loop {
            let changed = self.changed.notified();
            let due_at = lock(&self.jobs).iter().filter_map(DeliveryJob::due_at).min();
            match due_at {
                None => changed.await,
                Some(due_at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(due_at) => {
                            let mut parked = lock(&self.jobs);
                            let now = Instant::now();
                            let is_due = |job: &DeliveryJob| job.due_at().is_none_or(|due_at| due_at <= now);
                            if let Some(position) = parked.iter().position(is_due) {
                                return parked.swap_remove(position);
                            }
                        }
                        () = changed => {}
                    }
                }
            }
        }
    }
}

impl DeliveryJob {
    fn due_at(&self) -> Option<Instant> {
        self.attempts.as_ref().map(|attempts| attempts.not_before)
    }
}

/// Changes under these locks are atomic, so a poisoned lock is still consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of a request's events, given that `rejected` of its `sent` profiles were rejected.
fn state_after_partial_success(rejected: i64, sent: u64) -> State {
    match u64::try_from(rejected) {
        // This is only a warning.
        Ok(0) => State::Delivered,
        Ok(rejected) if rejected < sent => State::PartiallyRejected,
        Ok(_) => State::Rejected,
        Err(_) => State::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::Kind;

    use super::*;
    use sidewinder_profile::{Dictionary, LinkIndex};

    use crate::builder::{SampleAttributes, SampleIdentity};
    use crate::{ReportBuilder, ReportOptions, Tally};

    /// A report with one sample.
    fn report(events: u64) -> Report {
        let mut dictionary = Dictionary::default();
        let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
        let identity = SampleIdentity {
            resource: dictionary.add_attributes([]),
            profile_type: builder.kind(Kind::Cpu { samples_per_second: 19 }),
            stack: dictionary.add_stack(&[]),
            attributes: SampleAttributes::default().add_to(&mut dictionary),
            link: LinkIndex::default(),
        };
        (0..events).for_each(|event| builder.event(&identity, 1_000 + event, 1));
        builder.finish(&mut dictionary, 0..1).unwrap()
    }

    #[tokio::test]
    async fn the_pieces_of_a_sample_are_not_counted_at_the_cost_of_other_reports() {
        let queue = Arc::new(SendQueue::new(1 << 20));
        let (large, other) = (report(1_000), report(1));
        queue.push(large.clone());
        queue.push(other.clone());
        let mut job = DeliveryJob { in_flight: queue.next().await, pieces: Vec::new(), attempts: None };
        split_piece(large, 1_500, &mut job);
        assert!(job.pieces.len() > 3);
        let pieces = job.pieces.iter().fold(Tally::default(), |sum, piece| sum + piece.tally());
        assert_eq!(queue.snapshot().counts.queued, pieces + other.tally());
        for piece in std::mem::take(&mut job.pieces) {
            job.in_flight.settle(piece.tally(), State::Delivered);
        }
        drop(job);
        let counts = queue.snapshot().counts;
        assert_eq!((counts.delivered, counts.queued), (pieces, other.tally()));
        assert_eq!((pieces.events, pieces.samples > 3), (1_000, true));
    }

    #[test]
    fn a_partial_success_counts_profiles() {
        assert_eq!(state_after_partial_success(0, 3), State::Delivered);
        assert_eq!(state_after_partial_success(2, 3), State::PartiallyRejected);
        assert_eq!(state_after_partial_success(3, 3), State::Rejected);
        assert_eq!(state_after_partial_success(i64::MAX, 3), State::Rejected);
        assert_eq!(state_after_partial_success(-1, 3), State::Unknown);
    }
}
