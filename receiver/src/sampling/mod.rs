//! Sampling: from the rings of the kernel to events with stacks, and from changes of processes back to its maps.

mod binaries;
pub(crate) mod build;
mod contexts;
pub(crate) mod debug_file;
mod environments;
pub(crate) mod feed;
mod follow;
mod labels;
mod late;
#[cfg(test)]
mod live_tests;
pub(crate) mod options;
mod poll_interval;
mod reader;
mod runtimes;
mod scans;
pub(crate) mod scope;
mod scoping;
mod segments;
mod stacks;
mod stagger;
mod stale_mappings;
mod table_builder;
mod tally;
mod variables;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sidewinder_address::FileOffset;
use sidewinder_bpf::{
    Audience, Body, Frame, FrameKind, LoadError, Newcomer, Opener, Options, Outcome, Profiler, Record,
    Sample, Storage, Walk, monotonic_ns,
};
use sidewinder_otlp::builder::Link;
use sidewinder_process::{
    EventQueue, FileId, FileTable, FileTableLimits, NoPod, Pid, ProcRoot, Process, ProcfsError, Registry,
    RegistryCounters, RegistryLimits,
};
use thiserror::Error;
use tracing::warn;

use binaries::Binaries;
use contexts::Contexts;
use environments::Environments;
use feed::{Event, FileFacts, Labels, Message, ProcessKey, Stack};
use labels::Allowed;
use late::Late;
pub(crate) use options::SamplingOptions;
use poll_interval::PollInterval;
use runtimes::Runtimes;
use scans::Scan;
use scoping::Pod;
use stacks::Stacks;
use stagger::Stagger;
use stale_mappings::StaleMappings;
use table_builder::TableBuilder;
use tally::Corrections;
pub(crate) use tally::Tally;
use variables::Variables;

use crate::every::Every;
use crate::foreign::{ForeignReader, ReadCounts};

/// A CPU may be this late to write an event that it has stamped.
const EVENT_DELAY_NS: u64 = 1_000_000;
/// Side-band events that wait to be put in order.
const EVENTS_WAITING_MAX: usize = 65_536;
/// How long an epoch lasts, in which each stack is sent once.
const EPOCH: Duration = Duration::from_secs(30);
/// What the age of tables is measured in: finer than the time in which a program turns to other code.
const AGE: Duration = Duration::from_millis(100);
/// How often it is looked what is of no more use.
const SWEEP: Duration = Duration::from_secs(1);
/// How long the end of sampling waits for tables that late walks need.
const LATE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a process is remembered that has ended: samples of it may come in later than its end.
const DEPARTED_REMEMBERED: Duration = Duration::from_secs(2);
/// How long a file stays open that no process maps any more: one that is run again and again is read once, and a file
/// system that is to be unmounted is not held for long. Much longer than a walk, and than samples take to come in.
const FILES_REMEMBERED: Duration = Duration::from_secs(30);
/// Samples may be this many polls ahead of their stacks.
const SAMPLE_PATIENCE: u32 = 3;

/// A sample whose time has not come: what happened to processes up to then isn't all known.
#[derive(Debug)]
struct Ahead {
    sample: Sample,
    /// Since it was read.
    polls: u32,
}

/// Why there is no sampling.
#[derive(Debug, Error)]
pub(crate) enum SamplingError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("can't read the processes that already run")]
    Scan(#[source] ProcfsError),
    #[error(transparent)]
    NoPod(#[from] NoPod),
    #[error("no process {0}: it has ended, or is not in this PID namespace")]
    NoProcess(u32),
    #[error(
        "{wanted} samples a second are more than this machine allows: kernel.perf_event_max_sample_rate is {allowed}"
    )]
    Rate { wanted: u32, allowed: u32 },
    #[error("can't start a thread")]
    Thread(#[source] std::io::Error),
    #[error("a budget of {0} bytes has no room for any unwind table")]
    Budget(u64),
}

