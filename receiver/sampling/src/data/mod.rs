//! The data part of sampling: turns records from the kernel's rings into events.
//!
//! Owner: the sampling thread. Input: samples, stacks and snapshots from the eBPF programs, and a [view](ProcessView) of the
//! processes and files as they were when a sample was taken. Output: what is [ready](Ready) for the reporter, [requests](Request)
//! for what was missing, and the tally of interrupts by outcome. It changes nothing of what control knows.

mod charging;
mod code_objects;
mod deferred;
mod events;
mod found_waits;
mod labels;
mod pending;
mod ready;
mod stacks;
mod stale_mappings;
mod tally;
mod undrawn;
mod wait_events;
mod waits;
mod wakers;

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use sidewinder_bpf::{
    Outcome, Profiler, RawFrame, RawFrameKind, Record, SampleKind, SampleRecord, StackBody, StackEntries,
    VmMissing,
};
use sidewinder_kind::{Kind, KindSet};
use sidewinder_message::{Stack, file_location};
use sidewinder_process::{FileId, Pid, ProcessKey};

pub use self::code_objects::CodeObjectLosses;
use self::code_objects::CodeObjects;
use self::deferred::{DeferredWalk, DeferredWalks, MissingRule, ProcessCode, VmGroups};
use self::found_waits::FoundWaits;
use self::labels::LabelFilter;
use self::pending::PendingSamples;
pub(super) use self::pending::STACK_TIMEOUT_POLLS;
pub(super) use self::ready::Ready;
use self::ready::WalkedSample;
use self::stacks::StackCache;
use self::stale_mappings::StaleMappingCheck;
use self::tally::OutcomeCorrections;
pub use self::tally::WaitCounts;
pub use self::tally::{FoundWaitCounts, LongWaitCounts, SamplingTally};
use self::wait_events::WaitEvents;
use self::waits::Waits;
use self::wakers::Wakers;
use super::{ProcessView, Request, SamplingOptions};

/// The data part's state.
#[derive(Debug)]
pub(crate) struct Data {
    pub stacks: StackCache,
    pending: PendingSamples,
    deferred: DeferredWalks,
    code_objects: CodeObjects,
    pub(super) stale_mappings: StaleMappingCheck,
    corrections: OutcomeCorrections,
    labels: LabelFilter,
    waits: Waits,
    wakers: Wakers,
    found_waits: FoundWaits,
    lists_failed: u64,
    wait_events: WaitEvents,
    requests: Vec<Request>,
    ready: Vec<Ready>,
    frame_limit: usize,
    /// The kinds of samples that are taken.
    pub kinds: KindSet,
    /// The kinds of profile that are made of them.
    profiles: KindSet,
    events: u64,
    stack_bodies_missing: u64,
    walked_late: u64,
    early_vm_frames: u64,
}

impl Data {
    pub(super) fn new(options: &SamplingOptions) -> Self {
        Self {
            stacks: StackCache::default(),
            pending: PendingSamples::default(),
            deferred: DeferredWalks::new(options.budget.snapshots_bytes),
            code_objects: CodeObjects::default(),
            stale_mappings: StaleMappingCheck::default(),
            corrections: OutcomeCorrections::default(),
            labels: LabelFilter::new(&options.trace_context),
            waits: Waits::new(options.kinds.wall().is_some()),
            wakers: Wakers::default(),
            found_waits: FoundWaits::default(),
            lists_failed: 0,
            wait_events: WaitEvents::new(&options.kinds),
            requests: Vec::new(),
            ready: Vec::new(),
            frame_limit: options.frame_limit as usize,
            kinds: options.kinds.sampled(),
            profiles: options.kinds.clone(),
            events: 0,
            stack_bodies_missing: 0,
            walked_late: 0,
            early_vm_frames: 0,
        }
    }

    /// Takes the records from the rings. Samples stay pending until [`Self::release`].
    pub(super) fn take_records(&mut self, view: &ProcessView<'_>, profiler: &mut Profiler<'_>) {
        let mut records = Vec::new();
        profiler.rings().drain(&mut records);
        self.pending.begin_poll();
        let now = Instant::now();
        self.code_objects.forget_old(now);
        self.waits.forget_old(now);
        self.wakers.forget_old(now);
        let mut free_bytes = self.deferred.free_bytes();
        for record in records {
            match record {
                Record::Body(body) => self.take_body(body),
                Record::Newcomer(new_container) => self.requests.push(Request::OpenContainer(new_container)),
                Record::Snapshot(snapshot) => self.deferred.add_snapshot(snapshot, &mut free_bytes),
                Record::CodeObject(object) => self.code_objects.add(object, now),
                Record::WaitEnd(end) => self.end_wait(end),
                Record::Sample(sample) => {
                    self.request(Request::FindJitSource(Pid(sample.pid)));
                    self.pending.push(sample);
                }
            }
        }
        for sample in self.found_waits.update(view.reader(), &mut self.deferred, &mut self.stacks) {
            self.pending.push(sample);
        }
        self.pending.sort();
    }

