//! Deferred walks: those that lacked something in the kernel, done in user space once it is there.
//!
//! A process may exit before the receiver knows of it, and a file is mapped and executed before anybody can have read it. Such
//! a sample comes with a snapshot of its registers and of the top of its stack. It waits here until the process events up to
//! its time are applied, and the tables of its files are built.

#[cfg(test)]
mod agreement;
mod code;
mod walk;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use sidewinder_address::FileOffset;
use sidewinder_bpf::{SampleRecord, StackPiece, StackSnapshot};
use sidewinder_process::{FileId, Pid, Process, ProcessKey};

pub(super) use self::code::ProcessCode;
pub(super) use self::walk::{MissingRule, walk};

/// How long a deferred walk waits for tables.
const TABLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a deferred walk waits for its process to be known.
const PROCESS_TIMEOUT: Duration = Duration::from_millis(500);

/// Room is left for this many further snapshots: the less there is, the less is kept of deep stacks.
const SNAPSHOTS_MIN: usize = 64;
/// What is kept of each piece of a snapshot in any case.
const SNAPSHOT_BYTES_MIN: usize = 8 << 10;

/// A sample that waits for its walk.
#[derive(Debug)]
pub(super) struct DeferredWalk {
    pub(super) sample: SampleRecord,
    pub(super) snapshot: Box<StackSnapshot>,
    /// The process as it was at the time of the sample, once that is known.
    pub(super) process: Option<Box<Process>>,
    /// The rule that the last attempt lacked.
    missing: Option<MissingRule>,
    since: Instant,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct DeferredWalks {
    /// The most that all snapshots take.
    limit_bytes: usize,
    /// Snapshots whose samples have not been released yet, by thread and time.
    snapshots: HashMap<(u32, u64), (Box<StackSnapshot>, Instant)>,
    waiting: Vec<DeferredWalk>,
}

impl DeferredWalks {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, snapshots: HashMap::new(), waiting: Vec::new() }
    }

    /// Bytes that further snapshots may take.
    pub(super) fn free_bytes(&self) -> usize {
        let without_sample = self.snapshots.values().map(|(held, _)| bytes(held));
        let with_sample = self.waiting.iter().map(|deferred| bytes(&deferred.snapshot));
        self.limit_bytes.saturating_sub(without_sample.chain(with_sample).sum())
    }

    /// Keeps a snapshot until its sample is released, if there is room for it. Of deep stacks only a part is kept, lest they
    /// take the room of all others.
    pub(super) fn add_snapshot(&mut self, mut snapshot: Box<StackSnapshot>, room: &mut usize) {
        let key = (snapshot.tid, snapshot.time_ns);
        let is_more = self.snapshots.contains_key(&key);
        if !is_more {
            let most = (*room / SNAPSHOTS_MIN).max(SNAPSHOT_BYTES_MIN);
            snapshot.pieces.iter_mut().for_each(|piece| truncate(piece, most));
        }
        let Some(left) = room.checked_sub(bytes(&snapshot)) else { return };
        *room = left;
        match self.snapshots.entry(key) {
            Entry::Occupied(mut first) => first.get_mut().0.pieces.append(&mut snapshot.pieces),
            Entry::Vacant(none) => drop(none.insert((snapshot, Instant::now()))),
        }
    }

    /// Defers the walk of a sample that has a snapshot; returns any other sample. `process` is as it was at the sample's time.
    pub(super) fn defer(&mut self, sample: SampleRecord, process: Option<&Process>) -> Option<SampleRecord> {
        let found = sample.has_snapshot.then(|| self.snapshots.remove(&(sample.tid, sample.time_ns)));
        match found.flatten() {
            Some((snapshot, since)) => {
                let mut deferred = DeferredWalk { sample, snapshot, process: None, missing: None, since };
                deferred.set_process(process);
                self.waiting.push(deferred);
                None
            }
            None => Some(sample),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds the processes that have become known after the release of their samples.
    pub(super) fn set_processes<'a>(&mut self, process: impl Fn(Pid) -> Option<&'a Process>) {
        for deferred in self.waiting.iter_mut().filter(|deferred| deferred.process.is_none()) {
            deferred.set_process(process(Pid(deferred.sample.pid)));
        }
    }

    /// Takes the deferred walks that can go on, and those that have expired. `has_answer` says whether the rule at a place can
    /// be looked up.
    pub(super) fn take_ready(
        &mut self,
        has_answer: impl Fn(FileId, FileOffset) -> bool,
    ) -> Vec<DeferredWalk> {
        self.snapshots.retain(|_, (_, since)| since.elapsed() < TABLE_TIMEOUT);
        let is_ready = |deferred: &mut DeferredWalk| {
            deferred.has_expired()
                || deferred.process.is_some()
                    && deferred.missing.is_none_or(|(file, at)| has_answer(file, at))
        };
        self.waiting.extract_if(.., is_ready).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<DeferredWalk> {
        std::mem::take(&mut self.waiting)
    }

    /// Defers a walk further, until a rule can be looked up.
    pub(super) fn requeue(&mut self, missing: MissingRule, deferred: DeferredWalk) {
        self.waiting.push(DeferredWalk { missing: Some(missing), ..deferred });
    }
}

fn bytes(snapshot: &StackSnapshot) -> usize {
    let pieces = snapshot.pieces.iter().map(|piece| size_of::<StackPiece>() + piece.bytes.len());
    size_of::<StackSnapshot>() + pieces.sum::<usize>()
}

fn truncate(piece: &mut StackPiece, most: usize) {
    if let Some(kept) = piece.bytes.get(..most) {
        piece.bytes = kept.into();
    }
}

impl DeferredWalk {
    /// Sets the process, unless what is known of it is younger than the sample: from after an exec, for example.
    fn set_process(&mut self, process: Option<&Process>) {
        let at_time = process.filter(|process| process.known_since_ns() <= self.sample.time_ns);
        self.process = at_time.map(|process| Box::new(process.clone()));
    }

    /// The key of the process, if that is known.
    pub(super) fn process_key(&self) -> Option<ProcessKey> {
        self.process.as_deref().map(ProcessKey::from)
    }

    pub(super) fn has_expired(&self) -> bool {
        let patience = if self.process.is_some() { TABLE_TIMEOUT } else { PROCESS_TIMEOUT };
        self.since.elapsed() >= patience
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_bpf::Outcome;
    use sidewinder_process::{ProcRoot, ProcessEvent, ProcessEventKind, Registry, RegistryLimits};

    use super::*;

    #[test]
    fn a_sample_waits_for_its_own_snapshot_alone() {
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
        };
        let snapshot = StackSnapshot { tid: 1, time_ns: 2, registers: [0; 17], pieces: Vec::new() };
        let mut deferred = DeferredWalks::new(1 << 20);
        let mut room = deferred.free_bytes();
        deferred.add_snapshot(Box::new(snapshot.clone()), &mut room);
        assert_eq!(room, deferred.free_bytes());
        deferred.add_snapshot(Box::new(StackSnapshot { tid: 3, ..snapshot }), &mut 10);
        assert_eq!(room, deferred.free_bytes(), "there was no room for it");
        assert!(
            deferred.defer(SampleRecord { tid: 2, ..sample.clone() }, None).is_some(),
            "another thread's"
        );
        assert!(deferred.defer(SampleRecord { has_snapshot: false, ..sample.clone() }, None).is_some());
        assert!(deferred.defer(sample, None).is_none());
        assert!(deferred.take_ready(|_, _| true).is_empty(), "nothing is known of its process");
        let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
        let kind = ProcessEventKind::Exec { comm: Box::default() };
        registry.apply(ProcessEvent { time_ns: 1, pid: Pid(1), kind });
        deferred.set_processes(|pid| registry.process(pid));
        let walk = deferred.take_ready(|_, _| false).pop().unwrap();
        deferred.requeue((FileId(1), FileOffset(2)), walk);
        assert!(deferred.take_ready(|_, _| false).is_empty(), "its table is still to come");
        let place = |file, at| (file, at) == (FileId(1), FileOffset(2));
        assert_eq!(deferred.take_ready(place).len(), 1);
    }

    #[test]
    fn deep_stacks_leave_room_for_others() {
        let mut deferred = DeferredWalks::new(1 << 20);
        let mut room = deferred.free_bytes();
        for tid in 0..64 {
            let pieces = vec![StackPiece { start: 0, bytes: vec![0; 128 << 10].into() }];
            let snapshot = StackSnapshot { tid, time_ns: 2, registers: [0; 17], pieces };
            deferred.add_snapshot(Box::new(snapshot), &mut room);
        }
        assert_eq!(room, deferred.free_bytes());
        assert!(room > 256 << 10, "{room}");
    }
}
