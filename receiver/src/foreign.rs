//! Reads of other processes' memory, which may never return.
//!
//! Memory behind userfaultfd(2) or a FUSE file is provided by another program at any time that it chooses, and a read of it
//! blocks until then, whichever way [`MemoryAccess`] takes. Reads of `environ` and `cmdline`, which are memory too, and of `maps` block while
//! anyone holds the process's `mmap_lock`. So these reads are done only here: on separate threads, one read at a time.
//!
//! A read that has not returned by its [`READ_DEADLINE`] is abandoned: its process is put in quarantine, for twice as long
//! each time, and another thread takes over. While all of them are stuck, nothing is read; [`ReadCounts`] shows this.
//!
//! Our process ends without waiting for these threads: none is joined. What the kernel does with a stuck one depends on what
//! it waits for. In a wait for userfaultfd(2) or `mmap_lock`, a fatal signal ends it. In a wait for a page of FUSE it does not,
//! once the server has taken the request (`request_wait_answer` in fs/fuse/dev.c): then a process that has exited, or was
//! killed with SIGKILL, stays as a zombie until the server answers, the server ends, or the connection is aborted.
//!
//! Owner: the state is shared between the callers and the reader threads. Input: closures to run. Output: their results.

mod memory;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sidewinder_bpf::{Opener, PodCgroup};
use sidewinder_process::{Pid, ProcRoot, ProcessDir, ProcfsError};
use thiserror::Error;
use tracing::{debug, warn};

pub(crate) use self::memory::{MemoryAccess, TargetMemory};
use crate::lock::lock;
use crate::privilege;
use crate::time_budget::TimeBudget;

/// The time that a read may take. It normally takes some microseconds; on a busy machine or from swap, some milliseconds.
const READ_DEADLINE: Duration = Duration::from_secs(2);
/// The number of threads. One reads at a time; the others take over when it is stuck.
const THREADS: usize = sidewinder_bpf::ForeignMemoryPrograms::READERS_MAX;
/// The maximum number of queued reads.
const WAITING_MAX: usize = 1024;
/// How long a process is in quarantine after a missed deadline: the first time, and at most.
const QUARANTINE_FIRST: Duration = Duration::from_secs(10);
const QUARANTINE_MAX: Duration = Duration::from_secs(600);
/// The maximum number of processes in quarantine.
const QUARANTINED_MAX: usize = 1024;
/// How long [`ForeignReader::submit_and_wait`] waits for a result, and the share of all time that may be spent on such
/// waits, as a divisor.
const BRIEF_WAIT: Duration = Duration::from_millis(20);
const BRIEF_WAITS_SHARE: u32 = 10;
const BRIEF_WAITS_BURST: Duration = Duration::from_millis(100);

/// Identifies a process, even if its PID is reused. An exec doesn't change it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ReadTarget {
    pub(crate) pid: Pid,
    /// The start time from `/proc/PID/stat`, in clock ticks.
    pub(crate) start_ticks: u64,
}

impl ReadTarget {
    /// The process that has this PID now. Reading `stat` never blocks, since it shows no memory.
    pub(crate) fn from_pid(pid: Pid) -> Result<Self, ProcfsError> {
        let state = ProcessDir::open(&ProcRoot::default(), pid)?.state()?;
        Ok(Self { pid, start_ticks: state.start_ticks })
    }

    /// When it started, in `CLOCK_BOOTTIME` nanoseconds, rounded down to a clock tick.
    pub(crate) fn start_ns(self) -> u64 {
        self.start_ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
    }

    /// Opens its directory in `/proc`.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] if the process has exited.
    pub(crate) fn open_dir(self) -> Result<ProcessDir, ProcfsError> {
        let directory = ProcessDir::open(&ProcRoot::default(), self.pid)?;
        let is_same = directory.state()?.start_ticks == self.start_ticks;
        if is_same { Ok(directory) } else { Err(ProcfsError::Gone { pid: self.pid }) }
    }

    /// Whether the process has exited or is exiting, as far as its leader shows: then its memory reads as if it had none.
    pub(crate) fn is_exiting(self) -> bool {
        match self.open_dir().and_then(|directory| directory.state()) {
            Ok(state) => state.leader_exiting,
            Err(error) => matches!(error, ProcfsError::Gone { .. }),
        }
    }
}

/// Why a read has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum ReadFailure {
    #[error("the process has ended")]
    Gone,
    #[error("the read of its memory did not return within {READ_DEADLINE:?}")]
    TimedOut,
    #[error("it is in quarantine, because a read of its memory did not return in time")]
    Quarantined,
    #[error("too many reads are queued, or all reader threads are stuck")]
    Refused,
    #[error("the read has failed")]
    Failed,
}