/// See the [module](self).
pub(crate) struct Sampler<'obj> {
    profiler: Profiler<'obj>,
    /// Does what takes privileges.
    opener: Opener,
    /// Ours, where the scope is within it and cgroups tell it.
    pod: Option<Pod>,
    /// Containers of which nothing but a process is known yet, by their cgroups, and since when.
    newcomers: HashMap<u64, (Newcomer, Instant)>,
    options: SamplingOptions,
    poll_interval: PollInterval,
    stagger: Stagger,
    queue: EventQueue,
    registry: Registry,
    files: FileTable,
    binaries: Binaries,
    stacks: Stacks,
    /// Samples whose time has not come, by time.
    ahead: VecDeque<Ahead>,
    /// Samples whose walks came too early.
    late: Late,
    walked_late: u64,
    stale_mappings: StaleMappings,
    corrections: Corrections,
    /// Processes whose mappings are published, but were learnt before their last exec.
    outdated: HashSet<Pid>,
    /// Processes that have ended, for the samples that are still to come.
    departed: HashMap<Pid, (Box<Process>, Instant)>,
    introduced: HashMap<u32, ProcessKey>,
    /// What they publish of themselves.
    contexts: Contexts,
    /// What their environments say of them.
    environments: Environments,
    /// Reads their memory, and what they map.
    reader: ForeignReader,
    /// Those whose mappings are being read.
    scans: Vec<Scan>,
    /// Where their threads say which span they are in, and what they may say besides.
    variables: Variables,
    allowed: Allowed,
    runtimes: Runtimes,
    /// Files that were told of, and whether with their headers.
    told_files: HashMap<FileId, bool>,
    /// What there was to say before anybody listened.
    unsaid: Vec<Message>,
    healed_at: HashMap<u32, Instant>,
    epoch_began: Instant,
    aging: Every,
    sweeping: Every,
    events: u64,
    bodies_missing: u64,
    /// Processes that found the scope's list full, as far as it was said.
    list_was_full: u64,
}

