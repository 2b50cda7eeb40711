//! Reads of other processes' memory, which may never return.
//!
//! Memory behind userfaultfd(2) or a FUSE file is given by another program, when it likes, and `process_vm_readv` waits for
//! it. `environ` and `cmdline`, which are memory too, and `maps` wait for whoever holds the process's `mmap_lock`. So such
//! reads are done here and nowhere else: by threads of their own, one read at a time.
//!
//! A read that has not returned by its [`READ_DEADLINE`] is given up: its process is in quarantine for a while, twice as long
//! each time, and another thread takes over. The kernel lets such a thread go when the page comes, or when either process
//! ends; ours can be killed at any time, and its end waits for none of these threads. When all of them are stuck, nothing
//! is read until one returns, which [`ReadCounts`] tell.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sidewinder_bpf::Opener;
use sidewinder_process::{Pid, ProcRoot, ProcessDir, ProcessMemory, ProcfsError};
use thiserror::Error;
use tracing::{debug, warn};

use crate::lock::lock;
use crate::privilege;
use crate::time_budget::TimeBudget;

/// A read takes some microseconds; on a busy machine, or from swap, some milliseconds.
const READ_DEADLINE: Duration = Duration::from_secs(2);
/// Threads: one reads, the others take over from those that are stuck.
const THREADS: usize = 4;
/// Reads that wait for their turn.
const WAITING_MAX: usize = 1024;
/// How long a process is left alone after a missed deadline: at first, and at most.
const QUARANTINE_FIRST: Duration = Duration::from_secs(10);
const QUARANTINE_MAX: Duration = Duration::from_secs(600);
/// Processes in quarantine that are remembered.
const QUARANTINED_MAX: usize = 1024;
/// How long an answer is waited for that is better had at once, and which share of all time may go into that.
const BRIEF_WAIT: Duration = Duration::from_millis(20);
const BRIEF_WAITS_SHARE: u32 = 10;
const BRIEF_WAITS_BURST: Duration = Duration::from_millis(100);

/// One process, and no other that gets its number. An exec does not make another one of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ReadTarget {
    pub(crate) pid: Pid,
    /// As `/proc/PID/stat` has it.
    pub(crate) start_ticks: u64,
}

impl ReadTarget {
    /// The process that has a number now. `stat` shows no memory: reading it waits for nobody.
    pub(crate) fn from_pid(pid: Pid) -> Result<Self, ProcfsError> {
        let state = ProcessDir::open(&ProcRoot::default(), pid)?.state()?;
        Ok(Self { pid, start_ticks: state.start_ticks })
    }

    /// Its directory in `/proc`.
    pub(crate) fn open_dir(self) -> Result<ProcessDir, ProcfsError> {
        let directory = ProcessDir::open(&ProcRoot::default(), self.pid)?;
        let is_it = directory.state()?.start_ticks == self.start_ticks;
        if is_it { Ok(directory) } else { Err(ProcfsError::Gone { pid: self.pid }) }
    }
}

/// Why a read has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum ReadFailure {
    #[error("the process has ended")]
    Gone,
    #[error("its memory was not given within {READ_DEADLINE:?}")]
    TimedOut,
    #[error("its memory was not given before, it is left alone for now")]
    Quarantined,
    #[error("too many reads wait, or all threads that read are stuck")]
    Refused,
    #[error("the read has failed")]
    Failed,
}

/// What became of all reads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ReadCounts {
    /// In time.
    pub(crate) completed: u64,
    /// Not within the deadline.
    pub(crate) timed_out: u64,
    /// Of those, later.
    pub(crate) late: u64,
    /// Not tried, as the process had missed a deadline.
    pub(crate) quarantined: u64,
    /// Not tried, as too many waited or all threads were stuck.
    pub(crate) refused: u64,
    /// Ended by a panic.
    pub(crate) failed: u64,
    /// Processes in quarantine, now.
    pub(crate) in_quarantine: u64,
    /// Threads whose read has not returned, now.
    pub(crate) stuck_threads: u64,
}

impl ReadCounts {
    /// Counts by how a read ended.
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

    /// Whether nothing can be read.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck_threads >= THREADS as u64
    }

    /// What both counted; what holds now is `self`'s.
    pub(crate) fn plus_previous(self, before: &Self) -> Self {
        Self {
            completed: self.completed + before.completed,
            timed_out: self.timed_out + before.timed_out,
            late: self.late + before.late,
            quarantined: self.quarantined + before.quarantined,
            refused: self.refused + before.refused,
            failed: self.failed + before.failed,
            ..self
        }
    }
}

