//! From the queue to the receiver: attempts, pieces, and requests that do harm.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sidewinder_config::Retry;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::counts::State;
use super::notes::{Notes, PartialSuccess};
use super::options::ExporterOptions;
use super::queue::{Queue, Ticket};
use super::retry::Backoff;
use super::verdict::Verdict;
use crate::report::Report;

/// A request that was never answered this often may be what kills the receiver: others go first.
const STRIKES_MAX: u32 = 5;
/// It is one if it is still not answered, as often as this, while others are delivered in between.
const CONVICTIONS_MAX: u32 = 3;
/// No more requests than these are put aside at a time: each is in memory.
const PARKED_MAX: usize = 4;

/// The way to a receiver.
pub(super) trait Transport: Send + Sync + 'static {
    /// Sends one request, in bounded time.
    fn attempt(&self, message: Bytes) -> impl Future<Output = Verdict> + Send;
}

/// What the tasks of an exporter share.
pub(super) struct Worker<T> {
    name: String,
    retry: Retry,
    max_request_bytes: usize,
    transport: T,
    notes: Arc<Mutex<Notes>>,
    /// Requests that the receiver has taken.
    delivered: AtomicU64,
    suspects: Suspects,
}

/// A report on its way.
struct Job {
    /// Of the whole report. Dropped after the rest: its events are settled piece by piece.
    ticket: Ticket,
    /// What is left of it, the next piece last.
    pieces: Vec<Report>,
    /// The next piece, once it has been attempted.
    begun: Option<Attempts>,
}

/// One piece, which was attempted before.
struct Attempts {
    piece: Report,
    backoff: Backoff,
    /// Attempts that were not answered, one after the other.
    strikes: u32,
    convictions: u32,
    /// What was delivered before the last attempt.
    delivered_before: u64,
    not_before: Instant,
    is_told: bool,
}

/// What comes after an attempt.
enum Next {
    Settled(State),
    GiveUp,
    Cut { max_bytes: usize },
    Again,
    LetOthersGoFirst,
}

impl<T: Transport> Worker<T> {
    pub(super) fn new(options: &ExporterOptions, transport: T, notes: Arc<Mutex<Notes>>) -> Self {
        Self {
            name: options.name.clone(),
            retry: options.retry,
            max_request_bytes: options.max_request_bytes,
            transport,
            notes,
            delivered: AtomicU64::new(0),
            suspects: Suspects::default(),
        }
    }

    pub(super) async fn run(self: Arc<Self>, queue: Arc<Queue>) {
        loop {
            let job = tokio::select! {
                job = self.suspects.due() => job,
                mut ticket = queue.next() => match ticket.report() {
                    Some(report) => Job { ticket, pieces: vec![report], begun: None },
                    None => continue,
                },
            };
            self.deliver(job).await;
        }
    }

    /// Attempts piece after piece until there is nothing more to attempt, or others should go first.
    async fn deliver(&self, mut job: Job) {
        while let Some(mut attempts) = self.next_piece(&mut job) {
            let piece = attempts.piece.clone();
            let next = match piece.as_bytes().len() > self.max_request_bytes {
                true => Next::Cut { max_bytes: self.max_request_bytes },
                false => {
                    tokio::time::sleep_until(attempts.not_before).await;
                    job.ticket.begin_attempt();
                    let verdict = self.transport.attempt(piece.shared_bytes()).await;
                    self.judge(verdict, &mut attempts, &mut job.ticket)
                }
            };
            match next {
                Next::Settled(end) => job.ticket.settle(piece.tally(), end),
                Next::GiveUp => job.ticket.give_up(piece.tally()),
                Next::Cut { max_bytes } => cut(piece, max_bytes, &mut job),
                Next::Again => job.begun = Some(attempts),
                Next::LetOthersGoFirst => {
                    job.begun = Some(attempts);
                    match self.suspects.park(job) {
                        None => return,
                        Some(refused) => job = refused,
                    }
                }
            }
        }
    }

