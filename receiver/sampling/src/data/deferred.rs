//! Deferred walks: walks that were missing something in the kernel, and are done in user space once it is available.
//!
//! A process may exit before the receiver knows about it, and a file is mapped and executed before its table can be built.
//! The sample then comes with a snapshot of the registers and of the top of the stack. It waits here until the process
//! events up to its time have been applied, and the tables of its files have been built.
//!
//! Owner: the sampling thread.

#[cfg(test)]
mod agreement;
mod code;
mod code_lookup;
mod groups;
mod guess;
mod walk;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use sidewinder_address::FileOffset;
use sidewinder_bpf::{SampleRecord, StackPiece, StackSnapshot};
use sidewinder_process::{FileId, Pid, Process, ProcessKey};

pub(super) use self::code::ProcessCode;
pub(super) use self::code_lookup::MissingRule;
pub(super) use self::groups::{VmGroups, without_group_ends};
pub(super) use self::walk::walk;

/// How long a deferred walk waits for tables.
const TABLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a deferred walk waits for its process to be known.
const PROCESS_TIMEOUT: Duration = Duration::from_millis(500);

/// Once less than three quarters of the memory are free, each piece of a snapshot is truncated to the free memory divided by
/// this: the less memory is free, the less is kept of deep stacks.
const SNAPSHOTS_MIN: usize = 64;
/// The size up to which each piece of a snapshot is always kept.
const SNAPSHOT_BYTES_MIN: usize = 8 << 10;

/// A sample whose walk is deferred.
#[derive(Debug)]
pub(super) struct DeferredWalk {
    pub(super) sample: SampleRecord,
    pub(super) snapshot: Box<StackSnapshot>,
    /// The process as it was at the time of the sample, once known.
    pub(super) process: Option<Box<Process>>,
    /// The rule that the last attempt was missing.
    missing: Option<MissingRule>,
    since: Instant,
}

/// The snapshots and the samples that wait for a deferred walk.
#[derive(Debug)]
pub(super) struct DeferredWalks {
    /// The memory that all snapshots together may use.
    limit_bytes: usize,
    /// Snapshots whose samples have not been released yet, by thread and time.
    snapshots: HashMap<(u32, u64), (Box<StackSnapshot>, Instant)>,
    waiting: Vec<DeferredWalk>,
}

impl DeferredWalks {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, snapshots: HashMap::new(), waiting: Vec::new() }
    }

    /// The memory that is left for further snapshots.
    pub(super) fn free_bytes(&self) -> usize {
        let without_sample = self.snapshots.values().map(|(snapshot, _)| bytes(snapshot));
        let with_sample = self.waiting.iter().map(|deferred| bytes(&deferred.snapshot));
        self.limit_bytes.saturating_sub(without_sample.chain(with_sample).sum())
    }

    /// Keeps a snapshot until its sample is released, if it fits `free_bytes`, which is reduced by its size. Deep stacks are
    /// truncated, so that they leave room for others. A snapshot of the same thread and time adds its pieces to the first
    /// one.
    pub(super) fn add_snapshot(&mut self, mut snapshot: Box<StackSnapshot>, free_bytes: &mut usize) {
        let key = (snapshot.tid, snapshot.time_ns);
        let is_continuation = self.snapshots.contains_key(&key);
        let is_plenty = *free_bytes > self.limit_bytes / 4 * 3;
        if !is_continuation && !is_plenty {
            let bytes_max = (*free_bytes / SNAPSHOTS_MIN).max(SNAPSHOT_BYTES_MIN);
            snapshot.pieces.iter_mut().for_each(|piece| truncate(piece, bytes_max));
        }
        let Some(left) = free_bytes.checked_sub(bytes(&snapshot)) else { return };
        *free_bytes = left;
        match self.snapshots.entry(key) {
            Entry::Occupied(mut first) => first.get_mut().0.pieces.append(&mut snapshot.pieces),
            Entry::Vacant(vacant) => drop(vacant.insert((snapshot, Instant::now()))),
        }
    }

    /// Defers the walk of a sample that has a snapshot, if that can be walked, and returns any other sample. `process` is as of
    /// the sample's time.
    pub(super) fn defer(
        &mut self,
        sample: SampleRecord,
        process: Option<&Process>,
        can_walk: bool,
    ) -> Option<SampleRecord> {
        let found = sample.has_snapshot.then(|| self.snapshots.remove(&(sample.tid, sample.time_ns)));
        match found.flatten().filter(|_| can_walk) {
            Some((snapshot, since)) => {
                let mut deferred = DeferredWalk { sample, snapshot, process: None, missing: None, since };
                deferred.set_process(process);
                self.waiting.push(deferred);
                None
            }
            None => Some(sample),
        }
    }

    /// Forgets the snapshot of a sample, if it has one.
    pub(super) fn discard(&mut self, sample: &SampleRecord) {
        self.snapshots.remove(&(sample.tid, sample.time_ns));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sets the processes that became known after their samples were released.
    pub(super) fn set_processes<'a>(&mut self, process: impl Fn(Pid) -> Option<&'a Process>) {
        for deferred in self.waiting.iter_mut().filter(|deferred| deferred.process.is_none()) {
            deferred.set_process(process(Pid(deferred.sample.pid)));
        }
    }

    /// Takes the deferred walks that can proceed, and those that have expired. `has_rule` returns whether the rule at a file
    /// offset can be looked up.
    pub(super) fn take_ready(&mut self, has_rule: impl Fn(FileId, FileOffset) -> bool) -> Vec<DeferredWalk> {
        self.snapshots.retain(|_, (_, since)| since.elapsed() < TABLE_TIMEOUT);
        let is_ready = |deferred: &mut DeferredWalk| {
            deferred.has_expired()
                || deferred.process.is_some() && deferred.missing.is_none_or(|(file, at)| has_rule(file, at))
        };
        self.waiting.extract_if(.., is_ready).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<DeferredWalk> {
        std::mem::take(&mut self.waiting)
    }

    /// Defers a walk again, until a rule can be looked up.
    pub(super) fn requeue(&mut self, missing: MissingRule, deferred: DeferredWalk) {
        self.waiting.push(DeferredWalk { missing: Some(missing), ..deferred });
    }
}

