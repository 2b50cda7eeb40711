//! Walks that came too early for the kernel side, done here once what they lacked is there.
//!
//! A process may be over before the receiver hears that it began, and a file is mapped and executed before anybody could
//! have read it. Such a sample comes with a snapshot of its registers and of the top of its stack. It waits here until
//! the events of its process up to its time are known, and the tables of its files.

#[cfg(test)]
mod agreement;
mod walk;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{Frame, FrameKind, Outcome, Sample, Snapshot, StackPiece};
use sidewinder_process::{FileId, Pid, Process, ReadAt as _};
use sidewinder_unwind::CALL_BYTES;

use super::Sampler;
use super::feed::{Message, ProcessKey};
use walk::{Code, Lacked, Place};

/// How long a sample waits for tables.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a sample waits for its process to be known.
const PATIENCE_WITH_PROCESSES: Duration = Duration::from_millis(500);

/// Room for so many snapshots is left by those that came before; of each, that much is kept in any case.
const SNAPSHOTS_MIN: usize = 64;
const SNAPSHOT_BYTES_MIN: usize = 8 << 10;

/// A sample that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) sample: Sample,
    pub(crate) snapshot: Box<Snapshot>,
    /// The process as it was at the time of the sample, once that is known.
    pub(crate) process: Option<Box<Process>>,
    /// The place whose rule the last try lacked.
    lacks: Option<Lacked>,
    since: Instant,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Late {
    /// The most that snapshots take, with a sample that waits or without. Further samples stay as the kernel side left
    /// them.
    limit_bytes: usize,
    /// Snapshots whose samples have not been met, by thread and time.
    snapshots: HashMap<(u32, u64), (Box<Snapshot>, Instant)>,
    waiting: Vec<Waiting>,
}

impl Late {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, snapshots: HashMap::new(), waiting: Vec::new() }
    }

    /// Bytes that further snapshots may take.
    pub(crate) fn room(&self) -> usize {
        let without_sample = self.snapshots.values().map(|(held, _)| bytes(held));
        let with_sample = self.waiting.iter().map(|waiting| bytes(&waiting.snapshot));
        self.limit_bytes.saturating_sub(without_sample.chain(with_sample).sum())
    }

    /// Keeps a snapshot until its sample is met, if there is room for it. The less room there is, the less is kept of
    /// deep stacks: they must not take it from all others.
    pub(crate) fn take_snapshot(&mut self, mut snapshot: Box<Snapshot>, room: &mut usize) {
        let key = (snapshot.tid, snapshot.time_ns);
        let is_more = self.snapshots.contains_key(&key);
        if !is_more {
            let most = (*room / SNAPSHOTS_MIN).max(SNAPSHOT_BYTES_MIN);
            snapshot.pieces.iter_mut().for_each(|piece| cut(piece, most));
        }
        let Some(left) = room.checked_sub(bytes(&snapshot)) else { return };
        *room = left;
        match self.snapshots.entry(key) {
            Entry::Occupied(mut first) => first.get_mut().0.pieces.append(&mut snapshot.pieces),
            Entry::Vacant(none) => drop(none.insert((snapshot, Instant::now()))),
        }
    }

    /// Lets a sample wait that has a snapshot, or gives it back. Its process is as it was at the sample's time.
    pub(crate) fn hold(&mut self, sample: Sample, process: Option<&Process>) -> Option<Sample> {
        let found = sample.has_snapshot.then(|| self.snapshots.remove(&(sample.tid, sample.time_ns)));
        match found.flatten() {
            Some((snapshot, since)) => {
                let mut waiting = Waiting { sample, snapshot, process: None, lacks: None, since };
                waiting.learn(process);
                self.waiting.push(waiting);
                None
            }
            None => Some(sample),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes note of processes that were heard of later than of their samples.
    pub(crate) fn learn_processes<'a>(&mut self, process: impl Fn(Pid) -> Option<&'a Process>) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.process.is_none()) {
            waiting.learn(process(Pid(waiting.sample.pid)));
        }
    }

    /// Those of which something is new, for whoever gives back what has to wait on: a hundred may wait for one table
    /// while others come. `is_there` says of a rule whether it can be had.
    pub(crate) fn take_promising(&mut self, is_there: impl Fn(FileId, FileOffset) -> bool) -> Vec<Waiting> {
        self.snapshots.retain(|_, (_, since)| since.elapsed() < PATIENCE);
        let is_promising = |waiting: &mut Waiting| {
            waiting.has_lost_patience()
                || waiting.process.is_some() && waiting.lacks.is_none_or(|(file, at)| is_there(file, at))
        };
        self.waiting.extract_if(.., is_promising).collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Lets a sample wait for the rule at a place.
    pub(crate) fn wait_on(&mut self, waiting: Waiting, lacks: Lacked) {
        self.waiting.push(Waiting { lacks: Some(lacks), ..waiting });
    }
}