    fn take_body(&mut self, body: StackBody) {
        if let StackEntries::Frames(frames) = &body.entries {
            for frame in frames {
                if let Some(RawFrameKind::Native { file }) = frame.kind() {
                    self.request(Request::UseFile(FileId(file)));
                }
            }
        }
        self.stacks.insert(body);
    }

    /// Adds a request, unless it repeats the last one, as those for neighbouring frames and samples often do.
    fn request(&mut self, request: Request) {
        if self.requests.last() != Some(&request) {
            self.requests.push(request);
        }
    }

    /// What the control part has to do before it announces what is [ready](Self::take_ready).
    pub(super) fn take_requests(&mut self) -> Vec<Request> {
        mem::take(&mut self.requests)
    }

    /// What has become ready for the reporter, in order.
    pub(super) fn take_ready(&mut self) -> Vec<Ready> {
        mem::take(&mut self.ready)
    }

    /// Releases the pending samples from before a time. The caller has applied all process events up to that time, and none
    /// after it.
    pub(crate) fn release(&mut self, before_ns: u64, view: &mut ProcessView<'_>) {
        for (sample, stack) in self.pending.take_before(before_ns, &mut self.stacks) {
            self.take_sample(sample, stack, view);
        }
    }

    fn take_sample(&mut self, sample: SampleRecord, stack: Option<Arc<Stack>>, view: &mut ProcessView<'_>) {
        if view.leaves_out(&sample) {
            self.deferred.discard(&sample);
            self.corrections.add(&sample, Outcome::OutOfScope);
            return;
        }
        let process = view.process_of(&sample);
        let key = process.map(ProcessKey::from);
        let can_walk = stack.as_ref().is_none_or(|stack| stack.is_in_snapshots());
        let Some(sample) = self.deferred.defer(sample, process, can_walk) else { return };
        let stack = stack.map(|stack| self.without_group_ends(stack));
        let (sample, stack) = self.truncate_stale_frames(sample, stack, view);
        self.add_walked(key, sample, stack);
    }

    /// Truncates a stack at the first frame in a file range that the process no longer mapped when the sample was taken.
    /// Process events are applied up to the sample's time.
    fn truncate_stale_frames(
        &mut self,
        sample: SampleRecord,
        stack: Option<Arc<Stack>>,
        view: &mut ProcessView<'_>,
    ) -> (SampleRecord, Option<Arc<Stack>>) {
        if !view.may_be_stale(&sample) {
            return (sample, stack);
        }
        let Some(process) = view.process_of(&sample) else { return (sample, stack) };
        let stale_index = stack
            .as_ref()
            .and_then(|stack| self.stale_mappings.first_stale_frame(&stack.frames, process, view));
        let (Some(stale_index), Some(stack)) = (stale_index, &stack) else { return (sample, stack) };
        let frames = stack.frames.iter().take(stale_index).copied().collect();
        let outcome = Outcome::StaleMapping;
        self.corrections.add(&sample, outcome);
        (SampleRecord { outcome, ..sample }, Some(self.stacks.intern(frames)))
    }

    /// Passes newly known processes to the deferred walks that wait for them.
    pub(super) fn update_deferred(&mut self, view: &ProcessView<'_>) {
        self.deferred.set_processes(|pid| view.running(pid));
    }

    /// Performs the deferred walks whose tables are loaded. The others wait, and request what they miss.
    pub(super) fn walk_deferred(&mut self, view: &mut ProcessView<'_>, profiler: &Profiler<'_>) {
        for deferred in self.deferred.take_ready(|file, at| view.has_rule(file, at, profiler)) {
            match self.walk(&deferred, view, profiler) {
                Ok((frames, outcome)) => {
                    self.early_vm_frames +=
                        frames.iter().filter(|frame| is_early_marker(frame)).count() as u64;
                    let stack = self.stacks.intern(frames);
                    self.corrections.add(&deferred.sample, outcome);
                    self.walked_late += 1;
                    let process = deferred.process_key();
                    self.add_walked(process, SampleRecord { outcome, ..deferred.sample }, Some(stack));
                }
                Err(Some((file, at))) => {
                    let user = Pid(deferred.sample.pid);
                    self.request(Request::Table { file, at, user });
                    if deferred.has_expired() {
                        self.add_unwalked(deferred);
                    } else {
                        self.deferred.requeue((file, at), deferred);
                    }
                }
                Err(None) => self.add_unwalked(deferred),
            }
        }
    }

