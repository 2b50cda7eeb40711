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
mod target;
#[cfg(test)]
mod tests;
mod workers;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use sidewinder_bpf::{Opener, PodCgroup};
use sidewinder_process::{Pid, ProcfsError};
use thiserror::Error;

pub use self::memory::MemoryAccess;
pub(crate) use self::memory::TargetMemory;
pub use self::target::ReadTarget;
pub use self::workers::ReadCounts;
use self::workers::{QueuedRead, ReaderShared, ShutdownGuard, THREADS, WAITING_MAX};
use crate::lock::lock;
use crate::privilege;
use crate::time_budget::TimeBudget;

/// The time that a read may take. It normally takes some microseconds; on a busy machine or from swap, some milliseconds.
const READ_DEADLINE: Duration = Duration::from_secs(2);
/// How long [`ForeignReader::submit_and_wait`] waits for a result, and the share of all time that may be spent on such
/// waits, as a divisor.
const BRIEF_WAIT: Duration = Duration::from_millis(20);
const BRIEF_WAITS_SHARE: u32 = 10;
const BRIEF_WAITS_BURST: Duration = Duration::from_millis(100);

/// Why a read has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReadFailure {
    /// The process has exited.
    #[error("the process has ended")]
    Gone,
    /// The read took too long.
    #[error("the read of its memory did not return within {READ_DEADLINE:?}")]
    TimedOut,
    /// The process is not read, because an earlier read of it took too long.
    #[error("it is in quarantine, because a read of its memory did not return in time")]
    Quarantined,
    /// No reader thread can take the read.
    #[error("too many reads are queued, or all reader threads are stuck")]
    Refused,
    /// The reader thread panicked.
    #[error("the read has failed")]
    Failed,
}

/// A handle to the reader threads, which exit when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct ForeignReader {
    shared: Arc<ReaderShared>,
    memory: MemoryAccess,
    /// Stops the threads when the last handle is dropped. The threads themselves don't hold one.
    _closing: Arc<ShutdownGuard>,
}

/// A submitted read whose result has not been taken yet.
#[derive(Debug)]
pub struct PendingRead<T> {
    id: u64,
    receiver: Receiver<T>,
    shared: Arc<ReaderShared>,
}

/// The result of a read, or the pending read.
#[derive(Debug)]
pub enum ReadProgress<T> {
    /// The result.
    Done(T),
    /// The read takes longer than was waited for it.
    Pending(PendingRead<T>),
}

impl ForeignReader {
    /// Starts the threads. Of the opener's privileges they keep only those that reading needs. With a pod, only the memory of
    /// its processes can be read.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn start(opener: &Opener, pod: Option<PodCgroup>) -> io::Result<Self> {
        let memory = MemoryAccess::new(opener, pod);
        Self::start_with(READ_DEADLINE, memory, |run| opener.spawn("reader", run).map(drop))
    }

    fn start_with(
        deadline: Duration,
        memory: MemoryAccess,
        mut spawn: impl FnMut(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    ) -> io::Result<Self> {
        let brief_waits = TimeBudget::new(BRIEF_WAITS_SHARE, BRIEF_WAITS_BURST);
        let shared = Arc::new(ReaderShared::new(deadline, brief_waits));
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
    pub fn memory(&self) -> &MemoryAccess {
        &self.memory
    }

    /// Queues a read of a process. Never blocks.
    ///
    /// # Errors
    /// If the read won't be tried: [`ReadFailure::Quarantined`] or [`ReadFailure::Refused`].
    pub fn submit<T: Send + 'static>(
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
    pub fn submit_and_wait<T: Send + 'static>(
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
    pub fn counts(&self) -> ReadCounts {
        let now = Instant::now();
        let mut state = lock(&self.shared.state);
        self.shared.abandon_overdue(&mut state, now);
        let quarantined = state.quarantine.values().filter(|quarantine| quarantine.until > now).count();
        ReadCounts {
            quarantined_processes: quarantined as u64,
            stuck_reader_threads: state.stuck.len() as u64,
            ..state.counts
        }
    }
}

/// A process whose memory is read by a caller that can wait.
#[derive(Debug)]
pub struct ForeignProcess {
    target: ReadTarget,
    reader: ForeignReader,
}

impl ForeignProcess {
    /// The process that has this PID now.
    pub fn from_pid(pid: Pid, reader: ForeignReader) -> Result<Self, ProcfsError> {
        Ok(Self { target: ReadTarget::from_pid(pid)?, reader })
    }

    /// Runs `read` on the memory of the process, and waits for its result, at most for `timeout`. The result is `None` if the
    /// process has ended.
    ///
    /// # Errors
    /// If there won't be a result.
    pub fn start_read<T: Send + 'static>(
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
    pub fn read_within<T: Send + 'static>(
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
    pub fn poll(&self) -> Option<Result<T, ReadFailure>> {
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
    pub fn wait(self, timeout: Duration) -> Result<ReadProgress<T>, ReadFailure> {
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