fn bytes(snapshot: &Snapshot) -> usize {
    let pieces = snapshot.pieces.iter().map(|piece| size_of::<StackPiece>() + piece.bytes.len());
    size_of::<Snapshot>() + pieces.sum::<usize>()
}

fn cut(piece: &mut StackPiece, most: usize) {
    if let Some(kept) = piece.bytes.get(..most) {
        piece.bytes = kept.into();
    }
}

impl Waiting {
    /// What a process maps after an exec says nothing of what it mapped before.
    fn learn(&mut self, process: Option<&Process>) {
        let at_time = process.filter(|process| process.known_since_ns() <= self.sample.time_ns);
        self.process = at_time.map(|process| Box::new(process.clone()));
    }

    pub(crate) fn has_lost_patience(&self) -> bool {
        let patience = if self.process.is_some() { PATIENCE } else { PATIENCE_WITH_PROCESSES };
        self.since.elapsed() >= patience
    }
}

impl Sampler<'_> {
    /// Walks what came too early, where everything is there by now.
    pub(super) fn walk_late(&mut self, messages: &mut Vec<Message>) {
        let (binaries, arena, tables) = (&self.binaries, &self.profiler.arena, &self.profiler.tables);
        for waiting in self.late.take_promising(|file, at| binaries.has_answer(file, at, arena, tables)) {
            match self.walk_again(&waiting, messages) {
                Ok((frames, outcome)) => {
                    let stack = self.stacks.intern(frames);
                    let sample = Sample { outcome, ..waiting.sample.clone() };
                    self.ask_for_what_lacked(&sample, Some(&stack));
                    self.corrections.note(&waiting.sample, outcome);
                    self.walked_late += 1;
                    self.hand_on(
                        waiting.process.as_deref().map(ProcessKey::of),
                        &sample,
                        Some(stack),
                        messages,
                    );
                }
                Err(Some(lacks)) if !waiting.has_lost_patience() => self.late.wait_on(waiting, lacks),
                Err(_) => self.give_up(&waiting, messages),
            }
        }
    }

    /// Hands a sample on as the kernel side left it.
    pub(super) fn give_up(&mut self, waiting: &Waiting, messages: &mut Vec<Message>) {
        let stack = self.stacks.get(waiting.sample.stack);
        self.ask_for_what_lacked(&waiting.sample, stack.as_deref());
        let process = waiting.process.as_deref().map(ProcessKey::of);
        self.hand_on(process, &waiting.sample, stack, messages);
    }

    /// The frames of a walk that came too early, the kernel's first, and how it ends.
    ///
    /// # Errors
    /// The place whose rule it has to wait for; `None`: nothing is known of its process.
    fn walk_again(
        &mut self,
        waiting: &Waiting,
        messages: &mut Vec<Message>,
    ) -> Result<(Vec<Frame>, Outcome), Option<Lacked>> {
        let process = waiting.process.as_deref().ok_or(None)?;
        let limit = self.options.frame_limit as usize;
        let mut code = CodeOf { process, met: HashSet::new(), sampler: self };
        let (frames, outcome) = walk::walk(&waiting.snapshot, limit, &mut code).map_err(Some)?;
        for file in code.met {
            self.tell_file(file, messages, None);
        }
        let first = self.stacks.get(waiting.sample.stack);
        let kernel = first.iter().flat_map(|stack| &stack.frames).copied();
        let kernel = kernel.take_while(|frame| frame.kind() == Some(FrameKind::Kernel));
        Ok((kernel.chain(frames).collect(), outcome))
    }

    /// What lies before an address of a process, which is asked of files alone: the process may be over.
    fn code_before(&mut self, process: &Process, address: Avma) -> Option<[u8; CALL_BYTES]> {
        let start = Avma(address.0.checked_sub(CALL_BYTES as u64)?);
        let mapping = process.mapping_set().at(start)?;
        let offset = mapping.file_offset_of(start)?;
        let file = self.files.identify(process, mapping)?.id;
        let mut bytes = [0; CALL_BYTES];
        self.files.get(file)?.opened()?.read_exact_at(&mut bytes, offset.0).ok()?;
        Some(bytes)
    }

    /// What is at an address of a process. A file that is new is read.
    fn place_of(&mut self, process: &Process, address: Avma) -> Place {
        let Some(mapping) = process.mapping_set().at(address) else { return Place::Unmapped };
        let Some(identified) = self.files.identify(process, mapping) else { return Place::Anonymous };
        let file = identified.id;
        let Some(offset) = mapping.file_offset_of(address) else { return Place::Unmapped };
        if !self.binaries.prepare(file, &self.files, process.pid(), &self.options) {
            return Place::File { file, offset, rule: Err(Outcome::NoRule) };
        }
        match self.binaries.rule_at(file, offset, &self.profiler.arena, &self.profiler.tables) {
            Some(rule) => Place::File { file, offset, rule },
            None => Place::NotYet { file, offset },
        }
    }
}

