//! A queue, and the thread that sends its reports.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::warn;

use super::counts::Counts;
use super::delivery::{DeliveryWorker, Transport};
use super::error::ConnectionError;
use super::notes::{ExporterStatus, Outage, PartialSuccess};
use super::options::ExporterOptions;
use super::queue::SendQueue;
use super::retry::{self, RetryError};
use super::storage::{ReportLog, StorageError};
use crate::report::Report;

/// The maximum number of an exporter's threads that may block in the system's resolver.
const RESOLVING_THREADS_MAX: usize = 2;

/// Longer than any shutdown.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why an exporter can't be started: settings with which sending is impossible. Conditions that may improve are not
/// errors here; they are retried.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The connection to the receiver.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Invalid retry settings.
    #[error(transparent)]
    Retry(#[from] RetryError),
    /// The queue on disk.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The exporter's thread.
    #[error("cannot start the thread of an exporter")]
    Thread(#[source] io::Error),
}

/// Sends reports to one receiver in the background.
///
/// [`Self::enqueue`] never blocks. An exporter waits for its receiver, its disk and name resolution on its own thread, so
/// exporters don't delay each other. Each enqueued event is in exactly one state of [`Counts`] at any time. Dropping an
/// exporter ends it without sending what is queued.
#[derive(Debug)]
pub struct Exporter {
    queue: Arc<SendQueue>,
    status: Arc<Mutex<ExporterStatus>>,
    queue_capacity_bytes: u64,
    stop: Mutex<Option<oneshot::Sender<Instant>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A snapshot of an exporter's statistics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExporterStats {
    /// All events so far, by state.
    pub counts: Counts,
    /// Bytes of reports that are waiting or being sent, in memory and on disk.
    pub queue_bytes: u64,
    /// The limit of these bytes.
    pub queue_capacity_bytes: u64,
    /// Requests that are being sent or waiting for a retry.
    pub in_flight_requests: usize,
    /// The last partial success, if any.
    pub last_partial_success: Option<PartialSuccess>,
    /// The cause of the last failed attempt, if any.
    pub last_failure: Option<String>,
    /// The current outage; `None` if the last attempt succeeded.
    pub outage: Option<Outage>,
}

impl Exporter {
    /// Starts the thread. `transport` is called in the context of its runtime, which connections need.
    pub(super) fn start<T: Transport>(
        options: ExporterOptions,
        transport: impl FnOnce() -> Result<T, ConnectionError>,
    ) -> Result<Self, ExporterError> {
        retry::check(&options.retry)?;
        let queue_capacity_bytes =
            options.storage.as_ref().map_or(options.queue_bytes as u64, |storage| storage.max_bytes);
        let queue = Arc::new(queue(&options)?);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(RESOLVING_THREADS_MAX)
            .build()
            .map_err(ExporterError::Thread)?;
        let entered = runtime.enter();
        let transport = transport();
        drop(entered);
        let transport = match transport {
            Ok(transport) => transport,
            Err(error) => {
                // The caller may be in its own runtime, in which blocking isn't allowed.
                runtime.shutdown_background();
                return Err(error.into());
            }
        };
        let notes = Arc::default();
        let worker = Arc::new(DeliveryWorker::new(&options, transport, Arc::clone(&notes)));
        let (stop, stopped) = oneshot::channel();
        let thread = {
            let queue = Arc::clone(&queue);
            thread::Builder::new()
                .name("export".to_owned())
                .spawn(move || run(runtime, worker, &queue, options.consumers, stopped))
                .map_err(ExporterError::Thread)?
        };
        let (stop, thread) = (Mutex::new(Some(stop)), Mutex::new(Some(thread)));
        Ok(Self { queue, status: notes, queue_capacity_bytes, stop, thread })
    }

    /// Queues a report. It is split if it is too large for one request.
    ///
    /// If the queue has no room for it, it is dropped and counted.
    pub fn enqueue(&self, report: Report) {
        self.queue.push(report);
    }

    /// The events so far by state, and the queue's fill level.
    #[must_use]
    pub fn stats(&self) -> ExporterStats {
        let snapshot = self.queue.snapshot();
        let ExporterStatus { last_partial_success, last_failure, outage } = lock(&self.status).clone();
        ExporterStats {
            counts: snapshot.counts,
            queue_bytes: snapshot.bytes,
            queue_capacity_bytes: self.queue_capacity_bytes,
            in_flight_requests: snapshot.in_flight,
            last_partial_success,
            last_failure,
            outage,
        }
    }

    /// Stops accepting reports, and sends those that are queued, for at most `timeout`. Doesn't wait.
    pub fn close(&self, timeout: Duration) {
        self.queue.close();
        let stop = lock(&self.stop).take();
        let now = Instant::now();
        // If the channel is closed, the thread has already ended.
        let _ = stop.map(|stop| stop.send(now.checked_add(timeout).unwrap_or(now + A_YEAR)));
    }

    /// Closes the exporter and waits for its end. Unsent reports are then on disk and counted as queued, if the queue is
    /// on disk; otherwise they are counted as dropped.
    pub fn shutdown(&self, timeout: Duration) -> Counts {
        self.close(timeout);
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread of an exporter has panicked");
        }
        self.queue.snapshot().counts
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

fn queue(options: &ExporterOptions) -> Result<SendQueue, StorageError> {
    let Some(storage) = &options.storage else { return Ok(SendQueue::new(options.queue_bytes)) };
    let (log, recovered) = ReportLog::open(storage, &options.name)?;
    if recovered.lost.events > 0 || recovered.unreadable_bytes > 0 {
        warn!(
            exporter = options.name,
            lost_events = recovered.lost.events,
            unreadable_bytes = recovered.unreadable_bytes,
            "the queue on disk is damaged; losses are counted as far as they are known"
        );
    }
    Ok(SendQueue::with_storage(options.queue_bytes, log, recovered))
}

/// The main function of an exporter's thread.
fn run<T: Transport>(
    runtime: Runtime,
    worker: Arc<DeliveryWorker<T>>,
    queue: &Arc<SendQueue>,
    consumers: usize,
    stopped: oneshot::Receiver<Instant>,
) {
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(queue).run_writer());
        for _ in 0..consumers.max(1) {
            tasks.spawn(Arc::clone(&worker).run(Arc::clone(queue)));
        }
        drop(worker);
        let deadline = stopped.await.unwrap_or_else(|_| Instant::now());
        // Reports that aren't sent by then are abandoned.
        let _ = tokio::time::timeout_at(deadline.into(), queue.wait_until_idle()).await;
        tasks.shutdown().await;
        queue.abandon();
    });
    // A resolver that hangs must not delay the end.
    runtime.shutdown_background();
}

/// Values under these locks are replaced as a whole, so a poisoned lock is still consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
