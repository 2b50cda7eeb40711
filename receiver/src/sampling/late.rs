//! Walks that came too early for the kernel side, done here once what they lacked is there.
//!
//! A process may be over before the receiver hears that it began, and a file is mapped and executed before anybody could
//! have read it. Such a sample comes with a snapshot of its registers and of the top of its stack. It waits here until
//! the events of its process up to its time are known, and the tables of its files.

mod walk;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use sidewinder_address::Avma;
use sidewinder_bpf::{Frame, FrameKind, Outcome, Sample, Snapshot};
use sidewinder_process::{Pid, Process};

use super::Sampler;
use super::feed::{Message, ProcessKey};
use walk::Place;

/// How long a sample waits for tables.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a sample waits for its process to be known.
const PATIENCE_WITH_PROCESSES: Duration = Duration::from_millis(500);

/// A sample that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) sample: Sample,
    pub(crate) snapshot: Box<Snapshot>,
    /// The process as it was at the time of the sample, once that is known.
    pub(crate) process: Option<Box<Process>>,
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
    /// Whether a walk that had to wait may come further now.
    has_news: bool,
}

impl Late {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, snapshots: HashMap::new(), waiting: Vec::new(), has_news: false }
    }

    /// Bytes that further snapshots may take.
    pub(crate) fn room(&self) -> usize {
        let without_sample = self.snapshots.values().map(|(held, _)| bytes(held));
        let with_sample = self.waiting.iter().map(|waiting| bytes(&waiting.snapshot));
        self.limit_bytes.saturating_sub(without_sample.chain(with_sample).sum())
    }

    /// Keeps a snapshot until its sample is met, if there is room for it.
    pub(crate) fn take_snapshot(&mut self, snapshot: Box<Snapshot>, room: &mut usize) {
        if let Some(left) = room.checked_sub(bytes(&snapshot)) {
            *room = left;
            self.snapshots.insert((snapshot.tid, snapshot.time_ns), (snapshot, Instant::now()));
        }
    }

    /// Lets a sample wait that has a snapshot, or gives it back. Its process is as it was at the sample's time.
    pub(crate) fn hold(&mut self, sample: Sample, process: Option<&Process>) -> Option<Sample> {
        let found = sample.has_snapshot.then(|| self.snapshots.remove(&(sample.tid, sample.time_ns)));
        match found.flatten() {
            Some((snapshot, since)) => {
                let mut waiting = Waiting { sample, snapshot, process: None, since };
                self.has_news |= waiting.learn(process);
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
            self.has_news |= waiting.learn(process(Pid(waiting.sample.pid)));
        }
    }

    /// Takes note that tables have been loaded.
    pub(crate) fn learn_tables(&mut self) {
        self.has_news = true;
    }

    /// Those of which something is new, for whoever gives back what has to wait on.
    pub(crate) fn take_promising(&mut self) -> Vec<Waiting> {
        self.snapshots.retain(|_, (_, since)| since.elapsed() < PATIENCE);
        if std::mem::take(&mut self.has_news) {
            return self.take_all();
        }
        self.waiting.extract_if(.., |waiting| waiting.has_lost_patience()).collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    pub(crate) fn wait_on(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }
}

fn bytes(snapshot: &Snapshot) -> usize {
    size_of::<Snapshot>() + snapshot.stack.len()
}

impl Waiting {
    /// Whether this was news. What a process maps after an exec says nothing of what it mapped before.
    fn learn(&mut self, process: Option<&Process>) -> bool {
        let at_time = process.filter(|process| process.known_since_ns() <= self.sample.time_ns);
        let is_news = self.process.is_none() && at_time.is_some();
        if is_news {
            self.process = at_time.map(|process| Box::new(process.clone()));
        }
        is_news
    }

    pub(crate) fn has_lost_patience(&self) -> bool {
        let patience = if self.process.is_some() { PATIENCE } else { PATIENCE_WITH_PROCESSES };
        self.since.elapsed() >= patience
    }
}

impl Sampler<'_> {
    /// Walks what came too early, where everything is there by now.
    pub(super) fn walk_late(&mut self, messages: &mut Vec<Message>) {
        for waiting in self.late.take_promising() {
            match self.walk_again(&waiting, messages) {
                Some((frames, outcome)) => {
                    let stack = self.stacks.intern(frames);
                    let sample = Sample { outcome, ..waiting.sample };
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
                None if waiting.has_lost_patience() => self.give_up(&waiting, messages),
                None => self.late.wait_on(waiting),
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

    /// The frames of a walk that came too early, the kernel's first, and how it ends; `None`: it has to wait.
    fn walk_again(
        &mut self,
        waiting: &Waiting,
        messages: &mut Vec<Message>,
    ) -> Option<(Vec<Frame>, Outcome)> {
        let process = waiting.process.as_deref()?;
        let mut met = HashSet::new();
        let limit = self.options.frame_limit as usize;
        let (frames, outcome) = walk::walk(&waiting.snapshot, limit, |address| {
            let place = self.place_of(process, address);
            if let Place::File { file, .. } = place {
                met.insert(file);
            }
            place
        })?;
        for file in met {
            self.tell_file(file, messages, None);
        }
        let first = self.stacks.get(waiting.sample.stack);
        let kernel = first.iter().flat_map(|stack| &stack.frames).copied();
        let kernel = kernel.take_while(|frame| frame.kind() == Some(FrameKind::Kernel));
        Some((kernel.chain(frames).collect(), outcome))
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
            None => Place::NotYet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_waits_for_its_own_snapshot_alone() {
        let sample = Sample {
            kind: sidewinder_bpf::SampleKind::Cpu,
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
        };
        let snapshot = Snapshot { tid: 1, time_ns: 2, registers: [0; 17], start: 0, stack: Box::default() };
        let mut late = Late::new(1 << 20);
        let mut room = late.room();
        late.take_snapshot(Box::new(snapshot.clone()), &mut room);
        assert_eq!(room, late.room());
        late.take_snapshot(Box::new(Snapshot { tid: 3, ..snapshot }), &mut 10);
        assert_eq!(room, late.room(), "there was no room for it");
        assert!(late.hold(Sample { tid: 2, ..sample }, None).is_some(), "another thread's");
        assert!(late.hold(Sample { has_snapshot: false, ..sample }, None).is_some());
        assert!(late.hold(sample, None).is_none());
        assert!(late.take_promising().is_empty(), "nothing is known of its process");
        late.learn_tables();
        assert_eq!(late.take_promising().len(), 1);
    }
}