/// The number of reads by result, and the current state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ReadCounts {
    /// Completed in time.
    pub(crate) completed: u64,
    /// Missed the deadline.
    pub(crate) timed_out: u64,
    /// Missed the deadline, and returned later.
    pub(crate) late: u64,
    /// Not tried, because the process was in quarantine.
    pub(crate) quarantined: u64,
    /// Not tried, because too many reads were queued or all threads were stuck.
    pub(crate) refused: u64,
    /// Ended with a panic.
    pub(crate) failed: u64,
    /// Processes that are in quarantine now.
    pub(crate) in_quarantine: u64,
    /// Threads that are stuck in a read now.
    pub(crate) stuck_threads: u64,
}

impl ReadCounts {
    /// The counts, with the names of the results.
    pub(crate) fn by_result(&self) -> [(&'static str, u64); 6] {
        [
            ("answered", self.completed),
            ("timed_out", self.timed_out),
            ("late", self.late),
            ("quarantined", self.quarantined),
            ("refused", self.refused),
            ("failed", self.failed),
        ]
    }

    /// Whether all threads are stuck, so that nothing can be read.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck_threads >= THREADS as u64
    }

    /// The sum of both counts, with the current state of `self`.
    pub(crate) fn plus_previous(self, previous: &Self) -> Self {
        Self {
            completed: self.completed + previous.completed,
            timed_out: self.timed_out + previous.timed_out,
            late: self.late + previous.late,
            quarantined: self.quarantined + previous.quarantined,
            refused: self.refused + previous.refused,
            failed: self.failed + previous.failed,
            ..self
        }
    }
}

/// A handle to the reader threads, which exit when the last handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct ForeignReader {
    shared: Arc<ReaderShared>,
    memory: MemoryAccess,
    /// Stops the threads when the last handle is dropped. The threads themselves don't hold one.
    _closing: Arc<ShutdownGuard>,
}

#[derive(Debug)]
struct ShutdownGuard(Arc<ReaderShared>);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        state.waiting.clear();
        self.0.changed.notify_all();
    }
}

#[derive(Debug)]
struct ReaderShared {
    state: Mutex<ReaderState>,
    changed: Condvar,
    deadline: Duration,
}

#[derive(Debug)]
struct ReaderState {
    waiting: VecDeque<QueuedRead>,
    current: Option<RunningRead>,
    /// The IDs of abandoned reads that have not returned.
    stuck: Vec<u64>,
    last_read: u64,
    quarantine: HashMap<ReadTarget, Quarantine>,
    counts: ReadCounts,
    /// The time budget for brief waits.
    brief_waits: TimeBudget,
    is_closed: bool,
}

struct QueuedRead {
    id: u64,
    target: ReadTarget,
    run: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for QueuedRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuedRead").field("id", &self.id).field("target", &self.target).finish()
    }
}

/// The read in progress.
#[derive(Debug)]
struct RunningRead {
    id: u64,
    target: ReadTarget,
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Quarantine {
    until: Instant,
    duration: Duration,
}

/// A submitted read whose result has not been taken yet.
#[derive(Debug)]
pub(crate) struct PendingRead<T> {
    id: u64,
    receiver: Receiver<T>,
    shared: Arc<ReaderShared>,
}

/// The result of a read, or the pending read.
#[derive(Debug)]
pub(crate) enum ReadProgress<T> {
    Done(T),
    Pending(PendingRead<T>),
}

impl ForeignReader {
    /// Starts the threads. Of the opener's privileges they keep only those that reading needs. With a pod, only the memory of
    /// its processes can be read.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub(crate) fn start(opener: &Opener, pod: Option<PodCgroup>) -> io::Result<Self> {
        let memory = MemoryAccess::new(opener, pod);
        Self::start_with(READ_DEADLINE, memory, |run| opener.spawn("reader", run).map(drop))
    }