/// Asks the threads, which end with the last of these. See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct ForeignReader {
    shared: Arc<ReaderShared>,
    /// Tells the threads, which have none, that nobody asks any more.
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
    /// Reads that were given up and have not returned.
    stuck: Vec<u64>,
    last_read: u64,
    quarantine: HashMap<ReadTarget, Quarantine>,
    counts: ReadCounts,
    /// Time that may go into brief waits.
    brief_waits: TimeBudget,
    is_closed: bool,
}

struct QueuedRead {
    number: u64,
    target: ReadTarget,
    run: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for QueuedRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Read").field("number", &self.number).field("target", &self.target).finish()
    }
}

/// The read that is under way.
#[derive(Debug)]
struct RunningRead {
    number: u64,
    target: ReadTarget,
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Quarantine {
    until: Instant,
    duration: Duration,
}

/// An answer that is still to come.
#[derive(Debug)]
pub(crate) struct PendingRead<T> {
    number: u64,
    receiver: Receiver<T>,
    shared: Arc<ReaderShared>,
}

/// What [`ForeignReader::submit_and_wait`] got.
#[derive(Debug)]
pub(crate) enum ReadProgress<T> {
    Done(T),
    Pending(PendingRead<T>),
}

impl ForeignReader {
    /// Starts the threads, which keep of the opener's privileges what reading takes.
    ///
    /// # Errors
    /// If the system has no room for a thread.
    pub(crate) fn start(opener: &Opener) -> io::Result<Self> {
        Self::start_with(READ_DEADLINE, |run| opener.spawn("reader", run).map(drop))
    }

    fn start_with(
        deadline: Duration,
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
        let reader = Self { _closing: Arc::new(ShutdownGuard(Arc::clone(&shared))), shared };
        for _ in 0..THREADS {
            let shared = Arc::clone(&reader.shared);
            spawn(Box::new(move || {
                privilege::drop_all_but(privilege::PROCESS_ACCESS);
                shared.run_worker();
            }))?;
        }
        Ok(reader)
    }

    /// Asks for something to be read of a process. Waits for nothing.
    ///
    /// # Errors
    /// Where it won't be tried.
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
        let (sender, answer) = channel();
        let run = Box::new(move || {
            // Whoever has asked may not wait for the answer any more.
            let _ = sender.send(read());
        });
        state.last_read += 1;
        let number = state.last_read;
        state.waiting.push_back(QueuedRead { number, target, run });
        self.shared.changed.notify_one();
        Ok(PendingRead { number, receiver: answer, shared: Arc::clone(&self.shared) })
    }

    /// As [`Self::submit`], and waits a moment for the answer: [`BRIEF_WAIT`] at the most, and all such waits together a
    /// tenth of the time.
    ///
    /// # Errors
    /// Where there won't be an answer.
    pub(crate) fn submit_and_wait<T: Send + 'static>(
        &self,
        target: ReadTarget,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<ReadProgress<T>, ReadFailure> {
        let pending = self.submit(target, read)?;
        let began = Instant::now();
        let wait = lock(&self.shared.state).brief_waits.remaining(began).min(BRIEF_WAIT);
        let asked = pending.wait(wait);
        lock(&self.shared.state).brief_waits.spend(began.elapsed(), Instant::now());
        asked
    }

    /// Gives up a read that has missed its deadline, and returns how all reads ended.
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

/// A process whose memory is read now and then by somebody who can wait a moment.
#[derive(Debug)]
pub(crate) struct ForeignProcess {
    target: ReadTarget,
    reader: ForeignReader,
}

impl ForeignProcess {
    /// The process that has a number now.
    pub(crate) fn from_pid(pid: Pid, reader: ForeignReader) -> Result<Self, ProcfsError> {
        Ok(Self { target: ReadTarget::from_pid(pid)?, reader })
    }

    /// What `read` makes of the memory of the process.
    ///
    /// # Errors
    /// Where there is no answer within `timeout`.
    pub(crate) fn read_within<T: Send + 'static>(
        &self,
        timeout: Duration,
        read: impl FnOnce(&ProcessMemory) -> T + Send + 'static,
    ) -> Result<T, ReadFailure> {
        let target = self.target;
        let read = move || Some(read(&ProcessMemory::new(target.open_dir().ok()?)));
        match self.reader.submit(target, read)?.wait(timeout)? {
            ReadProgress::Done(answer) => answer.ok_or(ReadFailure::Gone),
            ReadProgress::Pending(_) => Err(ReadFailure::TimedOut),
        }
    }
}

