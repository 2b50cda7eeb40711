//! The threads that build unwind tables, so that sampling doesn't wait for them.
//!
//! Input: build requests from [`Binaries`](crate::binaries::Binaries), in separate queues for small and large files. Output:
//! deliveries, which the sampling thread takes without blocking. The [`TableBuilder`] is owned by the sampling thread.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use sidewinder_address::FileOffset;
use sidewinder_base::memory::TableBuildBudget;
use sidewinder_base::privilege;
use sidewinder_base::supervise::ThreadSupervisor;
use sidewinder_bpf::Packing;
use sidewinder_debug_files::DebugFile;
use sidewinder_process::{FileEntry, FileId, OpenedFile};
use sidewinder_unwind::FileOutline;
use sidewinder_unwind::validate::TrustedSide;
use sidewinder_vm::{LanguageRuntime, PthreadLayout, RuntimeSet, detect};

use crate::build::{BuildError, BuildSource};
use crate::built_table::{BuiltTable, SegmentRequest};
use crate::saved_tables::{SavedTableCounts, SavedTableName, SavedTables};
use crate::table_room::TableRoom;

/// Larger files take so long to build that smaller ones must not wait for them.
const SMALL_FILE_BYTES_MAX: u64 = 16 << 20;
/// How many large files are built at the same time if memory is unlimited. A compiler has two large libraries.
const LARGE_CONCURRENCY: usize = 2;

/// How long a build may take. The largest known files take a minute on a busy machine.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(300);

/// The sampling thread's handle to the builder threads.
#[derive(Debug)]
pub struct TableBuilder {
    small: Sender<BuildRequest>,
    large: Sender<BuildRequest>,
    deliveries: Receiver<Delivery>,
    budget: TableBuildBudget,
    /// The memory that builds in progress may take.
    granted_bytes: Arc<AtomicU64>,
    room: Arc<TableRoom>,
    saved: Option<Arc<SavedTables>>,
    in_progress: usize,
}

/// How tables are built.
#[derive(Clone, Copy, Debug)]
pub struct BuildOptions {
    /// What is right where a file's rows and its machine code disagree.
    pub trust: TrustedSide,
    /// Which runtimes to look for in files.
    pub runtimes: RuntimeSet,
}

/// A request to build a file's table, or segments of it.
#[derive(Debug)]
pub struct BuildRequest {
    pub(crate) file: FileId,
    pub(crate) content: OpenedFile,
    pub(crate) packing: Packing,
    pub(crate) debug_file: DebugFile,
    /// The name under which the table is saved, if it is.
    pub(crate) saved_as: Option<SavedTableName>,
    pub(crate) scope: BuildScope,
}

/// How much of a file to build.
#[derive(Debug)]
pub(crate) enum BuildScope {
    /// The whole file. The parts that walks miss, received from `wanted`, are built first.
    WholeFile { wanted: Receiver<FileOffset> },
    /// Segments that walks have missed, and whether they can all be built without the rest of the file.
    Segments { wanted: Vec<SegmentRequest>, stand_alone: bool, outline: Option<Arc<FileOutline>> },
}

/// The result of a request, or a part of it.
#[derive(Debug)]
pub struct Delivery {
    pub(crate) file: FileId,
    pub(crate) built: Result<BuiltTable, BuildError>,
    /// The runtime that the file contains. It is looked for when the whole file is requested, if at all.
    pub(crate) runtime: Option<Arc<dyn LanguageRuntime>>,
    /// How the C library that the file is lays out threads, if that is looked for: CPython's state is found by it.
    pub(crate) pthread: Option<PthreadLayout>,
    /// The CPU time that the request took; `None`: more deliveries follow.
    pub(crate) cpu_time: Option<Duration>,
    /// The memory that was available for the build.
    pub(crate) budget_bytes: u64,
}

impl BuildRequest {
    /// Builds the table and sends the deliveries. Returns false once sampling has ended.
    fn build_and_send(
        &self,
        options: BuildOptions,
        budget_bytes: u64,
        room: &TableRoom,
        saved: Option<&SavedTables>,
        outgoing: &Sender<Delivery>,
    ) -> bool {
        let BuildOptions { trust, runtimes } = options;
        let start = thread_cpu_time();
        let runtime = self.find_runtime(runtimes);
        let pthread = self.find_pthread(runtimes);
        let send = |built, cpu_time| {
            let runtime = runtime.clone();
            outgoing
                .send(Delivery { file: self.file, built, runtime, pthread, cpu_time, budget_bytes })
                .is_ok()
        };
        let (content, packing, debug_file) = (&self.content, self.packing, &self.debug_file);
        let outline = match &self.scope {
            BuildScope::WholeFile { .. } => None,
            BuildScope::Segments { outline, .. } => outline.as_ref(),
        };
        let saved = saved.zip(self.saved_as.as_ref());
        let source = BuildSource { content, packing, debug_file, outline, budget_bytes, room, saved };
        let deliver = |built| {
            send(Ok(built), None);
        };
        // A panic loses only the table of this file.
        let built = catch_unwind(AssertUnwindSafe(|| match &self.scope {
            BuildScope::WholeFile { wanted } => source.build(trust, wanted, deliver),
            BuildScope::Segments { wanted, stand_alone, .. } => source.rebuild(wanted, *stand_alone, trust),
        }));
        send(built.unwrap_or(Err(BuildError::Panicked)), Some(thread_cpu_time().saturating_sub(start)))
    }

