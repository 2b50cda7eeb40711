//! The threads that read, the reads that wait for them, and the processes in quarantine.
//!
//! Owner: the state is shared between the callers and the threads. Input: reads to run. Output: counts by result.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::target::ReadTarget;
use crate::lock::lock;
use crate::time_budget::TimeBudget;

/// The number of threads. One reads at a time; the others take over when it is stuck.
pub(crate) const THREADS: usize = sidewinder_bpf::ForeignMemoryPrograms::READERS_MAX;

/// The maximum number of queued reads.
pub(crate) const WAITING_MAX: usize = 1024;

/// How long a process is in quarantine after a missed deadline: the first time, and at most.
const QUARANTINE_FIRST: Duration = Duration::from_secs(10);
const QUARANTINE_MAX: Duration = Duration::from_secs(600);

/// The maximum number of processes in quarantine.
pub(super) const QUARANTINED_MAX: usize = 1024;

/// The number of reads by result, and the current state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadCounts {
    /// Completed in time.
    pub answered: u64,
    /// Missed the deadline.
    pub timed_out: u64,
    /// Missed the deadline, and returned later.
    pub late: u64,
    /// Not tried, because the process was in quarantine.
    pub quarantined: u64,
    /// Not tried, because too many reads were queued or all threads were stuck.
    pub refused: u64,
    /// Ended with a panic.
    pub failed: u64,
    /// Processes that are in quarantine now.
    pub quarantined_processes: u64,
    /// Threads that are stuck in a read now.
    pub stuck_reader_threads: u64,
}

impl ReadCounts {
    /// The counts, with the names of the results.
    pub fn by_result(&self) -> [(&'static str, u64); 6] {
        [
            ("answered", self.answered),
            ("timed_out", self.timed_out),
            ("late", self.late),
            ("quarantined", self.quarantined),
            ("refused", self.refused),
            ("failed", self.failed),
        ]
    }

    /// Whether all threads are stuck, so that nothing can be read.
    pub fn is_stuck(&self) -> bool {
        self.stuck_reader_threads >= THREADS as u64
    }

    /// The sum of both counts, with the current state of `self`.
    pub fn plus_previous(self, previous: &Self) -> Self {
        Self {
            answered: self.answered + previous.answered,
            timed_out: self.timed_out + previous.timed_out,
            late: self.late + previous.late,
            quarantined: self.quarantined + previous.quarantined,
            refused: self.refused + previous.refused,
            failed: self.failed + previous.failed,
            ..self
        }
    }
}

/// Ends the threads when it is dropped.
#[derive(Debug)]
pub(super) struct ShutdownGuard(pub(super) Arc<ReaderShared>);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        state.waiting.clear();
        self.0.changed.notify_all();
    }
}

/// What the callers and the threads share.
#[derive(Debug)]
pub(super) struct ReaderShared {
    pub(super) state: Mutex<ReaderState>,
    /// A read was queued or has ended, or the threads are to end.
    pub(super) changed: Condvar,
    deadline: Duration,
}

#[derive(Debug)]
pub(super) struct ReaderState {
    pub(super) waiting: VecDeque<QueuedRead>,
    current: Option<RunningRead>,
    /// The IDs of abandoned reads that have not returned.
    pub(super) stuck: Vec<u64>,
    pub(super) last_read: u64,
    pub(super) quarantine: HashMap<ReadTarget, Quarantine>,
    pub(super) counts: ReadCounts,
    /// The time budget for brief waits.
    pub(super) brief_waits: TimeBudget,
    is_closed: bool,
}

pub(super) struct QueuedRead {
    pub(super) id: u64,
    pub(super) target: ReadTarget,
    pub(super) run: Box<dyn FnOnce() + Send>,
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
pub(super) struct Quarantine {
    pub(super) until: Instant,
    duration: Duration,
}

impl ReaderState {
    pub(super) fn is_in_quarantine(&self, target: ReadTarget, now: Instant) -> bool {
        self.quarantine.get(&target).is_some_and(|quarantine| quarantine.until > now)
    }

    pub(super) fn quarantine(&mut self, target: ReadTarget, now: Instant) -> Duration {
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
    pub(super) fn new(deadline: Duration, brief_waits: TimeBudget) -> Self {
        let state = ReaderState {
            waiting: VecDeque::new(),
            current: None,
            stuck: Vec::new(),
            last_read: 0,
            quarantine: HashMap::new(),
            counts: ReadCounts::default(),
            brief_waits,
            is_closed: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), deadline }
    }

    /// Abandons the read in progress if it has missed its deadline.
    pub(super) fn abandon_overdue(&self, state: &mut ReaderState, now: Instant) {
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
    pub(super) fn run_worker(&self) {
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
                state.counts.answered += u64::from(is_ok);
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