impl<T> PendingRead<T> {
    /// The answer, or why there won't be one; `None`: it may still come.
    pub(crate) fn poll(&self) -> Option<Result<T, ReadFailure>> {
        match self.receiver.try_recv() {
            Ok(answer) => Some(Ok(answer)),
            Err(TryRecvError::Disconnected) => Some(Err(self.failure_reason())),
            Err(TryRecvError::Empty) => {
                let mut state = lock(&self.shared.state);
                self.shared.abandon_overdue(&mut state, Instant::now());
                state.stuck.contains(&self.number).then_some(Err(ReadFailure::TimedOut))
            }
        }
    }

    /// Waits for the answer, at the longest for `timeout`.
    ///
    /// # Errors
    /// Where there won't be one.
    pub(crate) fn wait(self, timeout: Duration) -> Result<ReadProgress<T>, ReadFailure> {
        match self.receiver.recv_timeout(timeout) {
            Ok(answer) => Ok(ReadProgress::Done(answer)),
            Err(RecvTimeoutError::Disconnected) => Err(self.failure_reason()),
            Err(RecvTimeoutError::Timeout) => match self.poll() {
                Some(Ok(answer)) => Ok(ReadProgress::Done(answer)),
                Some(Err(reason)) => Err(reason),
                None => Ok(ReadProgress::Pending(self)),
            },
        }
    }

    /// Why nobody can answer any more.
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
        let before = self.quarantine.get(&target).map(|quarantine| quarantine.duration);
        let time = before.map_or(QUARANTINE_FIRST, |time| (2 * time).min(QUARANTINE_MAX));
        if self.quarantine.len() >= QUARANTINED_MAX && before.is_none() {
            let soonest = self.quarantine.iter().min_by_key(|(_, of)| of.until).map(|(target, _)| *target);
            soonest.and_then(|target| self.quarantine.remove(&target));
        }
        self.quarantine.insert(target, Quarantine { until: now + time, duration: time });
        time
    }
}

impl ReaderShared {
    /// Gives up the read that is under way if it has missed its deadline.
    fn abandon_overdue(&self, state: &mut ReaderState, now: Instant) {
        let is_late =
            |current: &mut RunningRead| now.saturating_duration_since(current.since) >= self.deadline;
        let Some(RunningRead { number, target, .. }) = state.current.take_if(is_late) else { return };
        state.stuck.push(number);
        state.counts.timed_out += 1;
        let time = state.quarantine(target, now);
        let (pid, seconds) = (target.pid.0, time.as_secs());
        if state.counts.timed_out == 1 {
            warn!(
                pid,
                seconds,
                "degraded: the memory of a process is not given to readers (userfaultfd, FUSE): nothing more is read of it \
                 for some time"
            );
        } else {
            debug!(pid, seconds, "a process is in quarantine: its memory is not given to readers");
        }
        if state.stuck.len() >= THREADS {
            let refused = state.waiting.drain(..).count();
            state.counts.refused += refused as u64;
            warn!("degraded: every thread that reads processes is stuck: nothing is read until one returns");
        }
        self.changed.notify_one();
    }