    fn start_with(
        deadline: Duration,
        memory: MemoryAccess,
        mut spawn: impl FnMut(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    ) -> io::Result<Self> {
        let state = ReaderState {
            waiting: VecDeque::new(),
            current: None,
            stuck: Vec::new(),
            last_read: 0,
            quarantine: HashMap::new(),
            counts: ReadCounts::default(),
            brief_waits: TimeBudget::new(BRIEF_WAITS_SHARE, BRIEF_WAITS_BURST),
            is_closed: false,
        };
        let shared = Arc::new(ReaderShared { state: Mutex::new(state), changed: Condvar::new(), deadline });
        let reader = Self { _closing: Arc::new(ShutdownGuard(Arc::clone(&shared))), shared, memory };
        for _ in 0..THREADS {
            let shared = Arc::clone(&reader.shared);
            spawn(Box::new(move || {
                privilege::drop_all_but(privilege::PROCESS_ACCESS);
                shared.run_worker();
            }))?;
        }
        Ok(reader)
    }

    /// How reads on these threads access the memory of processes.
    pub(crate) fn memory(&self) -> &MemoryAccess {
        &self.memory
    }

    /// Queues a read of a process. Never blocks.
    ///
    /// # Errors
    /// If the read won't be tried: [`ReadFailure::Quarantined`] or [`ReadFailure::Refused`].
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        target: ReadTarget,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<PendingRead<T>, ReadFailure> {
        let now = Instant::now();
        let mut state = lock(&self.shared.state);
        self.shared.abandon_overdue(&mut state, now);
        if state.is_in_quarantine(target, now) {
            state.counts.quarantined += 1;
            return Err(ReadFailure::Quarantined);
        }
        if state.stuck.len() >= THREADS || state.waiting.len() >= WAITING_MAX {
            state.counts.refused += 1;
            return Err(ReadFailure::Refused);
        }
        let (sender, receiver) = channel();
        let run = Box::new(move || {
            // The caller may no longer wait for the result.
            let _ = sender.send(read());
        });
        state.last_read += 1;
        let id = state.last_read;
        state.waiting.push_back(QueuedRead { id, target, run });
        self.shared.changed.notify_one();
        Ok(PendingRead { id, receiver, shared: Arc::clone(&self.shared) })
    }

    /// Like [`Self::submit`], and waits briefly for the result: at most for [`BRIEF_WAIT`], and for a tenth of the time over
    /// all brief waits together.
    ///
    /// # Errors
    /// If there won't be a result.
    pub(crate) fn submit_and_wait<T: Send + 'static>(
        &self,
        target: ReadTarget,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<ReadProgress<T>, ReadFailure> {
        let pending = self.submit(target, read)?;
        let start = Instant::now();
        let timeout = lock(&self.shared.state).brief_waits.remaining(start).min(BRIEF_WAIT);
        let progress = pending.wait(timeout);
        lock(&self.shared.state).brief_waits.spend(start.elapsed(), Instant::now());
        progress
    }

    /// Abandons a read that has missed its deadline, and returns the counts.
    pub(crate) fn counts(&self) -> ReadCounts {
        let now = Instant::now();
        let mut state = lock(&self.shared.state);
        self.shared.abandon_overdue(&mut state, now);
        let in_quarantine = state.quarantine.values().filter(|quarantine| quarantine.until > now).count();
        ReadCounts {
            in_quarantine: in_quarantine as u64,
            stuck_threads: state.stuck.len() as u64,
            ..state.counts
        }
    }
}

/// A process whose memory is read by a caller that can wait.
#[derive(Debug)]
pub(crate) struct ForeignProcess {
    target: ReadTarget,
    reader: ForeignReader,
}

impl ForeignProcess {
    /// The process that has this PID now.
    pub(crate) fn from_pid(pid: Pid, reader: ForeignReader) -> Result<Self, ProcfsError> {
        Ok(Self { target: ReadTarget::from_pid(pid)?, reader })
    }

    /// Runs `read` on the memory of the process, and waits for its result, at most for `timeout`. The result is `None` if the
    /// process has ended.
    ///
    /// # Errors
    /// If there won't be a result.
    pub(crate) fn start_read<T: Send + 'static>(
        &self,
        timeout: Duration,
        read: impl FnOnce(&TargetMemory) -> T + Send + 'static,
    ) -> Result<ReadProgress<Option<T>>, ReadFailure> {
        let (target, memory) = (self.target, self.reader.memory.clone());
        let read = move || Some(read(&memory.open(target).ok()?));
        self.reader.submit(target, read)?.wait(timeout)
    }

    /// Runs `read` on the memory of the process, and returns its result.
    ///
    /// # Errors
    /// If there is no result within `timeout`.
    pub(crate) fn read_within<T: Send + 'static>(
        &self,
        timeout: Duration,
        read: impl FnOnce(&TargetMemory) -> T + Send + 'static,
    ) -> Result<T, ReadFailure> {
        match self.start_read(timeout, read)? {
            ReadProgress::Done(result) => result.ok_or(ReadFailure::Gone),
            ReadProgress::Pending(_) => Err(ReadFailure::TimedOut),
        }
    }
}

