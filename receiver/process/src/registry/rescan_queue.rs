//! Which processes are to be rescanned, and how often that may be.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::id::Pid;
use crate::token_bucket::TokenBucket;

/// How often per second all processes may be marked as stale because events were lost.
const RECOVERIES_PER_SECOND: u32 = 1;
/// How often per second processes without a leader are rescanned.
const LEADERLESS_SCANS_PER_SECOND: u32 = 1;

/// The processes whose data may be wrong. They are rescanned round robin, in order of PID.
#[derive(Debug)]
pub(super) struct RescanQueue {
    stale: BTreeSet<Pid>,
    /// The process that was rescanned last.
    last_rescanned: Pid,
    rescans: TokenBucket,
    /// Processes whose leader has ended. Threads may outlive it, but their count may also be wrong: an exit event precedes
    /// the thread's disappearance from `/proc`. So these processes are rescanned until no thread is left.
    leaderless: BTreeSet<Pid>,
    leaderless_scans: TokenBucket,
    /// Whether events were lost and processes have not been marked as stale for that yet.
    wants_recovery: bool,
    recoveries: TokenBucket,
}

impl RescanQueue {
    pub(super) fn new(rescans_per_second: u32, now_ns: u64) -> Self {
        Self {
            stale: BTreeSet::new(),
            last_rescanned: Pid(0),
            rescans: TokenBucket::new(rescans_per_second, now_ns),
            leaderless: BTreeSet::new(),
            leaderless_scans: TokenBucket::new(LEADERLESS_SCANS_PER_SECOND, now_ns),
            wants_recovery: false,
            recoveries: TokenBucket::new(RECOVERIES_PER_SECOND, now_ns),
        }
    }

    /// Stale processes.
    pub(super) fn len(&self) -> usize {
        self.stale.len()
    }

    pub(super) fn mark_stale(&mut self, pid: Pid) {
        self.stale.insert(pid);
    }

    /// From now on the process becomes stale periodically, until it is removed.
    pub(super) fn mark_leaderless(&mut self, pid: Pid) {
        self.leaderless.insert(pid);
    }

    /// The process is no longer stale: it is being scanned, or is not followed.
    pub(super) fn remove_stale(&mut self, pid: Pid) {
        self.stale.remove(&pid);
    }

    /// Nothing that was known of the process matters any more: it has ended, or executes another program.
    pub(super) fn remove(&mut self, pid: Pid) {
        self.stale.remove(&pid);
        self.leaderless.remove(&pid);
    }

    /// Events were lost, of any process.
    pub(super) fn request_recovery(&mut self) {
        self.wants_recovery = true;
    }

    /// Whether all processes must be marked as stale now, for events that were lost.
    pub(super) fn take_recovery(&mut self, now_ns: u64) -> bool {
        let is_due = self.wants_recovery && self.recoveries.take(1, now_ns) == 1;
        self.wants_recovery &= !is_due;
        is_due
    }

    /// Takes as many stale processes as the limits allow. Those that `is_being_scanned` stay stale.
    pub(super) fn take_due(&mut self, now_ns: u64, is_being_scanned: impl Fn(Pid) -> bool) -> Vec<Pid> {
        if !self.leaderless.is_empty() && self.leaderless_scans.take(1, now_ns) == 1 {
            self.stale.extend(&self.leaderless);
        }
        let mut due = Vec::new();
        for _ in 0..self.rescans.take(self.stale.len(), now_ns) {
            let after_last =
                self.stale.range((Bound::Excluded(self.last_rescanned), Bound::Unbounded)).next();
            let Some(&pid) = after_last.or_else(|| self.stale.first()) else { break };
            self.last_rescanned = pid;
            if !is_being_scanned(pid) {
                self.stale.remove(&pid);
                due.push(pid);
            }
        }
        due
    }
}
