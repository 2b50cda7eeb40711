//! Sampling: from the rings of the kernel to events with stacks, and from changes of processes back to its maps.

mod binaries;
pub(crate) mod debug_file;
pub(crate) mod feed;
mod late;
#[cfg(test)]
mod live_tests;
pub(crate) mod scope;
mod stacks;
pub(crate) mod table_builder;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{
    Body, Frame, FrameKind, Interrupts, LoadError, Options, Outcome, Packing, Profiler, Record, Sample,
    SampleKind, ScopeMode, SideBandEvent, SideBandKind, Storage, Walk, monotonic_ns,
};
use sidewinder_config::{BinaryMatch, UnwindMode, UnwindOverride};
use sidewinder_process::{
    BuildId, Change, DeviceId, EventQueue, FileId, FileTable, FileTableLimits, MappedIdentity, Pid, ProcRoot,
    Process, ProcessEvent, ProcessEventKind, ProcfsError, Registry, RegistryLimits, Tid,
};
use sidewinder_unwind::validate::Trust;
use thiserror::Error;
use tracing::{debug, warn};

use binaries::Binaries;
use feed::{Event, FileFacts, Message, ProcessKey};
use late::{Late, Place, Waiting};
use scope::Scope;
use stacks::Stacks;
use table_builder::TableBuilder;

/// A CPU may be this late to write an event that it has stamped.
const EVENT_DELAY_NS: u64 = 1_000_000;
/// Side-band events that wait to be put in order.
const EVENTS_WAITING_MAX: usize = 65_536;
/// Processes in scope at once, where the scope is made of processes.
const SCOPE_MAX: u32 = 8192;
/// A process that isn't understood is read again at most this often.
const HEAL_INTERVAL: Duration = Duration::from_millis(500);
/// How long an epoch lasts, in which each stack is sent once.
const EPOCH: Duration = Duration::from_secs(30);
/// What the age of tables is measured in: finer than the time in which a program turns to other code.
const AGE: Duration = Duration::from_millis(100);
/// An epoch ends early when its stacks take this much of our memory.
const STACKS_BYTES_MAX: usize = 6 << 20;
/// How long the end of sampling waits for tables that late walks need.
const LATE_PATIENCE: Duration = Duration::from_secs(2);
/// Samples may be this many polls ahead of their stacks.
const SAMPLE_PATIENCE: u8 = 3;
/// How long sampling waits, at its start, for the tables of what already runs.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// After being woken we let this pass before we look again, so that a storm of execs costs little.
const BREATH: Duration = Duration::from_millis(4);

/// What to sample, and how.
#[derive(Clone, Debug)]
pub(crate) struct SamplingOptions {
    pub(crate) scope: Scope,
    pub(crate) samples_per_second: u32,
    /// Where not given, the best way that the kernel has.
    pub(crate) walk: Option<Walk>,
    pub(crate) frame_limit: u32,
    pub(crate) kernel_frames: bool,
    pub(crate) unwind_mode: UnwindMode,
    pub(crate) unwind_overrides: Vec<UnwindOverride>,
    pub(crate) unwind_trust: Trust,
    /// For unwind tables and mappings.
    pub(crate) tables_bytes: u64,
}

/// Why there is no sampling.
#[derive(Debug, Error)]
pub(crate) enum SamplingError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("can't read the processes that already run")]
    Scan(#[source] ProcfsError),
    #[error("no process {0}: it has ended, or is not in this PID namespace")]
    NoProcess(u32),
    #[error(
        "{wanted} samples a second are more than this machine allows: kernel.perf_event_max_sample_rate is {allowed}"
    )]
    Rate { wanted: u32, allowed: u32 },
    #[error("can't start the thread that builds unwind tables")]
    Thread(#[source] std::io::Error),
    #[error("a budget of {0} bytes has no room for any unwind table")]
    Budget(u64),
}

/// How all interrupts since the start ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) interrupts: Interrupts,
    /// Events that were handed on.
    pub(crate) events: u64,
    /// Of these, without their stack.
    pub(crate) bodies_missing: u64,
    /// Of these, with a stack that was walked after the interrupt. Their outcomes are those of the late walks.
    pub(crate) walked_late: u64,
}