impl<T> PendingRead<T> {
    /// The result, or why there won't be one; `None`: it may still arrive.
    pub(crate) fn poll(&self) -> Option<Result<T, ReadFailure>> {
        match self.receiver.try_recv() {
            Ok(result) => Some(Ok(result)),
            Err(TryRecvError::Disconnected) => Some(Err(self.failure_reason())),
            Err(TryRecvError::Empty) => {
                let mut state = lock(&self.shared.state);
                self.shared.abandon_overdue(&mut state, Instant::now());
                state.stuck.contains(&self.id).then_some(Err(ReadFailure::TimedOut))
            }
        }
    }

    /// Waits for the result, at most for `timeout`.
    ///
    /// # Errors
    /// If there won't be a result.
    pub(crate) fn wait(self, timeout: Duration) -> Result<ReadProgress<T>, ReadFailure> {
        match self.receiver.recv_timeout(timeout) {
            Ok(result) => Ok(ReadProgress::Done(result)),
            Err(RecvTimeoutError::Disconnected) => Err(self.failure_reason()),
            Err(RecvTimeoutError::Timeout) => match self.poll() {
                Some(Ok(result)) => Ok(ReadProgress::Done(result)),
                Some(Err(reason)) => Err(reason),
                None => Ok(ReadProgress::Pending(self)),
            },
        }
    }

    /// Why the read was dropped without a result.
    fn failure_reason(&self) -> ReadFailure {
        match lock(&self.shared.state).stuck.len() {
            THREADS.. => ReadFailure::Refused,
            _ => ReadFailure::Failed,
        }
    }
}

impl ReaderState {
    fn is_in_quarantine(&self, target: ReadTarget, now: Instant) -> bool {
        self.quarantine.get(&target).is_some_and(|quarantine| quarantine.until > now)
    }

    fn quarantine(&mut self, target: ReadTarget, now: Instant) -> Duration {
        let previous = self.quarantine.get(&target).map(|quarantine| quarantine.duration);
        let duration = previous.map_or(QUARANTINE_FIRST, |duration| (2 * duration).min(QUARANTINE_MAX));
        if self.quarantine.len() >= QUARANTINED_MAX && previous.is_none() {
            let soonest = self
                .quarantine
                .iter()
                .min_by_key(|(_, quarantine)| quarantine.until)
                .map(|(target, _)| *target);
            soonest.and_then(|target| self.quarantine.remove(&target));
        }
        self.quarantine.insert(target, Quarantine { until: now + duration, duration });
        duration
    }
}

impl ReaderShared {
    /// Abandons the read in progress if it has missed its deadline.
    fn abandon_overdue(&self, state: &mut ReaderState, now: Instant) {
        let is_late =
            |current: &mut RunningRead| now.saturating_duration_since(current.since) >= self.deadline;
        let Some(RunningRead { id, target, .. }) = state.current.take_if(is_late) else { return };
        state.stuck.push(id);
        state.counts.timed_out += 1;
        let quarantined_for = state.quarantine(target, now);
        let (pid, seconds) = (target.pid.0, quarantined_for.as_secs());
        if state.counts.timed_out == 1 {
            warn!(
                pid,
                seconds,
                "degraded: reads of a process's memory don't return (userfaultfd, FUSE): it is in quarantine and not read \
                 for some time"
            );
        } else {
            debug!(pid, seconds, "a process is in quarantine: reads of its memory don't return");
        }
        if state.stuck.len() >= THREADS {
            let refused = state.waiting.drain(..).count();
            state.counts.refused += refused as u64;
            warn!("degraded: all reader threads are stuck: no process is read until one of them returns");
        }
        self.changed.notify_one();
    }

    /// Runs queued reads, while no other thread is running one.
    fn run_worker(&self) {
        let mut state = lock(&self.state);
        while !state.is_closed {
            let next = if state.current.is_none() { state.waiting.pop_front() } else { None };
            let Some(QueuedRead { id, target, run }) = next else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let now = Instant::now();
            if state.is_in_quarantine(target, now) {
                state.counts.quarantined += 1;
                continue;
            }
            state.current = Some(RunningRead { id, target, since: now });
            drop(state);
            // The data is not trusted, and a bug in its parser must not end the thread.
            let is_ok = catch_unwind(AssertUnwindSafe(run)).is_ok();
            state = lock(&self.state);
            if state.current.take_if(|current| current.id == id).is_some() {
                state.counts.completed += u64::from(is_ok);
                state.counts.failed += u64::from(!is_ok);
                state.quarantine.remove(&target);
            } else {
                state.stuck.retain(|stuck| *stuck != id);
                state.counts.late += 1;
            }
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