/// The code of a process, and the files of it that were met.
struct CodeOf<'a, 'sampler> {
    sampler: &'a mut Sampler<'sampler>,
    process: &'a Process,
    met: HashSet<FileId>,
}

impl Code for CodeOf<'_, '_> {
    fn place_of(&mut self, address: Avma) -> Place {
        let place = self.sampler.place_of(self.process, address);
        if let Place::File { file, .. } = place {
            self.met.insert(file);
        }
        place
    }

    fn before(&mut self, address: Avma) -> Option<[u8; CALL_BYTES]> {
        self.sampler.code_before(self.process, address)
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_process::{ProcRoot, ProcessEvent, ProcessEventKind, Registry, RegistryLimits};

    use super::*;

    #[test]
    fn a_sample_waits_for_its_own_snapshot_alone() {
        let sample = Sample {
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
        let snapshot = Snapshot { tid: 1, time_ns: 2, registers: [0; 17], pieces: Vec::new() };
        let mut late = Late::new(1 << 20);
        let mut room = late.room();
        late.take_snapshot(Box::new(snapshot.clone()), &mut room);
        assert_eq!(room, late.room());
        late.take_snapshot(Box::new(Snapshot { tid: 3, ..snapshot }), &mut 10);
        assert_eq!(room, late.room(), "there was no room for it");
        assert!(late.hold(Sample { tid: 2, ..sample.clone() }, None).is_some(), "another thread's");
        assert!(late.hold(Sample { has_snapshot: false, ..sample.clone() }, None).is_some());
        assert!(late.hold(sample, None).is_none());
        assert!(late.take_promising(|_, _| true).is_empty(), "nothing is known of its process");
        let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
        let kind = ProcessEventKind::Exec { comm: Box::default() };
        registry.apply(ProcessEvent { time_ns: 1, pid: Pid(1), kind });
        late.learn_processes(|pid| registry.process(pid));
        let waiting = late.take_promising(|_, _| false).pop().unwrap();
        late.wait_on(waiting, (FileId(1), FileOffset(2)));
        assert!(late.take_promising(|_, _| false).is_empty(), "its table is still to come");
        let place = |file, at| (file, at) == (FileId(1), FileOffset(2));
        assert_eq!(late.take_promising(place).len(), 1);
    }

    #[test]
    fn deep_stacks_leave_room_for_others() {
        let mut late = Late::new(1 << 20);
        let mut room = late.room();
        for tid in 0..64 {
            let pieces = vec![StackPiece { start: 0, bytes: vec![0; 128 << 10].into() }];
            let snapshot = Snapshot { tid, time_ns: 2, registers: [0; 17], pieces };
            late.take_snapshot(Box::new(snapshot), &mut room);
        }
        assert_eq!(room, late.room());
        assert!(room > 256 << 10, "{room}");
    }
}