/// See the [module](self).
pub(crate) struct Sampler<'obj> {
    profiler: Profiler<'obj>,
    options: SamplingOptions,
    queue: EventQueue,
    registry: Registry,
    files: FileTable,
    binaries: Binaries,
    stacks: Stacks,
    /// Samples whose stacks have not arrived.
    early: Vec<(Sample, u8)>,
    /// Samples whose walks came too early.
    late: Late,
    /// Interrupts by the outcome of the first walk and of the late one.
    walked_late: BTreeMap<(Outcome, Outcome), u64>,
    /// Processes whose mappings are published, but were learnt before their last exec.
    outdated: HashSet<Pid>,
    /// Processes that have ended, for the samples that are still to come.
    departed: HashMap<u32, (ProcessKey, Instant)>,
    introduced: HashMap<u32, ProcessKey>,
    /// Files that were told of, and whether with their headers.
    told_files: HashMap<FileId, bool>,
    /// What there was to say before anybody listened.
    unsaid: Vec<Message>,
    healed_at: HashMap<u32, Instant>,
    epoch_began: Instant,
    aged_at: Instant,
    swept_at: Instant,
    events: u64,
    bodies_missing: u64,
}

impl<'obj> Sampler<'obj> {
    /// Loads the programs and learns what already runs. Sampling starts with [`start`](Self::start).
    pub(crate) fn new(storage: &'obj mut Storage, options: SamplingOptions) -> Result<Self, SamplingError> {
        check_rate(options.samples_per_second)?;
        let mut profiler = Profiler::load(
            storage,
            &Options {
                scope: match options.scope {
                    Scope::Node => ScopeMode::Node,
                    Scope::Processes(_) => ScopeMode::Processes { max: SCOPE_MAX },
                },
                walk: options.walk,
                frame_limit: options.frame_limit,
                kernel_frames: options.kernel_frames,
                arena_bytes: options.tables_bytes,
                ..Options::default()
            },
        )?;
        warn_of_walk(profiler.walk(), options.frame_limit);
        if let Err(error) = profiler.open_side_band() {
            warn!(%error, "degraded: new mappings will be learnt only when a sample meets them");
        }
        let builder = TableBuilder::start(options.unwind_trust).map_err(SamplingError::Thread)?;
        let binaries = Binaries::new(builder, &mut profiler.arena, &mut profiler.tables)
            .ok_or(SamplingError::Budget(options.tables_bytes))?;
        let mut sampler = Self {
            profiler,
            queue: EventQueue::new(EVENTS_WAITING_MAX),
            registry: Registry::new(ProcRoot::default(), RegistryLimits::default()),
            files: FileTable::new(ProcRoot::default(), FileTableLimits::default()),
            binaries,
            stacks: Stacks::default(),
            early: Vec::new(),
            late: Late::default(),
            walked_late: BTreeMap::new(),
            outdated: HashSet::new(),
            departed: HashMap::new(),
            introduced: HashMap::new(),
            told_files: HashMap::new(),
            unsaid: Vec::new(),
            healed_at: HashMap::new(),
            epoch_began: Instant::now(),
            aged_at: Instant::now(),
            swept_at: Instant::now(),
            events: 0,
            bodies_missing: 0,
            options,
        };
        sampler.learn_what_runs()?;
        Ok(sampler)
    }

    /// Starts to sample.
    pub(crate) fn start(&mut self) -> Result<(), SamplingError> {
        self.profiler.start(self.options.samples_per_second).map_err(LoadError::from)?;
        Ok(())
    }

    /// Waits for something to happen, at the longest for `timeout`, and hands on what did.
    pub(crate) fn poll(&mut self, timeout: Duration, messages: &mut Vec<Message>) {
        messages.append(&mut self.unsaid);
        let is_busy = self.binaries.in_progress() > 0
            || self.binaries.are_missed()
            || !self.queue.is_empty()
            || !self.outdated.is_empty()
            || !self.late.is_empty();
        let began = Instant::now();
        self.profiler.wait(if is_busy { timeout.min(BREATH) } else { timeout });
        if let Some(rest) = BREATH.min(timeout).checked_sub(began.elapsed()) {
            std::thread::sleep(rest);
        }
        let mut records = Vec::new();
        let watermark_ns = monotonic_ns().saturating_sub(EVENT_DELAY_NS);
        self.profiler.rings().drain(&mut records);
        let samples = self.take_records(records, messages);
        self.follow_processes(watermark_ns, messages);
        for (sample, stack) in samples {
            self.hand_on(&sample, stack, messages);
        }
        self.walk_late(messages);
        self.keep_house();
    }

