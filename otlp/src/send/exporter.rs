//! A queue, and the thread that empties it.

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

/// Threads of an exporter that may wait for the system's resolver.
const RESOLVING_THREADS_MAX: usize = 2;

/// Longer than any shutdown takes.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Settings with which nothing could ever be sent. What may get better with time is no error here:
/// it is retried.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The way to the receiver.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// A retry setting that makes no sense.
    #[error(transparent)]
    Retry(#[from] RetryError),
    /// The queue on disk.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The exporter's own thread.
    #[error("cannot start the thread of an exporter")]
    Thread(#[source] io::Error),
}

/// Sends reports to one receiver in the background.
///
/// [`Self::enqueue`] never waits, and whatever an exporter waits for, be it the receiver, the disk or
/// a name server, it does on a thread of its own: no exporter holds another one back. Each event that
/// was handed over is in exactly one state of [`Counts`] at any time. Dropping an exporter ends it
/// without sending what is queued.
#[derive(Debug)]
pub struct Exporter {
    queue: Arc<SendQueue>,
    status: Arc<Mutex<ExporterStatus>>,
    queue_capacity_bytes: u64,
    stop: Mutex<Option<oneshot::Sender<Instant>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// An exporter at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExporterStats {
    /// What became of the events so far.
    pub counts: Counts,
    /// Bytes that wait or are being sent, in memory and on disk.
    pub queue_bytes: u64,
    /// Room for such bytes.
    pub queue_capacity_bytes: u64,
    /// Requests that are being sent or wait for their next attempt.
    pub in_flight_requests: usize,
    /// The last partial success, if there was one.
    pub last_partial_success: Option<PartialSuccess>,
    /// Why the last attempt failed, of those that did.
    pub last_failure: Option<String>,
    /// Since when nothing is delivered; `None` where the last attempt has succeeded.
    pub outage: Option<Outage>,
}

impl Exporter {
    /// Starts the thread. `transport` is called where connections can be prepared.
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
                // The caller may be in a runtime of its own, where none can be waited for.
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

    /// Queues a report, which is sent in pieces where it is too large for one request.
    ///
    /// What the queue has no room for is dropped and counted.
    pub fn enqueue(&self, report: Report) {
        self.queue.push(report);
    }

    /// What became of the events so far, and how full the queue is.
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

    /// Takes nothing more in, sends what is queued, but no longer than `timeout`. Does not wait for it.
    pub fn close(&self, timeout: Duration) {
        self.queue.close();
        let stop = lock(&self.stop).take();
        let now = Instant::now();
        // Where nobody listens any more, the thread has ended.
        let _ = stop.map(|stop| stop.send(now.checked_add(timeout).unwrap_or(now + A_YEAR)));
    }

    /// Closes and waits for the end. What could not be sent is on the disk then, if the queue is, and
    /// counted as queued; otherwise it is counted as lost.
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
            "the queue on disk is damaged: what is lost is counted as far as it is known"
        );
    }
    Ok(SendQueue::with_storage(options.queue_bytes, log, recovered))
}

/// The thread of an exporter.
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
        // What is not drained by then is abandoned.
        let _ = tokio::time::timeout_at(deadline.into(), queue.wait_until_idle()).await;
        tasks.shutdown().await;
        queue.abandon();
    });
    // A resolver that hangs must not hold the end up.
    runtime.shutdown_background();
}

/// What these locks guard is replaced as a whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