    /// The runtime that the file contains, if the whole file is requested.
    fn find_runtime(&self, wanted: RuntimeSet) -> Option<Arc<dyn LanguageRuntime>> {
        match self.scope {
            BuildScope::WholeFile { .. } => {
                catch_unwind(AssertUnwindSafe(|| detect(&self.content, wanted))).ok()?.ok()?
            }
            BuildScope::Segments { .. } => None,
        }
    }

    /// The layout of threads, if the whole file is requested, and it is needed.
    fn find_pthread(&self, wanted: RuntimeSet) -> Option<PthreadLayout> {
        if !wanted.reads_pthread() || !matches!(self.scope, BuildScope::WholeFile { .. }) {
            return None;
        }
        catch_unwind(AssertUnwindSafe(|| PthreadLayout::read(&self.content))).ok()?.ok()?
    }
}

/// The CPU time of this thread.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl TableBuilder {
    /// Starts the threads.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn start(
        options: BuildOptions,
        budget: TableBuildBudget,
        saved: Option<Arc<SavedTables>>,
        supervisor: &ThreadSupervisor,
    ) -> io::Result<Self> {
        let (outgoing, deliveries) = mpsc::channel();
        let room = Arc::new(TableRoom::new(u64::MAX));
        let granted_bytes = Arc::new(AtomicU64::new(0));
        let start = |name: &'static str, threads: usize| -> io::Result<Sender<BuildRequest>> {
            let (requests, incoming) = mpsc::channel::<BuildRequest>();
            let incoming = Arc::new(Mutex::new(incoming));
            for _ in 0..threads {
                let (incoming, outgoing, room) = (Arc::clone(&incoming), outgoing.clone(), Arc::clone(&room));
                let (saved, granted_bytes) = (saved.clone(), Arc::clone(&granted_bytes));
                let heartbeat = supervisor.register(name, HEARTBEAT_TIMEOUT);
                let next = move || incoming.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
                thread::Builder::new().name(name.to_owned()).spawn(move || {
                    // Debug files may lie in the roots of processes.
                    privilege::drop_all_but(privilege::PROCESS_ACCESS);
                    heartbeat.idle();
                    while let Some(request) = next() {
                        heartbeat.beat(HEARTBEAT_TIMEOUT);
                        let budget_bytes = budget.available_bytes(granted_bytes.load(Ordering::Relaxed));
                        granted_bytes.fetch_add(budget_bytes, Ordering::Relaxed);
                        let goes_on =
                            request.build_and_send(options, budget_bytes, &room, saved.as_deref(), &outgoing);
                        granted_bytes.fetch_sub(budget_bytes, Ordering::Relaxed);
                        if !goes_on {
                            return;
                        }
                        heartbeat.idle();
                    }
                })?;
            }
            Ok(requests)
        };
        let large_concurrency = if budget.is_limited() { 1 } else { LARGE_CONCURRENCY };
        let (small, large) = (start("tables", 1)?, start("large-tables", large_concurrency)?);
        Ok(Self { small, large, deliveries, budget, granted_bytes, room, saved, in_progress: 0 })
    }

    /// The name under which the table of a file is saved; `None` if it isn't.
    pub(crate) fn saved_name(&self, entry: &FileEntry, packing: Packing) -> Option<SavedTableName> {
        self.saved.as_ref()?.name(entry, packing)
    }

    /// How often saved tables were used.
    pub(crate) fn saved_counts(&self) -> SavedTableCounts {
        self.saved.as_ref().map(|saved| saved.counts()).unwrap_or_default()
    }

    /// Requests the table of a file, or some of its segments again.
    pub fn request(&mut self, request: BuildRequest) {
        let is_small = request.content.size_bytes() <= SMALL_FILE_BYTES_MAX;
        let requests = if is_small { &self.small } else { &self.large };
        self.in_progress += usize::from(requests.send(request).is_ok());
    }

    /// The next delivery, without blocking.
    pub fn try_next(&mut self) -> Option<Delivery> {
        let delivery = self.deliveries.try_recv().ok()?;
        self.in_progress -= usize::from(delivery.cpu_time.is_some());
        Some(delivery)
    }

    /// States how much memory is left for tables.
    pub(crate) fn set_room(&self, bytes: u64) {
        self.room.set(bytes);
    }

    /// The memory that building a table may use now.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.budget.available_bytes(self.granted_bytes.load(Ordering::Relaxed))
    }

    /// The number of requests that are not complete.
    pub fn in_progress(&self) -> usize {
        self.in_progress
    }
}