    /// Does one read after the other, as long as no other thread is at it.
    fn run_worker(&self) {
        let mut state = lock(&self.state);
        while !state.is_closed {
            let next = if state.current.is_none() { state.waiting.pop_front() } else { None };
            let Some(QueuedRead { number, target, run }) = next else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let now = Instant::now();
            if state.is_in_quarantine(target, now) {
                state.counts.quarantined += 1;
                continue;
            }
            state.current = Some(RunningRead { number, target, since: now });
            drop(state);
            // What is read is not trusted, and a fault in its parser must not take the thread.
            let is_ok = catch_unwind(AssertUnwindSafe(run)).is_ok();
            state = lock(&self.state);
            if state.current.take_if(|current| current.number == number).is_some() {
                state.counts.completed += u64::from(is_ok);
                state.counts.failed += u64::from(!is_ok);
                state.quarantine.remove(&target);
            } else {
                state.stuck.retain(|stuck| *stuck != number);
                state.counts.late += 1;
            }
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    fn reader(deadline: Duration) -> ForeignReader {
        let spawn = |run| thread::Builder::new().spawn(run).map(drop);
        ForeignReader::start_with(deadline, spawn).unwrap()
    }

    fn target(pid: u32) -> ReadTarget {
        ReadTarget { pid: Pid(pid), start_ticks: 1 }
    }

    /// A read that returns when its sender is dropped.
    fn stuck_read(reader: &ForeignReader, pid: u32) -> (PendingRead<()>, std::sync::mpsc::Sender<()>) {
        let (release, released) = channel::<()>();
        let pending = reader
            .submit(target(pid), move || {
                let _ = released.recv();
            })
            .unwrap();
        (pending, release)
    }

    fn outcome<T>(pending: &PendingRead<T>) -> Result<T, ReadFailure> {
        loop {
            match pending.poll() {
                Some(outcome) => return outcome,
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn answer<T>(asked: Result<ReadProgress<T>, ReadFailure>) -> T {
        match asked {
            Ok(ReadProgress::Done(answer)) => answer,
            Ok(ReadProgress::Pending(_)) => panic!("no answer"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_read_that_never_returns_costs_its_process_alone() {
        let reader = reader(SHORT);
        let (pending, release) = stuck_read(&reader, 1);
        assert_eq!(outcome(&pending), Err(ReadFailure::TimedOut));
        assert_eq!(reader.submit(target(1), || ()).err(), Some(ReadFailure::Quarantined));
        let other = ReadTarget { start_ticks: 2, ..target(1) };
        assert_eq!(answer(reader.submit(other, || 7).unwrap().wait(LONG)), 7, "another one with its number");
        // An answer is counted after it is sent.
        while reader.counts().completed == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let counts = reader.counts();
        assert_eq!((counts.timed_out, counts.quarantined, counts.completed), (1, 1, 1));
        assert_eq!((counts.in_quarantine, counts.stuck_threads, counts.is_stuck()), (1, 1, false));
        drop(release);
        while reader.counts().stuck_threads > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(reader.counts().late, 1);
    }

    #[test]
    fn when_all_threads_are_stuck_nothing_is_tried_until_one_returns() {
        let reader = reader(SHORT);
        let mut stuck: Vec<_> = (0..THREADS as u32)
            .map(|pid| {
                let (pending, release) = stuck_read(&reader, pid);
                assert_eq!(outcome(&pending), Err(ReadFailure::TimedOut));
                release
            })
            .collect();
        assert!(reader.counts().is_stuck());
        assert_eq!(reader.submit(target(100), || ()).err(), Some(ReadFailure::Refused));
        stuck.pop();
        while reader.counts().is_stuck() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(answer(reader.submit(target(100), || 7).unwrap().wait(LONG)), 7);
    }

    #[test]
    fn what_waits_is_bounded_and_brief_waits_are_brief() {
        let reader = reader(LONG);
        let (_pending, release) = stuck_read(&reader, 1);
        let mut waiting = Vec::new();
        // The first may still be waiting, too.
        let refused = (0..=WAITING_MAX).find_map(|_| match reader.submit(target(2), || ()) {
            Ok(pending) => {
                waiting.push(pending);
                None
            }
            Err(error) => Some(error),
        });
        assert_eq!(refused, Some(ReadFailure::Refused));
        assert!(waiting.len() >= WAITING_MAX - 1);
        drop(release);
        for pending in waiting {
            answer(pending.wait(LONG));
        }
        let (_pending, _release) = stuck_read(&reader, 1);
        let began = Instant::now();
        for _ in 0..100 {
            assert!(matches!(reader.submit_and_wait(target(3), || ()), Ok(ReadProgress::Pending(_))));
        }
        assert!(began.elapsed() < 100 * BRIEF_WAIT, "100 waits took {:?}", began.elapsed());
    }

    #[test]
    fn a_process_that_misses_its_deadline_again_is_left_alone_for_longer() {
        let mut state = lock(&reader(LONG).shared.state).quarantine.clone();
        assert!(state.is_empty());
        let reader = reader(LONG);
        let mut shared = lock(&reader.shared.state);
        let now = Instant::now();
        let times: Vec<u64> = (0..8).map(|_| shared.quarantine(target(1), now).as_secs()).collect();
        assert_eq!(times, [10, 20, 40, 80, 160, 320, 600, 600]);
        for pid in 2..2 + 2 * QUARANTINED_MAX as u32 {
            shared.quarantine(target(pid), now);
        }
        state.extend(shared.quarantine.drain());
        assert!(state.len() <= QUARANTINED_MAX);
    }

    #[test]
    fn a_read_that_panics_is_counted_and_the_next_one_is_answered() {
        let reader = reader(LONG);
        let failed = reader.submit(target(1), || panic!("a fault in a parser")).unwrap();
        assert_eq!(outcome::<()>(&failed), Err(ReadFailure::Failed));
        assert_eq!(answer(reader.submit(target(1), || 7).unwrap().wait(LONG)), 7);
        assert_eq!(reader.counts().failed, 1);
    }
}
