//! The control part of sampling: turns process events into the maps that walks use.
//!
//! Owner: the sampling thread. Input: the kernel's side band, `/proc`, unwind tables from the builder threads, and requests
//! for what samples were missing. Output: the BPF maps, and messages about files and processes.

mod contexts;
mod descriptions;
mod environments;
mod files;
mod jit_sources;
mod membership;
mod pod;
mod probes;
mod processes;
mod publication;
mod replacements;
mod runtimes;
pub(crate) mod scope;
mod side_band;
mod variables;
mod view;

use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use sidewinder_base::foreign::{ForeignReader, ReadCounts};
use sidewinder_bpf::{Opener, Profiler, TaskFilter, monotonic_ns};
use sidewinder_message::{Message, Stack};
use sidewinder_process::{
    Change, EventQueue, Pid, Process, ProcessEvent, ProcessEventKind, ProcessKey, RegistryCounters,
};
use sidewinder_tables::{
    Binaries, BuildOptions, IncompleteTables, PackingRules, SavedTableCounts, TableBuilder,
};

use self::descriptions::Descriptions;
use self::files::FileTracker;
use self::membership::Membership;
pub(super) use self::pod::Pod;
pub(super) use self::probes::{ProbeError, Probes};
use self::processes::ProcessTracker;
use self::publication::Publication;
use self::runtimes::RuntimeTracker;
pub(super) use self::runtimes::VmCode;
pub(super) use self::view::{ProcessView, Request};
use super::{SamplingError, SamplingOptions};

/// The maximum number of process events that wait to be ordered by time.
const QUEUED_EVENTS_MAX: usize = 65_536;
/// Attempts to locate a runtime that are due so soon don't wait for the next event.
const RETRIES_AWAITED: Duration = Duration::from_millis(100);
/// How long startup waits for the unwind tables of running processes.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The control part's state.
#[derive(Debug)]
pub(super) struct Control {
    /// Process events, ordered by time.
    events: EventQueue,
    pub(super) membership: Membership,
    pub(super) processes: ProcessTracker,
    pub(super) files: FileTracker,
    pub(super) publication: Publication,
    pub(super) descriptions: Descriptions,
    pub(super) runtimes: RuntimeTracker,
    pub(super) probes: Probes,
    requires_probes: bool,
    /// What the reporter has to be told of processes and files, in order.
    announcements: Vec<Message>,
}

/// The counters of the control part.
#[derive(Clone, Copy, Debug)]
pub struct ControlCounts {
    /// Process events, and scans of processes in `/proc`.
    pub processes: RegistryCounters,
    /// Process events that were applied before all earlier ones had arrived.
    pub process_events_unordered: u64,
    /// Reads of processes' memory, by result.
    pub foreign_reads: ReadCounts,
    /// The kernel memory of the maps for these reads, in bytes.
    pub read_map_bytes: u64,
    /// Processes whose context can't be read because a privilege is missing.
    pub contexts_refused: u64,
    /// Files with a runtime whose loop is too scattered for walks.
    pub interpreters_refused: u64,
    /// Files read again because a walk missed an evicted table.
    pub tables_reloads: u64,
    /// Files whose tables are incomplete or missing because the memory budget doesn't allow reading them.
    pub tables_cut: u64,
    pub saved_tables: SavedTableCounts,
}