    fn next_piece(&self, job: &mut Job) -> Option<Attempts> {
        job.begun.take().or_else(|| {
            Some(Attempts {
                piece: job.pieces.pop()?,
                backoff: Backoff::begin(self.retry),
                strikes: 0,
                convictions: 0,
                delivered_before: 0,
                not_before: Instant::now(),
                is_told: false,
            })
        })
    }

    fn judge(&self, verdict: Verdict, attempts: &mut Attempts, ticket: &mut Ticket) -> Next {
        let exporter = self.name.as_str();
        match (verdict.reason(), &verdict) {
            // A part of it may well be taken.
            (Some(reason), Verdict::TooLarge { .. }) => {
                lock(&self.notes).last_failure = Some(reason.to_owned());
            }
            (Some(reason), _) => lock(&self.notes).attempt_failed(reason),
            (None, _) => lock(&self.notes).outage = None,
        }
        match verdict {
            Verdict::Accepted => {
                self.delivered.fetch_add(1, Ordering::Relaxed);
                Next::Settled(State::Delivered)
            }
            Verdict::PartlyRejected(refusal) => {
                self.delivered.fetch_add(1, Ordering::Relaxed);
                let end = end_of_partial(refusal.rejected_profiles, attempts.piece.profiles());
                let PartialSuccess { rejected_profiles, message } = &refusal;
                warn!(exporter, rejected_profiles, message, end = end.as_str(), "partial success");
                lock(&self.notes).last_partial_success = Some(refusal);
                Next::Settled(end)
            }
            Verdict::Rejected { reason } => {
                warn!(exporter, reason, "the receiver rejected a request");
                Next::Settled(State::Rejected)
            }
            Verdict::TooLarge { reason } => {
                let bytes = attempts.piece.as_bytes().len();
                warn!(exporter, reason, bytes, "a request was too large for the receiver, cutting it");
                Next::Cut { max_bytes: bytes / 2 }
            }
            Verdict::WriteFailed { reason } => {
                warn!(exporter, reason, "a report cannot be written and is lost");
                Next::Settled(State::DroppedWriteFailed)
            }
            Verdict::Incompatible { reason } => {
                warn!(exporter, reason, "the receiver speaks another version of OTLP profiles");
                Next::Settled(State::Incompatible)
            }
            Verdict::Garbled { reason } => {
                warn!(exporter, reason, "the receiver's answer makes no sense");
                Next::Settled(State::Unknown)
            }
            Verdict::Retry { may_have_arrived, answered, delay, reason } => {
                ticket.end_attempt(may_have_arrived);
                let Some(delay) = attempts.backoff.next_delay(delay) else {
                    warn!(exporter, reason, "a request could not be sent, giving up");
                    return Next::GiveUp;
                };
                // Once for each request where people look, each time for those who look closer.
                if std::mem::replace(&mut attempts.is_told, true) {
                    debug!(exporter, reason, ?delay, "a request could not be sent, trying again");
                } else {
                    warn!(exporter, reason, ?delay, "a request could not be sent, trying again");
                }
                attempts.not_before = Instant::now() + delay;
                self.suspect(attempts, may_have_arrived && !answered)
            }
        }
    }

    /// What a receiver that is alive does not answer, again and again, is not sent for ever.
    fn suspect(&self, attempts: &mut Attempts, is_strike: bool) -> Next {
        let delivered = self.delivered.load(Ordering::Relaxed);
        let others_went = delivered > std::mem::replace(&mut attempts.delivered_before, delivered);
        if !is_strike {
            attempts.strikes = 0;
            return Next::Again;
        }
        attempts.strikes += 1;
        if attempts.strikes < STRIKES_MAX {
            return Next::Again;
        }
        if attempts.strikes > STRIKES_MAX && others_went {
            attempts.convictions += 1;
        }
        if attempts.convictions >= CONVICTIONS_MAX {
            let strikes = attempts.strikes;
            warn!(
                exporter = self.name,
                strikes, "the receiver takes others but never answers this request, giving it up"
            );
            return Next::GiveUp;
        }
        Next::LetOthersGoFirst
    }
}