    /// Whether any deferred walk is waiting, or a stack is being read for one.
    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty() || self.found_waits.is_reading()
    }

    /// Gives up the waiting deferred walks: their samples are ready as they are.
    pub(super) fn abandon_deferred(&mut self) {
        for deferred in self.deferred.take_all() {
            self.add_unwalked(deferred);
        }
    }

    /// Adds a sample with the stack that the eBPF programs walked.
    fn add_unwalked(&mut self, deferred: DeferredWalk) {
        let stack = self.stacks.get(deferred.sample.stack).map(|stack| self.without_group_ends(stack));
        self.add_walked(deferred.process_key(), deferred.sample, stack);
    }

    /// A stack that no deferred walk completes.
    fn without_group_ends(&mut self, stack: Arc<Stack>) -> Arc<Stack> {
        match deferred::without_group_ends(&stack.frames) {
            Some(frames) => self.stacks.intern(frames),
            None => stack,
        }
    }

    /// The frames of a deferred walk, kernel frames first, and its outcome.
    ///
    /// # Errors
    /// The rule that the walk needs and that is not loaded; `None`: the process is unknown.
    fn walk(
        &mut self,
        deferred: &DeferredWalk,
        view: &mut ProcessView<'_>,
        profiler: &Profiler<'_>,
    ) -> Result<(Vec<RawFrame>, Outcome), Option<MissingRule>> {
        let process = deferred.process.as_deref().ok_or(None)?;
        let mut code = ProcessCode::new(process, view, profiler);
        let sampled = self.stacks.get(deferred.sample.stack);
        let groups = sampled.as_ref().map(|stack| VmGroups::from_frames(&stack.frames)).unwrap_or_default();
        let (frames, outcome) =
            deferred::walk(&deferred.snapshot, groups, self.frame_limit, &mut code).map_err(Some)?;
        self.requests.extend(code.into_files_seen().into_iter().map(Request::UseFile));
        let kernel_frames = sampled.iter().flat_map(|stack| &stack.frames).copied();
        let kernel_frames = kernel_frames.take_while(|frame| frame.kind() == Some(RawFrameKind::Kernel));
        Ok((kernel_frames.chain(frames).collect(), outcome))
    }

    /// Adds a sample that is ready, and requests what its walk was missing.
    fn add_walked(&mut self, process: Option<ProcessKey>, sample: SampleRecord, stack: Option<Arc<Stack>>) {
        if let Some(request) = missing(&sample, stack.as_deref()) {
            self.request(request);
        }
        // Only the programs of these kinds are loaded.
        let Some(kind) = sample.kind.profile_kind(&self.kinds) else { return };
        let process = process.unwrap_or(ProcessKey { pid: sample.pid, instance: 0 });
        let functions = match &stack {
            Some(stack) if stack.has_vm_frames => self.code_objects.take(sample.pid, sample.time_ns),
            _ => Vec::new(),
        };
        self.ready.push(Ready::Sample(WalkedSample { kind, process, sample, stack, functions }));
    }

    /// The outcomes of all interrupts since the start.
    pub(crate) fn tally(&self, profiler: &Profiler<'_>) -> SamplingTally {
        let of_kind = |kind: Kind| {
            let sample_kind = SampleKind::of(kind, &self.kinds)?;
            let mut interrupts = profiler.interrupts(sample_kind);
            self.corrections.apply(sample_kind, &mut interrupts);
            Some((kind, interrupts))
        };
        SamplingTally {
            interrupts: self.kinds.iter().filter_map(of_kind).collect(),
            events: self.events,
            stack_bodies_missing: self.stack_bodies_missing,
            walked_late: self.walked_late,
            early_vm_frames: self.early_vm_frames,
            snapshots_refused: profiler.snapshots_refused(),
            off_cpu_waits_missing: WaitCounts {
                unseen: profiler.off_cpu_waits_missing_unseen(),
                end_lost: profiler.off_cpu_waits_missing_end_lost(),
                without_end: self.waits.without_end(),
                waker_unmatched: self.wakers.unmatched(),
            },
            long_waits: LongWaitCounts {
                off_cpu_waits_found: self.found_waits.counts(),
                off_cpu_events_so_far: self.waits.events_so_far(),
                off_cpu_lists_failed: self.lists_failed,
            },
            probes: (0..)
                .zip(self.kinds.probes())
                .map(|(index, of)| (of, profiler.user_probe_hits(index)))
                .collect(),
            code_object_losses: self.code_objects.losses(),
        }
    }
}

/// The request for what the walk of a sample was missing: a mapping of its process, or a table.
fn missing(sample: &SampleRecord, stack: Option<&Stack>) -> Option<Request> {
    let user = Pid(sample.pid);
    match sample.outcome {
        Outcome::UnknownProcess | Outcome::NoMapping => Some(Request::Rescan(user)),
        Outcome::NoTable => {
            let (file, at) = file_location(stack?.frames.last()?)?;
            Some(Request::Table { file, at, user })
        }
        _ => None,
    }
}

/// Whether a frame stands for frames of a runtime that was not known when the stack was sampled.
fn is_early_marker(frame: &RawFrame) -> bool {
    matches!(frame.kind(), Some(RawFrameKind::Missing { reason: VmMissing::TooEarly, .. }))
}