impl<'obj> Sampler<'obj> {
    /// Loads the programs and learns what already runs. Sampling starts with [`start`](Self::start).
    pub(crate) fn new(
        storage: &'obj mut Storage,
        mut options: SamplingOptions,
        opener: Opener,
    ) -> Result<Self, SamplingError> {
        check_rate(options.samples_per_second)?;
        let pod = if options.scope.is_pod { scoping::find_pod()? } else { None };
        let mut profiler = Profiler::load(
            storage,
            &Options {
                scope: options.scope.mode(),
                pod: pod.as_ref().map(|pod| pod.cgroup),
                walk: options.walk,
                frame_limit: options.frame_limit,
                kernel_frames: options.kernel_frames,
                context_attributes: !options.trace_context.attributes.is_empty(),
                #[cfg(test)]
                test_programs: options.test_programs,
                arena_bytes: options.budget.tables_bytes,
                ring_bytes: options.budget.rings.samples_bytes,
                snapshots_bytes: options.budget.rings.snapshots_bytes,
                ..Options::default()
            },
            opener.clone(),
        )?;
        warn_of_walk(profiler.walk(), options.frame_limit);
        let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
        let audience = scoping::audience(pod.as_ref(), &opener);
        if let Some(pod) = &pod {
            registry.stay_within(pod.bounds.clone());
            if matches!(audience, Audience::EveryTask) {
                options.scope.stay_within(pod.bounds.clone());
            }
        }
        if let Err(error) = profiler.open_side_band(audience) {
            warn!(%error, "degraded: new mappings will be learnt only when a sample meets them");
        }
        let reader = ForeignReader::start(&opener).map_err(SamplingError::Thread)?;
        options.scope.read_through(reader.clone());
        let builder = TableBuilder::start(options.unwind_trust, options.budget.building, &options.threads)
            .map_err(SamplingError::Thread)?;
        let binaries = Binaries::new(builder, &mut profiler.arena, &mut profiler.tables)
            .ok_or(SamplingError::Budget(options.budget.tables_bytes))?;
        let mut sampler = Self {
            profiler,
            opener,
            pod,
            newcomers: HashMap::new(),
            poll_interval: PollInterval::new(options.poll_interval(), Instant::now()),
            stagger: Stagger::new(options.samples_per_second),
            queue: EventQueue::new(EVENTS_WAITING_MAX),
            registry,
            files: FileTable::new(ProcRoot::default(), FileTableLimits::default()),
            binaries,
            stacks: Stacks::default(),
            ahead: VecDeque::new(),
            late: Late::new(options.budget.snapshots_bytes),
            walked_late: 0,
            stale_mappings: StaleMappings::default(),
            corrections: Corrections::default(),
            outdated: HashSet::new(),
            departed: HashMap::new(),
            introduced: HashMap::new(),
            contexts: Contexts::new(&options.trace_context, reader.clone()),
            environments: Environments::new(reader.clone()),
            reader,
            scans: Vec::new(),
            variables: Variables::default(),
            allowed: Allowed::new(&options.trace_context),
            runtimes: Runtimes::default(),
            told_files: HashMap::new(),
            unsaid: Vec::new(),
            healed_at: HashMap::new(),
            epoch_began: Instant::now(),
            aging: Every::new(AGE),
            sweeping: Every::new(SWEEP),
            events: 0,
            bodies_missing: 0,
            list_was_full: 0,
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
        // News that was too young for the last look waits for nothing else, nor do tables that walks are
        // waiting for, nor what is read of processes.
        let is_reading =
            self.contexts.is_waiting() || self.environments.are_waiting() || !self.scans.is_empty();
        let patience = if !self.queue.is_empty() || self.binaries.in_progress() > 0 || is_reading {
            PollInterval::SHORTEST
        } else if self.waits_for_itself() {
            self.poll_interval.average()
        } else {
            timeout
        };
        let is_woken = self.profiler.wait(patience.min(timeout));
        if self.profiler.rest(Duration::ZERO)
            || is_woken && self.profiler.rest(self.poll_interval.next(Instant::now()).min(timeout))
        {
            thread::sleep(self.stagger.next_delay());
        }
        let mut records = Vec::new();
        let watermark_ns = monotonic_ns().saturating_sub(EVENT_DELAY_NS);
        self.profiler.rings().drain(&mut records);
        self.files.look_anew();
        self.take_records(records, messages);
        self.follow(watermark_ns, messages);
        self.walk_late(messages);
        self.keep_house(messages);
    }

    /// Whether something has to go on of which nobody says that it can.
    fn waits_for_itself(&self) -> bool {
        self.binaries.are_missed() || !self.outdated.is_empty() || !self.late.is_empty()
    }

    /// Ends sampling and hands on what is still in the rings.
    pub(crate) fn stop(&mut self, messages: &mut Vec<Message>) {
        self.profiler.stop();
        for _ in 0..=SAMPLE_PATIENCE {
            self.poll(Duration::ZERO, messages);
        }
        self.take_samples(u64::MAX, messages);
        let deadline = Instant::now() + LATE_PATIENCE;
        while !self.late.is_empty() && Instant::now() < deadline {
            self.poll(self.poll_interval.average(), messages);
        }
        for waiting in self.late.take_all() {
            self.give_up(&waiting, messages);
        }
    }

    /// How all interrupts since the start ended.
    pub(crate) fn tally(&self) -> Tally {
        let mut interrupts = self.profiler.interrupts();
        self.corrections.apply(&mut interrupts);
        Tally {
            interrupts,
            events: self.events,
            bodies_missing: self.bodies_missing,
            walked_late: self.walked_late,
            snapshots_refused: self.profiler.snapshots_refused(),
        }
    }

    /// Whether the scope is our pod.
    pub(crate) fn is_of_pod(&self) -> bool {
        self.options.scope.is_pod
    }

    /// The profiler, for what it counts.
    pub(crate) fn profiler(&self) -> &Profiler<'obj> {
        &self.profiler
    }

    /// Files read again because a walk missed an evicted table.
    pub(crate) fn table_reloads(&self) -> u64 {
        self.binaries.reloads()
    }

    /// Processes that publish a context which must not be read, for want of a privilege.
    pub(crate) fn contexts_refused(&self) -> u64 {
        self.contexts.refused()
    }

    /// How reads of processes' memory ended.
    pub(crate) fn reads(&self) -> ReadCounts {
        self.reader.counts()
    }

    /// What was counted of events of processes, and of reading them.
    pub(crate) fn process_counters(&self) -> RegistryCounters {
        self.registry.counters()
    }

    /// Events of processes that were taken up before all earlier ones had come.
    pub(crate) fn released_early(&self) -> u64 {
        self.queue.released_early()
    }

    /// Files of whose tables a part is missing, or all, for want of memory to read them.
    pub(crate) fn tables_cut(&self) -> u64 {
        self.binaries.cut()
    }