    /// Ends sampling and hands on what is still in the rings.
    pub(crate) fn stop(&mut self, messages: &mut Vec<Message>) {
        self.profiler.stop();
        for _ in 0..=SAMPLE_PATIENCE {
            self.poll(Duration::ZERO, messages);
        }
        let deadline = Instant::now() + LATE_PATIENCE;
        while !self.late.is_empty() && Instant::now() < deadline {
            self.poll(BREATH, messages);
        }
        for waiting in self.late.take_all() {
            let stack = self.stacks.get(waiting.sample.stack);
            self.hand_on(&waiting.sample, stack, messages);
        }
    }

    /// How all interrupts since the start ended.
    pub(crate) fn tally(&self) -> Tally {
        let mut interrupts = self.profiler.interrupts();
        for ((first, late), count) in &self.walked_late {
            for (outcome, total) in &mut interrupts.outcomes {
                if outcome == first {
                    *total = total.saturating_sub(*count);
                }
                if outcome == late {
                    *total += count;
                }
            }
        }
        Tally {
            interrupts,
            events: self.events,
            bodies_missing: self.bodies_missing,
            walked_late: self.walked_late.values().sum(),
        }
    }

    /// The profiler, for what it counts.
    pub(crate) fn profiler(&self) -> &Profiler<'obj> {
        &self.profiler
    }

    /// Files read again because a walk missed an evicted table.
    pub(crate) fn table_reloads(&self) -> u64 {
        self.binaries.reloads()
    }

    /// Whether every process that was to be sampled has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.options.scope.is_empty()
    }

    fn learn_what_runs(&mut self) -> Result<(), SamplingError> {
        let known_ns = monotonic_ns();
        if let Scope::Processes(pids) = self.options.scope.clone() {
            for pid in pids {
                self.registry.scan(Pid(pid)).map_err(|error| match error {
                    ProcfsError::Gone { .. } => SamplingError::NoProcess(pid),
                    other => SamplingError::Scan(other),
                })?;
                let start_ticks = self.registry.process(Pid(pid)).and_then(Process::start_ticks).unwrap_or(0);
                let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
                self.profiler.add_to_scope(pid, start_ticks * tick_ns)?;
            }
        } else {
            self.registry.scan_all().map_err(SamplingError::Scan)?;
        }
        self.publish_changes(known_ns);
        let deadline = Instant::now() + START_PATIENCE;
        let mut messages = Vec::new();
        while self.binaries.in_progress() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            self.load_tables(known_ns, &mut messages);
        }
        self.unsaid = messages;
        Ok(())
    }

    fn follow_processes(&mut self, watermark_ns: u64, messages: &mut Vec<Message>) {
        let mut news = Vec::new();
        if let Some(side_band) = self.profiler.side_band() {
            side_band.drain(&mut news);
        }
        for event in news {
            self.queue.push(process_event(event));
        }
        // A fork puts its child into scope, so the scope is asked in order of time.
        while let Some(event) = self.queue.pop(watermark_ns) {
            self.late.learn_processes(event.time_ns, |pid| self.registry.process(pid));
            if let ProcessEventKind::Exit { tid } = event.kind
                && tid.leads(event.pid)
                && let Some(process) = self.registry.process(event.pid)
            {
                self.late.learn_ending(process);
            }
            if self.options.scope.admits(&event) {
                self.registry.apply(event);
            }
        }
        self.late.learn_processes(watermark_ns, |pid| self.registry.process(pid));
        self.registry.heal();
        self.publish_changes(watermark_ns);
        self.load_tables(watermark_ns, messages);
        let processes = &self.profiler.processes;
        self.outdated.retain(|pid| {
            processes.confirm(pid.0, watermark_ns);
            processes.is_outdated(pid.0)
        });
    }

    fn publish_changes(&mut self, known_ns: u64) {
        for change in self.registry.take_changes() {
            match change {
                Change::MappingsChanged(pid) => self.publish(pid, known_ns),
                Change::Exited(process) => self.forget(&process),
            }
        }
    }

    fn publish(&mut self, pid: Pid, known_ns: u64) {
        let Some(process) = self.registry.process(pid).cloned() else { return };
        let mut ranges = Vec::new();
        for mapping in process.mappings() {
            let identified = self.files.identify(&process, mapping);
            if let Some(identified) = &identified {
                self.use_file(identified.id, pid);
            }
            self.binaries.push_ranges(&mut ranges, identified.map(|identified| identified.id), mapping);
        }
        let (arena, tables) = (&mut self.profiler.arena, &mut self.profiler.tables);
        loop {
            match self.profiler.processes.publish(arena, pid.0, &ranges, known_ns) {
                Ok(()) => break,
                Err(sidewinder_bpf::ProcessesError::Mappings { .. })
                    if tables.evict_oldest(arena).is_some() => {}
                Err(error) => {
                    debug!(%error, "the stacks of this process will be incomplete");
                    return;
                }
            }
        }
        if self.profiler.processes.is_outdated(pid.0) {
            self.outdated.insert(pid);
        }
    }

    fn forget(&mut self, process: &Process) {
        let pid = process.pid();
        let key = ProcessKey { pid: pid.0, instance: process.instance() };
        self.departed.insert(pid.0, (key, Instant::now()));
        self.outdated.remove(&pid);
        self.healed_at.remove(&pid.0);
        // The number may belong to a new process by now.
        if self.registry.process(pid).is_none() {
            self.profiler.processes.remove(&mut self.profiler.arena, pid.0);
            self.binaries.unused_by(pid);
            self.options.scope.exited(pid.0);
        }
    }

    fn load_tables(&mut self, known_ns: u64, messages: &mut Vec<Message>) {
        let deliveries = self.binaries.deliveries();
        let ready = self.binaries.load_ready(&mut self.profiler.arena, &mut self.profiler.tables);
        if self.binaries.deliveries() != deliveries {
            self.late.learn_tables();
        }
        for ready in ready {
            if let Some(error) = &ready.failure {
                let path = self.files.get(ready.file).map_or(&[][..], |entry| entry.path());
                debug!(path = %path.escape_ascii(), error = error as &dyn std::error::Error, "no unwind table");
            }
            self.tell_file(ready.file, messages, Some(&ready.loads));
            for user in ready.users {
                // What is known of it is as old as before.
                let known_ns = self.profiler.processes.known_ns(user.0).unwrap_or(known_ns);
                self.publish(user, known_ns);
            }
        }
    }

    /// Tells of a file once when it is met, and once more when its headers have been read.
    fn tell_file(
        &mut self,
        id: FileId,
        messages: &mut Vec<Message>,
        loads: Option<&[sidewinder_address::LoadSegment]>,
    ) {
        if self.told_files.get(&id).is_some_and(|is_whole| *is_whole || loads.is_none()) {
            return;
        }
        let Some(entry) = self.files.get(id) else { return };
        let facts = FileFacts {
            path: String::from_utf8_lossy(entry.path()).into_owned(),
            build_ids: entry.build_ids().clone(),
            hash: entry.hash(),
            loads: loads.unwrap_or_default().to_vec(),
            content: entry.opened().cloned(),
        };
        self.told_files.insert(id, loads.is_some());
        messages.push(Message::File(id, Arc::new(facts)));
    }

    /// Takes stacks up, and returns the samples whose stacks are there or won't come. Those of walks that came too early
    /// stay behind.
    fn take_records(
        &mut self,
        records: Vec<Record>,
        messages: &mut Vec<Message>,
    ) -> Vec<(Sample, Option<Arc<feed::Stack>>)> {
        let mut samples = std::mem::take(&mut self.early);
        for record in records {
            match record {
                Record::Body(body) => self.take_body(body, messages),
                Record::Snapshot(snapshot) => self.late.take_snapshot(snapshot),
                Record::Sample(sample) => samples.push((sample, 0)),
            }
        }
        let mut ready = Vec::new();
        for (sample, polls) in samples {
            match self.stacks.get(sample.stack) {
                None if polls < SAMPLE_PATIENCE => self.early.push((sample, polls + 1)),
                stack => {
                    if let Some(sample) = self.late.hold(sample) {
                        self.ask_for_what_lacked(&sample, stack.as_deref());
                        ready.push((sample, stack));
                    }
                }
            }
        }
        ready
    }

    fn take_body(&mut self, body: Body, messages: &mut Vec<Message>) {
        if let sidewinder_bpf::Entries::Frames(frames) = &body.entries {
            for frame in frames {
                if let Some(FrameKind::Native { file }) = frame.kind() {
                    self.tell_file(FileId(file), messages, None);
                }
            }
        }
        self.stacks.insert(body);
    }

    /// Sees to it that the next walk finds what this one did not.
    fn ask_for_what_lacked(&mut self, sample: &Sample, stack: Option<&feed::Stack>) {
        match sample.outcome {
            Outcome::UnknownProcess | Outcome::NoMapping => self.heal(sample.pid),
            Outcome::NoTable => {
                if let Some((file, offset)) = stack.and_then(|stack| outermost_place(&stack.frames)) {
                    self.binaries.missed(file, offset);
                }
            }
            _ => {}
        }
    }

    /// Walks what came too early, where everything is there by now.
    fn walk_late(&mut self, messages: &mut Vec<Message>) {
        for waiting in self.late.take_promising() {
            match self.walk_again(&waiting, messages) {
                Some((frames, outcome)) => {
                    let stack = self.stacks.intern(frames);
                    self.ask_for_what_lacked(&Sample { outcome, ..waiting.sample }, Some(&stack));
                    if waiting.sample.kind == SampleKind::Cpu {
                        *self.walked_late.entry((waiting.sample.outcome, outcome)).or_default() += 1;
                    }
                    self.hand_on(&Sample { outcome, ..waiting.sample }, Some(stack), messages);
                }
                None if waiting.has_lost_patience() => {
                    let stack = self.stacks.get(waiting.sample.stack);
                    self.ask_for_what_lacked(&waiting.sample, stack.as_deref());
                    self.hand_on(&waiting.sample, stack, messages);
                }
                None => self.late.wait_on(waiting),
            }
        }
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
        let (frames, outcome) = late::walk(&waiting.snapshot, limit, |address| {
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
        if !self.use_file(file, process.pid()) {
            return Place::File { file, offset, rule: Err(Outcome::NoRule) };
        }
        match self.binaries.rule_at(file, offset, &self.profiler.arena, &self.profiler.tables) {
            Some(rule) => Place::File { file, offset, rule },
            None => Place::NotYet,
        }
    }

    /// Sees to it that the table of a file is built. False: its content can't be read.
    fn use_file(&mut self, file: FileId, user: Pid) -> bool {
        let Some(entry) = self.files.get(file) else { return false };
        let Some(content) = entry.opened() else { return false };
        let build_id = entry.build_ids().gnu.as_ref().map(BuildId::as_bytes);
        let packing = packing(&self.options, entry.path(), build_id);
        self.binaries.use_by(file, content, entry.path(), packing, user);
        true
    }

    fn hand_on(&mut self, sample: &Sample, stack: Option<Arc<feed::Stack>>, messages: &mut Vec<Message>) {
        let process = self.introduce(sample.pid, messages);
        self.events += 1;
        self.bodies_missing += u64::from(stack.is_none());
        messages.push(Message::Event(Event {
            kind: sample.kind,
            time_ns: sample.time_ns,
            process,
            tid: sample.tid,
            cpu: sample.cpu,
            comm: sample.comm,
            outcome: sample.outcome,
            stack,
        }));
    }

    /// Which process a number means, and, at its first event, what is known of it.
    fn introduce(&mut self, pid: u32, messages: &mut Vec<Message>) -> ProcessKey {
        let key = match self.registry.process(Pid(pid)) {
            Some(process) => ProcessKey { pid, instance: process.instance() },
            None => self.departed.get(&pid).map_or(ProcessKey { pid, instance: 0 }, |(key, _)| *key),
        };
        if self.introduced.insert(pid, key) != Some(key) {
            let description = self.registry.describe(Pid(pid)).unwrap_or_default();
            messages.push(Message::Process(key, description));
        }
        key
    }

    fn heal(&mut self, pid: u32) {
        let is_due = self.healed_at.get(&pid).is_none_or(|at| at.elapsed() >= HEAL_INTERVAL);
        if is_due {
            self.healed_at.insert(pid, Instant::now());
            self.registry.mark_stale(Pid(pid));
        }
    }

    fn keep_house(&mut self) {
        self.profiler.arena.reclaim();
        if self.epoch_began.elapsed() >= EPOCH || self.stacks.bytes() > STACKS_BYTES_MAX {
            self.epoch_began = Instant::now();
            self.stacks.begin_epoch(self.profiler.next_epoch());
        }
        if self.aged_at.elapsed() >= AGE {
            self.aged_at = Instant::now();
            self.profiler.tables.tick();
        }
        if self.swept_at.elapsed() >= Duration::from_secs(1) {
            self.swept_at = Instant::now();
            self.departed.retain(|_, (_, at)| at.elapsed() < Duration::from_secs(10));
            let (registry, departed) = (&self.registry, &self.departed);
            self.introduced
                .retain(|pid, _| registry.process(Pid(*pid)).is_some() || departed.contains_key(pid));
            self.healed_at.retain(|_, at| at.elapsed() < 4 * HEAL_INTERVAL);
        }
    }
}

/// The place that a walk which missed a table had come to.
fn outermost_place(frames: &[Frame]) -> Option<(FileId, FileOffset)> {
    let frame = frames.last()?;
    match frame.kind()? {
        FrameKind::Native { file } => {
            Some((FileId(file), FileOffset(frame.address() - u64::from(frame.is_return_address()))))
        }
        FrameKind::Kernel | FrameKind::Anonymous => None,
    }
}

/// The form of tables for a way of walking.
pub(crate) fn packing_of(mode: UnwindMode) -> Packing {
    match mode {
        UnwindMode::Auto => Packing::Auto,
        UnwindMode::FramePointers => Packing::FramePointers,
        UnwindMode::Tables => Packing::Tables,
    }
}

/// How a binary is to be walked: as the first override says that names it, else as all.
fn packing(options: &SamplingOptions, path: &[u8], build_id: Option<&[u8]>) -> Packing {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let named = options.unwind_overrides.iter().find(|rule| match &rule.binary {
        BinaryMatch::Name(wanted) => wanted.as_bytes() == name,
        BinaryMatch::Path(wanted) => wanted.as_os_str().as_encoded_bytes() == path,
        BinaryMatch::BuildId(wanted) => Some(wanted.as_bytes()) == build_id,
    });
    packing_of(named.map_or(options.unwind_mode, |rule| rule.mode))
}

fn process_event(event: SideBandEvent) -> ProcessEvent {
    let kind = match event.kind {
        SideBandKind::Fork { parent_pid } => {
            ProcessEventKind::Fork { parent: Pid(parent_pid), is_thread: parent_pid == event.pid }
        }
        SideBandKind::Exec { comm } => ProcessEventKind::Exec { comm: comm.into() },
        SideBandKind::Exit => ProcessEventKind::Exit { tid: Tid(event.tid) },
        SideBandKind::Map { start, bytes, file_offset, device: (major, minor), inode, path, .. } => {
            ProcessEventKind::Map {
                range: start..Avma(start.0.saturating_add(bytes)),
                file_offset,
                file: (inode != 0)
                    .then_some(MappedIdentity::Inode { device: DeviceId { major, minor }, inode }),
                path: path.into(),
                executable: true,
            }
        }
        SideBandKind::Lost { count } => ProcessEventKind::Lost { count },
    };
    ProcessEvent { time_ns: event.time_ns, pid: Pid(event.pid), kind }
}

/// What stacks lose where programs can't loop.
fn warn_of_walk(walk: Walk, frame_limit: u32) {
    if walk == Walk::Loop {
        return;
    }
    if frame_limit > walk.frames_max() {
        warn!(
            "degraded: this kernel's programs can't loop, so stacks are cut after {} frames instead of {frame_limit}; \
             Linux 5.17 or later has bpf_loop",
            walk.frames_max(),
        );
    }
    warn!(
        "degraded: pages of stacks that aren't in memory are counted as bad_address, not as page_absent; \
         Linux 5.17 or later has bpf_find_vma"
    );
}

/// The kernel would answer a rate above its limit with "invalid argument".
fn check_rate(wanted: u32) -> Result<(), SamplingError> {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate");
    match limit.ok().and_then(|text| text.trim().parse().ok()) {
        Some(allowed) if wanted > allowed => Err(SamplingError::Rate { wanted, allowed }),
        _ => Ok(()),
    }
}