impl Control {
    /// What the data part reads, as of now.
    pub(crate) fn view(&mut self) -> ProcessView<'_> {
        ProcessView {
            processes: &self.processes,
            membership: &self.membership,
            replacements: &self.publication.replacements,
            files: &mut self.files.table,
            binaries: &self.files.binaries,
            runtimes: &self.runtimes,
        }
    }

    /// Opens the side band, and starts the threads that build tables and read the memory of processes.
    pub(super) fn new(
        mut options: SamplingOptions,
        pod: Option<Pod>,
        opener: Opener,
        profiler: &mut Profiler<'_>,
    ) -> Result<Self, SamplingError> {
        let reader = ForeignReader::start(&opener, pod.as_ref().map(|pod| pod.cgroup))
            .map_err(SamplingError::Thread)?;
        options.scope.set_reader(reader.clone());
        let mapping_bytes = options.budget.mappings_bytes;
        let mut processes = ProcessTracker::new(reader.clone(), options.include_env_vars, mapping_bytes);
        let mut membership = Membership::new(options.scope, pod, opener);
        membership.open_side_band(&mut processes, profiler);
        let is_per_process = membership.scope.mode() == TaskFilter::Listed;
        let probes = Probes::start(&options.probes, is_per_process, &options.threads, profiler)
            .map_err(SamplingError::Thread)?;
        let building = BuildOptions { trust: options.unwind_trust, runtimes: options.runtimes };
        let builder = TableBuilder::start(
            building,
            options.budget.table_building,
            options.saved_tables,
            &options.threads,
        )
        .map_err(SamplingError::Thread)?;
        let (rules, debug_roots) =
            (PackingRules::new(options.unwind_mode, options.unwind_overrides), options.debug_roots);
        let binaries = Binaries::new(builder, rules, debug_roots, &mut profiler.arena, &mut profiler.tables)
            .ok_or(SamplingError::Budget(options.budget.tables_bytes))?;
        Ok(Self {
            events: EventQueue::new(QUEUED_EVENTS_MAX),
            membership,
            processes,
            files: FileTracker::new(binaries),
            publication: Publication::default(),
            descriptions: Descriptions::new(&options.trace_context, reader),
            runtimes: RuntimeTracker::default(),
            probes,
            requires_probes: options.requires_probes,
            announcements: Vec::new(),
        })
    }

    /// Publishes the running processes that are in scope, and waits up to [`START_TIMEOUT`] for their tables.
    pub(super) fn publish_running(&mut self, profiler: &mut Profiler<'_>) -> Result<(), SamplingError> {
        let known_ns = monotonic_ns();
        self.membership.find_running(&mut self.processes, profiler)?;
        self.publish_changes(known_ns, profiler);
        let deadline = Instant::now() + START_TIMEOUT;
        while self.files.binaries.in_progress() > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
            self.load_tables(known_ns, profiler);
        }
        // The mappings of another user's process may be unreadable, and are then known from its next exec.
        for pid in self.membership.scope.pids() {
            self.probes.add_unknown_process(Pid(pid));
        }
        self.probes.attach_tracepoints(profiler);
        self.probes.wait_for_found(profiler);
        match self
            .probes
            .take_unattached()
            .filter(|_| self.requires_probes && !self.membership.scope.has_patterns())
        {
            Some((probe, source)) => Err(SamplingError::Probe { probe, source }),
            None => Ok(()),
        }
    }

    /// Takes the events from the side band. Returns how full its fullest ring was, from 0 to 1; `None`: there is no side
    /// band.
    pub(super) fn take_side_band(&mut self, profiler: &mut Profiler<'_>) -> Option<f64> {
        let side_band = profiler.side_band()?;
        Some(side_band.drain(|event| self.events.push(side_band::process_event(event))))
    }

    /// The next process event from before `watermark_ns`, the time up to which all events have arrived.
    pub(super) fn next_event(&mut self, watermark_ns: u64) -> Option<ProcessEvent> {
        self.events.pop(watermark_ns)
    }

    /// Applies a process event. Events must be applied in order of time, since forks change the scope.
    pub(super) fn apply(&mut self, event: ProcessEvent, profiler: &Profiler<'_>) {
        let pid = event.pid;
        if let ProcessEventKind::Fork { parent, is_thread: false } = event.kind {
            self.publication.replacements.inherit(parent, pid, event.time_ns);
        }
        let is_exec = matches!(event.kind, ProcessEventKind::Exec { .. });
        let is_child = matches!(event.kind, ProcessEventKind::Fork { is_thread: false, .. });
        let was_in_scope = self.membership.scope.contains(pid.0);
        if is_exec && !was_in_scope {
            // If this brings it into scope, it is known from this event on.
            self.membership.evaluate_exec(pid, &mut self.processes, profiler);
        }
        if self.membership.scope.admit_event(&event) && self.processes.registry.apply(event) {
            self.publication.replacements.add(pid);
        }
        self.membership.add_pending_to_list(profiler);
        if is_child {
            self.membership.unlist_child(pid, profiler);
        }
        if is_exec {
            self.probes.renew_process(pid);
            if was_in_scope {
                self.membership.evaluate_exec(pid, &mut self.processes, profiler);
            }
        }
    }

    /// Publishes all changes of processes up to `watermark_ns`, and the tables that have been built.
    pub(super) fn publish(&mut self, watermark_ns: u64, profiler: &mut Profiler<'_>) {
        self.processes.rescan_stale();
        self.processes.finish_scans();
        self.publish_changes(watermark_ns, profiler);
        self.probes.attach_found(profiler);
        self.load_tables(watermark_ns, profiler);
        self.publication.confirm(watermark_ns, profiler);
    }

    fn publish_changes(&mut self, known_ns: u64, profiler: &mut Profiler<'_>) {
        for change in self.processes.registry.take_changes() {
            match change {
                Change::MappingsChanged(pid) => {
                    self.descriptions.mappings_changed(pid);
                    self.publish_process(pid, known_ns, profiler);
                }
                Change::Exited(process) => self.unpublish(process, profiler),
            }
        }
    }

    fn publish_process(&mut self, pid: Pid, known_ns: u64, profiler: &mut Profiler<'_>) {
        let Some(process) = self.processes.registry.process(pid) else { return };
        let variables = self.descriptions.variables(ProcessKey::from(process));
        let reader = self.processes.reader();
        self.probes.add_process(ProcessKey::from(process));
        let runtimes = self.runtimes.published(process, &mut self.files.table, reader);
        self.publication.publish(process, variables, &runtimes, known_ns, &mut self.files, profiler);
    }

    fn unpublish(&mut self, process: Box<Process>, profiler: &mut Profiler<'_>) {
        let pid = process.pid();
        self.processes.retain_exited(process);
        let is_in_use = self.processes.registry.process(pid).is_some();
        self.publication.unpublish(pid, is_in_use, &mut self.files, profiler);
        self.probes.remove_process(pid, profiler);
        if !is_in_use {
            self.membership.scope.remove_exited(pid.0);
        }
    }

    fn load_tables(&mut self, known_ns: u64, profiler: &mut Profiler<'_>) {
        let (announcements, users) = self.files.load_built(profiler, &mut self.runtimes);
        self.announcements.extend(announcements);
        for pid in users {
            // New tables don't make the mappings of a process newer.
            let known_ns = profiler.processes.known_ns(pid.0).unwrap_or(known_ns);
            self.publish_process(pid, known_ns, profiler);
        }
    }

    /// Updates the descriptions of processes, and publishes their thread-context variables and runtimes.
    pub(super) fn update_descriptions(&mut self, profiler: &mut Profiler<'_>) {
        let (announcements, mut changed) =
            self.descriptions.update_contexts(&mut self.processes, &mut self.files);
        self.announcements.extend(announcements);
        changed.extend(self.runtimes.update(&self.processes));
        for key in changed {
            if let Some(known_ns) = profiler.processes.known_ns(key.pid) {
                self.publish_process(Pid(key.pid), known_ns, profiler);
            }
        }
        self.announcements.extend(self.descriptions.update_environments(&mut self.processes));
    }

    /// Does what the data part asks for.
    pub(super) fn answer(&mut self, request: Request, profiler: &mut Profiler<'_>) {
        match request {
            Request::OpenContainer(new_container) => {
                self.membership.open_container(new_container, &mut self.processes, profiler);
            }
            Request::FindJitSource(pid) => self.descriptions.find_jit_source(pid, &self.processes),
            Request::UseFile(file) => self.announcements.extend(self.files.announce(file)),
            Request::Rescan(pid) => self.processes.request_rescan(pid),
            Request::Table { file, at, user } => {
                let FileTracker { table, binaries, .. } = &mut self.files;
                if binaries.request_table(file, table, user) {
                    binaries.record_miss(file, at);
                }
            }
        }
    }

    /// Announces what an event refers to and the reporter does not know yet: its process, and what names the frames of its stack
    /// that have a meaning only in that process. `thread_name`: see [`Descriptions::announce`].
    pub(super) fn announce(&mut self, process: ProcessKey, thread_name: &[u8], stack: Option<&Stack>) {
        self.announcements.extend(self.descriptions.announce(process, thread_name, &mut self.processes));
        if stack.is_some_and(|stack| stack.has_anonymous_code) {
            let source = self.descriptions.take_jit_source(process);
            self.announcements.extend(source.map(|source| Message::JitSource(process, source)));
        }
        if stack.is_some_and(|stack| stack.has_vm_frames) {
            let sources = self.runtimes.take_unannounced(process).into_iter();
            self.announcements.extend(sources.map(|source| Message::Runtime(process, source)));
        }
    }

    /// What the reporter has to be told since the last call, in order.
    pub(super) fn take_announcements(&mut self) -> Vec<Message> {
        mem::take(&mut self.announcements)
    }

    /// The keys of the attributes that the threads of a process publish, by key index.
    pub(super) fn attribute_keys(&self, process: ProcessKey) -> &[Box<str>] {
        self.descriptions.attribute_keys(process)
    }

    /// Forgets the files that no process has mapped for this long.
    pub(super) fn forget_files(&mut self, age: Duration, profiler: &mut Profiler<'_>) {
        for file in self.files.forget_unused(age, profiler) {
            self.descriptions.forget_file(file);
            self.runtimes.forget_file(file);
            self.announcements.extend(self.files.retract(file));
        }
    }

    /// The processes whose runtime's state we may not read, so that their stacks have none of its frames.
    pub(super) fn denied_runtimes(&self) -> Vec<ProcessKey> {
        self.runtimes.denied()
    }

    /// Forgets processes that no more samples can arrive from.
    pub(super) fn forget_exited(&mut self) {
        self.announcements.extend(self.descriptions.forget_exited(&self.processes));
        self.runtimes.forget_exited(&self.processes);
    }

    /// Whether events, tables or reads are about to complete.
    pub(super) fn has_work_soon(&self) -> bool {
        !self.events.is_empty()
            || self.files.binaries.in_progress() > 0
            || self.processes.has_pending_reads()
            || self.descriptions.has_pending_reads()
            || self.runtimes.has_pending_reads()
    }

    /// Whether there is work that no event triggers.
    pub(super) fn needs_polling(&self) -> bool {
        self.files.binaries.has_misses()
            || self.publication.has_outdated()
            || self.runtimes.has_retry_within(RETRIES_AWAITED)
    }

    /// The files that have no whole table now, for lack of memory.
    pub(super) fn incomplete_tables(&self, profiler: &Profiler<'_>) -> IncompleteTables {
        self.files.binaries.incomplete_tables(&profiler.arena)
    }

    pub(super) fn counts(&self) -> ControlCounts {
        ControlCounts {
            processes: self.processes.registry.counters(),
            process_events_unordered: self.events.released_early(),
            foreign_reads: self.processes.reader().counts(),
            read_map_bytes: self.processes.reader().memory().map_bytes(),
            contexts_refused: self.descriptions.contexts_refused(),
            interpreters_refused: self.runtimes.refused(),
            tables_reloads: self.files.binaries.reloads(),
            tables_cut: self.files.binaries.incomplete_files(),
            saved_tables: self.files.binaries.saved_table_counts(),
        }
    }
}