    /// Whether every process that was to be sampled has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.options.scope.is_empty()
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
            companions: self.binaries.companions(id),
        };
        self.told_files.insert(id, loads.is_some());
        messages.push(Message::File(id, Arc::new(facts)));
    }

    /// Takes stacks up, and puts samples where they wait for their time to come.
    fn take_records(&mut self, records: Vec<Record>, messages: &mut Vec<Message>) {
        self.ahead.iter_mut().for_each(|ahead| ahead.polls += 1);
        let mut room = self.late.room();
        for record in records {
            match record {
                Record::Body(body) => self.take_body(body, messages),
                Record::Newcomer(newcomer) => self.welcome(newcomer),
                Record::Snapshot(snapshot) => self.late.take_snapshot(snapshot, &mut room),
                Record::Sample(sample) => {
                    self.runtimes.meet(Pid(sample.pid), &mut self.registry, &mut self.environments);
                    self.ahead.push_back(Ahead { sample, polls: 0 });
                }
            }
        }
        self.ahead.make_contiguous().sort_by_key(|ahead| ahead.sample.time_ns);
    }

    /// Takes up the samples from before a time. What happened to processes up to then has been taken up.
    fn take_samples(&mut self, before_ns: u64, messages: &mut Vec<Message>) {
        let mut without_stack = Vec::new();
        while self.ahead.front().is_some_and(|next| next.sample.time_ns < before_ns)
            && let Some(ahead) = self.ahead.pop_front()
        {
            match self.stacks.get(ahead.sample.stack) {
                None if ahead.polls < SAMPLE_PATIENCE => without_stack.push(ahead),
                stack => self.take_sample(ahead.sample, stack, messages),
            }
        }
        without_stack.into_iter().rev().for_each(|ahead| self.ahead.push_front(ahead));
    }

    fn take_sample(&mut self, sample: Sample, stack: Option<Arc<Stack>>, messages: &mut Vec<Message>) {
        if self.options.scope.excludes(sample.pid) {
            self.corrections.note(&sample, Outcome::OutOfScope);
            return;
        }
        let process = process_of(&sample, &self.registry, &self.departed);
        let key = process.map(ProcessKey::of);
        let Some(sample) = self.late.hold(sample, process) else { return };
        let (sample, stack) = self.without_stale_frames(sample, stack);
        self.ask_for_what_lacked(&sample, stack.as_deref());
        self.hand_on(key, &sample, stack, messages);
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
    fn ask_for_what_lacked(&mut self, sample: &Sample, stack: Option<&Stack>) {
        match sample.outcome {
            Outcome::UnknownProcess | Outcome::NoMapping => self.heal(sample.pid),
            Outcome::NoTable => {
                if let Some((file, offset)) = stack.and_then(|stack| instruction_of(stack.frames.last()?)) {
                    self.binaries.missed(file, offset);
                }
            }
            _ => {}
        }
    }

    fn hand_on(
        &mut self,
        process: Option<ProcessKey>,
        sample: &Sample,
        stack: Option<Arc<Stack>>,
        messages: &mut Vec<Message>,
    ) {
        let process = process.unwrap_or(ProcessKey { pid: sample.pid, instance: 0 });
        self.introduce(process, messages);
        if stack.as_ref().is_some_and(|stack| stack.has_code_without_file) {
            messages.extend(self.runtimes.untold(process).map(|place| Message::Jit(process, place)));
        }
        self.events += 1;
        self.bodies_missing += u64::from(stack.is_none());
        let context = sample.context.as_deref();
        let (span, labels) = match (context, &sample.labels) {
            (Some(context), _) => {
                let keys = self.contexts.attribute_keys(process);
                let span = Link { trace_id: context.trace_id, span_id: context.span_id };
                (Some(span), self.allowed.labels(context, keys))
            }
            (None, Some(labels)) => (self.allowed.span(labels), self.allowed.labels_in(labels)),
            (None, None) => (None, Labels::default()),
        };
        messages.push(Message::Event(Event {
            kind: sample.kind,
            value: sample.value,
            time_ns: sample.time_ns,
            process,
            tid: sample.tid,
            cpu: sample.cpu,
            comm: sample.comm,
            outcome: sample.outcome,
            stack,
            span,
            labels,
        }));
    }

    /// Tells, before the first event of a process, what is known of it.
    fn introduce(&mut self, key: ProcessKey, messages: &mut Vec<Message>) {
        match self.introduced.insert(key.pid, key) {
            Some(before) if before == key => return,
            Some(before) => messages.push(Message::Departed(before)),
            None => {}
        }
        let pid = Pid(key.pid);
        let is_it = |process: &&Process| process.instance() == key.instance;
        let description = if self.registry.process(pid).filter(is_it).is_some() {
            self.contexts.meet(key);
            self.environments.describe(pid, &mut self.registry)
        } else {
            self.contexts.forget(key.pid);
            let last = last_with(pid, &self.registry, &self.departed);
            last.filter(is_it).and_then(Process::description)
        };
        messages.push(Message::Process(key, self.contexts.complete(key, description.unwrap_or_default())));
    }

    fn keep_house(&mut self, messages: &mut Vec<Message>) {
        self.profiler.arena.reclaim();
        self.follow_contexts(messages);
        self.take_environments(messages);
        if self.epoch_began.elapsed() >= EPOCH || self.stacks.bytes() > self.options.budget.stacks_bytes {
            self.epoch_began = Instant::now();
            self.stacks.begin_epoch(self.profiler.next_epoch());
        }
        if self.aging.is_due() {
            self.profiler.tables.tick();
        }
        if self.sweeping.is_due() {
            self.departed.retain(|_, (_, at)| at.elapsed() < DEPARTED_REMEMBERED);
            let (registry, departed) = (&self.registry, &self.departed);
            let is_known = |key: &ProcessKey| {
                last_with(Pid(key.pid), registry, departed)
                    .is_some_and(|last| last.instance() == key.instance)
            };
            self.runtimes.forget_all_but(registry, is_known);
            self.stale_mappings.sweep();
            self.warn_of_full_list();
            self.profiler.close_empty_containers();
            self.welcome_again();
            let (registry, departed) = (&self.registry, &self.departed);
            let gone = self.introduced.extract_if(|pid, _| {
                registry.process(Pid(*pid)).is_none() && !departed.contains_key(&Pid(*pid))
            });
            messages.extend(gone.map(|(pid, key)| {
                self.contexts.forget(pid);
                Message::Departed(key)
            }));
            self.healed_at.retain(|_, at| at.elapsed() < 4 * follow::HEAL_INTERVAL);
            self.forget_files(FILES_REMEMBERED, messages);
        }
    }

    /// Forgets the files that no process has mapped for so long.
    fn forget_files(&mut self, time: Duration, messages: &mut Vec<Message>) {
        let (arena, tables) = (&mut self.profiler.arena, &mut self.profiler.tables);
        for file in self.binaries.forget_unused(time, arena, tables) {
            self.files.forget(file);
            self.variables.forget(file);
            if self.told_files.remove(&file).is_some() {
                messages.push(Message::ForgetFile(file));
            }
        }
    }
}

/// The process that has a number or had it last.
fn last_with<'a>(
    pid: Pid,
    registry: &'a Registry,
    departed: &'a HashMap<Pid, (Box<Process>, Instant)>,
) -> Option<&'a Process> {
    registry.process_or_ended(pid).or_else(|| departed.get(&pid).map(|(process, _)| &**process))
}

/// The process that a sample is of. One that had ended before had the same number, and is another's.
fn process_of<'a>(
    sample: &Sample,
    registry: &'a Registry,
    departed: &'a HashMap<Pid, (Box<Process>, Instant)>,
) -> Option<&'a Process> {
    // Threads are still interrupted on their way out after the end of their process was told.
    last_with(Pid(sample.pid), registry, departed)
        .filter(|process| sample.outcome == Outcome::Exiting || process.had_not_ended_by(sample.time_ns))
}

/// Which instruction of which file a frame is at.
fn instruction_of(frame: &Frame) -> Option<(FileId, FileOffset)> {
    match frame.kind()? {
        FrameKind::Native { file } => {
            Some((FileId(file), FileOffset(frame.address() - u64::from(frame.is_return_address()))))
        }
        FrameKind::Kernel | FrameKind::Anonymous => None,
    }
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
