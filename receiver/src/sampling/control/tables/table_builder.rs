//! The threads that build unwind tables, so that sampling does not wait for them.
//!
//! Input: orders of [`Binaries`](super::binaries::Binaries), in order of arrival, small files and large ones apart. Output:
//! deliveries, which the sampling thread takes without waiting.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use sidewinder_address::FileOffset;
use sidewinder_bpf::Packing;
use sidewinder_process::{FileId, OpenedFile};
use sidewinder_unwind::FileOutline;
use sidewinder_unwind::validate::TrustedSide;

use super::build::{BuildError, BuildSource, BuiltTable, SegmentRequest};
use super::debug_files::DebugFile;
use crate::memory::TableBuildBudget;
use crate::privilege;
use crate::supervise::ThreadSupervisor;

/// Larger files take so long that others must not wait for them.
const SMALL_FILE_BYTES_MAX: u64 = 16 << 20;
/// The larger files that are built at once if memory is unlimited: a compiler has two such libraries.
const LARGE_CONCURRENCY: usize = 2;

/// How long a build may take. The largest files known take a minute on a busy machine.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(300);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct TableBuilder {
    small: Sender<BuildRequest>,
    large: Sender<BuildRequest>,
    deliveries: Receiver<Delivery>,
    budget: TableBuildBudget,
    in_progress: usize,
}

/// What to build.
#[derive(Debug)]
pub(crate) struct BuildRequest {
    pub(crate) file: FileId,
    pub(crate) content: OpenedFile,
    pub(crate) packing: Packing,
    pub(crate) debug_file: DebugFile,
    pub(crate) scope: BuildScope,
}

/// How much of a file to build.
#[derive(Debug)]
pub(crate) enum BuildScope {
    /// All of it, first where walks miss it.
    WholeFile { wanted: Receiver<FileOffset> },
    /// Segments that walks have missed, and whether each can be built without the rest.
    Segments { wanted: Vec<SegmentRequest>, stand_alone: bool, outline: Option<Arc<FileOutline>> },
}

/// The result of an order, or a part of it.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) file: FileId,
    pub(crate) built: Result<BuiltTable, BuildError>,
    /// The CPU time that the order took; `None`: more is to come.
    pub(crate) cpu_time: Option<Duration>,
    /// The memory that building could take.
    pub(crate) budget_bytes: u64,
}

impl BuildRequest {
    /// Builds and sends. Returns false once sampling has ended.
    fn build_and_send(&self, trust: TrustedSide, room_bytes: u64, outgoing: &Sender<Delivery>) -> bool {
        let began = thread_cpu_time();
        let send = |built, took| {
            outgoing
                .send(Delivery { file: self.file, built, cpu_time: took, budget_bytes: room_bytes })
                .is_ok()
        };
        let (content, packing, debug_file) = (&self.content, self.packing, &self.debug_file);
        let outline = match &self.scope {
            BuildScope::WholeFile { .. } => None,
            BuildScope::Segments { outline, .. } => outline.as_ref(),
        };
        let source = BuildSource { content, packing, debug_file, outline, budget_bytes: room_bytes };
        let deliver = |built| {
            send(Ok(built), None);
        };
        // A panic costs the table of this file alone.
        let built = catch_unwind(AssertUnwindSafe(|| match &self.scope {
            BuildScope::WholeFile { wanted } => source.build(trust, wanted, deliver),
            BuildScope::Segments { wanted, stand_alone, .. } => source.rebuild(wanted, *stand_alone, trust),
        }));
        send(built.unwrap_or(Err(BuildError::Panicked)), Some(thread_cpu_time().saturating_sub(began)))
    }
}

/// The CPU time of this thread.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl TableBuilder {
    pub(crate) fn start(
        trust: TrustedSide,
        building: TableBuildBudget,
        watched: &ThreadSupervisor,
    ) -> io::Result<Self> {
        let (outgoing, deliveries) = mpsc::channel();
        let start = |name: &'static str, threads: usize| -> io::Result<Sender<BuildRequest>> {
            let (orders, incoming) = mpsc::channel::<BuildRequest>();
            let incoming = Arc::new(Mutex::new(incoming));
            for _ in 0..threads {
                let (incoming, outgoing) = (Arc::clone(&incoming), outgoing.clone());
                let heartbeat = watched.register(name, HEARTBEAT_TIMEOUT);
                let next = move || incoming.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
                thread::Builder::new().name(name.to_owned()).spawn(move || {
                    // Debug files may lie in the roots of processes.
                    privilege::drop_all_but(privilege::PROCESS_ACCESS);
                    heartbeat.idle();
                    while let Some(order) = next() {
                        heartbeat.beat(HEARTBEAT_TIMEOUT);
                        if !order.build_and_send(trust, building.available_bytes(), &outgoing) {
                            return;
                        }
                        heartbeat.idle();
                    }
                })?;
            }
            Ok(orders)
        };
        let large_at_once = if building.is_limited() { 1 } else { LARGE_CONCURRENCY };
        let (small, large) = (start("tables", 1)?, start("large-tables", large_at_once)?);
        Ok(Self { small, large, deliveries, budget: building, in_progress: 0 })
    }

    /// Orders the table of a file, or some of its segments again.
    pub(crate) fn request(&mut self, order: BuildRequest) {
        let is_small = order.content.size_bytes() <= SMALL_FILE_BYTES_MAX;
        let orders = if is_small { &self.small } else { &self.large };
        self.in_progress += usize::from(orders.send(order).is_ok());
    }

    /// The next delivery, without waiting.
    pub(crate) fn try_next(&mut self) -> Option<Delivery> {
        let delivery = self.deliveries.try_recv().ok()?;
        self.in_progress -= usize::from(delivery.cpu_time.is_some());
        Some(delivery)
    }

    /// The memory that building a table may take now.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.budget.available_bytes()
    }

    /// Orders that are not complete.
    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress
    }
}