fn bytes(snapshot: &StackSnapshot) -> usize {
    let pieces = snapshot.pieces.iter().map(|piece| size_of::<StackPiece>() + piece.bytes.len());
    size_of::<StackSnapshot>() + pieces.sum::<usize>()
}

fn truncate(piece: &mut StackPiece, bytes_max: usize) {
    if let Some(kept) = piece.bytes.get(..bytes_max) {
        piece.bytes = kept.into();
    }
}

impl DeferredWalk {
    /// Sets the process, unless its known mappings are newer than the sample, for example from after an exec.
    fn set_process(&mut self, process: Option<&Process>) {
        let known_then = process.filter(|process| process.known_since_ns() <= self.sample.time_ns);
        self.process = known_then.map(|process| Box::new(process.clone()));
    }

    /// The key of the process, if the process is known.
    pub(super) fn process_key(&self) -> Option<ProcessKey> {
        self.process.as_deref().map(ProcessKey::from)
    }

    pub(super) fn has_expired(&self) -> bool {
        let timeout = if self.process.is_some() { TABLE_TIMEOUT } else { PROCESS_TIMEOUT };
        self.since.elapsed() >= timeout
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_bpf::Outcome;
    use sidewinder_process::{ProcRoot, ProcessEvent, ProcessEventKind, Registry, RegistryLimits};

    use super::*;

    #[test]
    fn a_sample_is_deferred_only_with_its_own_snapshot() {
        let sample = SampleRecord {
            kind: sidewinder_bpf::SampleKind::Cpu,
            value: 1,
            time_ns: 2,
            stack: sidewinder_bpf::StackHash(0, 0),
            epoch: 1,
            pid: 1,
            tid: 1,
            cpu: 0,
            outcome: Outcome::UnknownProcess,
            in_kernel: false,
            has_snapshot: true,
            comm: [0; 16],
            context: None,
            labels: None,
            wait: None,
        };
        let snapshot = StackSnapshot { tid: 1, time_ns: 2, registers: [0; 17], pieces: Vec::new() };
        let mut deferred = DeferredWalks::new(1 << 20);
        let mut free_bytes = deferred.free_bytes();
        deferred.add_snapshot(Box::new(snapshot.clone()), &mut free_bytes);
        assert_eq!(free_bytes, deferred.free_bytes());
        deferred.add_snapshot(Box::new(StackSnapshot { tid: 3, ..snapshot.clone() }), &mut 10);
        assert_eq!(free_bytes, deferred.free_bytes(), "there was no room for it");
        assert!(
            deferred.defer(SampleRecord { tid: 2, ..sample.clone() }, None, true).is_some(),
            "another thread's"
        );
        assert!(deferred.defer(SampleRecord { has_snapshot: false, ..sample.clone() }, None, true).is_some());
        let discarded = SampleRecord { tid: 4, ..sample.clone() };
        deferred.add_snapshot(Box::new(StackSnapshot { tid: 4, ..snapshot }), &mut deferred.free_bytes());
        deferred.discard(&discarded);
        assert_eq!(free_bytes, deferred.free_bytes());
        assert!(deferred.defer(discarded, None, true).is_some());
        assert!(deferred.defer(sample, None, true).is_none());
        assert!(deferred.take_ready(|_, _| true).is_empty(), "its process is unknown");
        let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
        let kind = ProcessEventKind::Exec { comm: Box::default() };
        registry.apply(ProcessEvent { time_ns: 1, pid: Pid(1), kind });
        deferred.set_processes(|pid| registry.process(pid));
        let walk = deferred.take_ready(|_, _| false).pop().unwrap();
        deferred.requeue((FileId(1), FileOffset(2)), walk);
        assert!(deferred.take_ready(|_, _| false).is_empty(), "its table is not built yet");
        let is_missing_rule = |file, at| (file, at) == (FileId(1), FileOffset(2));
        assert_eq!(deferred.take_ready(is_missing_rule).len(), 1);
    }

    #[test]
    fn a_deep_stack_is_kept_whole_while_there_is_plenty_of_memory() {
        let mut deferred = DeferredWalks::new(1 << 20);
        let mut free_bytes = deferred.free_bytes();
        let pieces = vec![StackPiece { start: 0, bytes: vec![0; 128 << 10].into() }];
        let snapshot = StackSnapshot { tid: 1, time_ns: 2, registers: [0; 17], pieces };
        deferred.add_snapshot(Box::new(snapshot), &mut free_bytes);
        assert!(free_bytes < (1 << 20) - (128 << 10), "{free_bytes}");
    }

    #[test]
    fn deep_stacks_leave_room_for_others() {
        let mut deferred = DeferredWalks::new(1 << 20);
        let mut free_bytes = deferred.free_bytes();
        for tid in 0..64 {
            let pieces = vec![StackPiece { start: 0, bytes: vec![0; 128 << 10].into() }];
            let snapshot = StackSnapshot { tid, time_ns: 2, registers: [0; 17], pieces };
            deferred.add_snapshot(Box::new(snapshot), &mut free_bytes);
        }
        assert_eq!(free_bytes, deferred.free_bytes());
        assert!(free_bytes > 128 << 10, "{free_bytes}");
    }
}