/// Puts the pieces of `piece` in its place.
fn cut(piece: Report, max_bytes: usize, job: &mut Job) {
    let before = piece.tally();
    let split = piece.split(max_bytes);
    let after = split.reports.iter().fold(split.too_large, |sum, piece| sum + piece.tally());
    job.ticket.recount(before, after);
    job.ticket.settle(split.too_large, State::DroppedTooLarge);
    job.pieces.extend(split.reports.into_iter().rev());
}

/// Requests that were put aside.
#[derive(Default)]
struct Suspects {
    parked: Mutex<Vec<Job>>,
    changed: Notify,
}

impl Suspects {
    /// Puts a request aside until it is due; gives it back where there are too many already.
    fn park(&self, job: Job) -> Option<Job> {
        let mut parked = lock(&self.parked);
        if parked.len() >= PARKED_MAX {
            return Some(job);
        }
        parked.push(job);
        drop(parked);
        self.changed.notify_one();
        None
    }

    /// The next one that is due, once there is one.
    async fn due(&self) -> Job {
        loop {
            let changed = self.changed.notified();
            let due_at = lock(&self.parked).iter().filter_map(Job::due_at).min();
            match due_at {
                None => changed.await,
                Some(due_at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(due_at) => {
                            let mut parked = lock(&self.parked);
                            let now = Instant::now();
                            let is_due = |job: &Job| job.due_at().is_none_or(|due_at| due_at <= now);
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

impl Job {
    fn due_at(&self) -> Option<Instant> {
        self.begun.as_ref().map(|attempts| attempts.not_before)
    }
}

/// What these locks guard is changed in one step.
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
    use sidewinder_kind::Kind;

    use super::*;
    use crate::builder::{SampleAttributes, SampleIdentity};
    use crate::{ReportBuilder, ReportOptions, Tally};

    /// One sample.
    fn report(events: u64) -> Report {
        let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
        let identity = SampleIdentity {
            resource: builder.resource(&[]),
            kind: Kind::Cpu { samples_per_second: 19 },
            stack: builder.stack(&[]),
            attributes: builder.attributes(&SampleAttributes::default()),
            link: None,
        };
        (0..events).for_each(|event| builder.event(&identity, 1_000 + event, 1));
        builder.finish(0..1).unwrap()
    }

    #[tokio::test]
    async fn the_pieces_of_a_sample_are_not_counted_at_the_cost_of_other_reports() {
        let queue = Arc::new(Queue::new(1 << 20));
        let (large, other) = (report(1_000), report(1));
        queue.push(large.clone());
        queue.push(other.clone());
        let mut job = Job { ticket: queue.next().await, pieces: Vec::new(), begun: None };
        cut(large, 1_500, &mut job);
        assert!(job.pieces.len() > 3);
        let pieces = job.pieces.iter().fold(Tally::default(), |sum, piece| sum + piece.tally());
        assert_eq!(queue.snapshot().counts.queued, pieces + other.tally());
        for piece in std::mem::take(&mut job.pieces) {
            job.ticket.settle(piece.tally(), State::Delivered);
        }
        drop(job);
        let counts = queue.snapshot().counts;
        assert_eq!((counts.delivered, counts.queued), (pieces, other.tally()));
        assert_eq!((pieces.events, pieces.samples > 3), (1_000, true));
    }

    #[test]
    fn a_partial_success_counts_profiles() {
        assert_eq!(end_of_partial(0, 3), State::Delivered);
        assert_eq!(end_of_partial(2, 3), State::PartiallyRejected);
        assert_eq!(end_of_partial(3, 3), State::Rejected);
        assert_eq!(end_of_partial(i64::MAX, 3), State::Rejected);
        assert_eq!(end_of_partial(-1, 3), State::Unknown);
    }
}
