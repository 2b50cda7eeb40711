//! The data part of sampling: turns records from the kernel's rings into events.
//!
//! Owner: the sampling thread. Input: samples, stacks and snapshots from the eBPF programs, and the control part's processes
//! and files as they were when a sample was taken. Output: an event for each sample in scope, requests to the control part
//! for what walks were missing, and the tally of interrupts by outcome.

mod charging;
mod code_objects;
mod deferred;
mod found_waits;
mod labels;
mod pending;
mod stacks;
mod stale_mappings;
mod tally;
mod undrawn;
mod wait_events;
mod waits;
mod wakers;

use std::sync::Arc;
use std::time::Instant;

use sidewinder_bpf::{
    Outcome, Profiler, RawFrame, RawFrameKind, Record, SampleKind, SampleRecord, StackBody, StackEntries,
    VmMissing, WaitReason,
};
use sidewinder_kind::{Kind, KindSet};
use sidewinder_otlp::builder::Link;
use sidewinder_process::{FileId, Pid, ProcessKey};

pub(crate) use self::code_objects::CodeObjectLosses;
use self::code_objects::CodeObjects;
use self::deferred::{DeferredWalk, DeferredWalks, MissingRule, ProcessCode, VmGroups};
use self::found_waits::FoundWaits;
use self::labels::LabelFilter;
pub(crate) use self::labels::Labels;
use self::pending::PendingSamples;
pub(super) use self::pending::STACK_TIMEOUT_POLLS;
use self::stacks::StackCache;
use self::stale_mappings::StaleMappingCheck;
#[cfg(test)]
pub(crate) use self::tally::FoundWaitCounts;
use self::tally::OutcomeCorrections;
pub(crate) use self::tally::{LongWaitCounts, SamplingTally, WaitCounts};
use self::wait_events::WaitEvents;
use self::waits::Waits;
use self::wakers::Wakers;
use super::SamplingOptions;
use super::control::Control;
use super::message::{Message, SampleEvent, Stack};

/// The data part's state.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) stacks: StackCache,
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
    frame_limit: usize,
    /// The kinds of samples that are taken.
    pub(super) kinds: KindSet,
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
    pub(super) fn take_records(
        &mut self,
        control: &mut Control,
        profiler: &mut Profiler<'_>,
        messages: &mut Vec<Message>,
    ) {
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
                Record::Body(body) => self.take_body(body, control, messages),
                Record::Newcomer(new_container) => control.open_container(new_container, profiler),
                Record::Snapshot(snapshot) => self.deferred.add_snapshot(snapshot, &mut free_bytes),
                Record::CodeObject(object) => self.code_objects.add(object, now),
                Record::WaitEnd(end) => self.end_wait(end, control, messages),
                Record::Sample(sample) => {
                    control.descriptions.note_sampled(Pid(sample.pid), &control.processes);
                    self.pending.push(sample);
                }
            }
        }
        let reader = control.processes.reader();
        for sample in self.found_waits.update(reader, &mut self.deferred, &mut self.stacks) {
            self.pending.push(sample);
        }
        self.pending.sort();
    }

    fn take_body(&mut self, body: StackBody, control: &mut Control, messages: &mut Vec<Message>) {
        if let StackEntries::Frames(frames) = &body.entries {
            for frame in frames {
                if let Some(RawFrameKind::Native { file }) = frame.kind() {
                    control.files.announce(FileId(file), messages);
                }
            }
        }
        self.stacks.insert(body);
    }

    /// Emits the pending samples from before a time. The caller has applied all process events up to that time, and none
    /// after it.
    pub(super) fn release(&mut self, before_ns: u64, control: &mut Control, messages: &mut Vec<Message>) {
        for (sample, stack) in self.pending.take_before(before_ns, &mut self.stacks) {
            self.take_sample(sample, stack, control, messages);
        }
    }

    fn take_sample(
        &mut self,
        sample: SampleRecord,
        stack: Option<Arc<Stack>>,
        control: &mut Control,
        messages: &mut Vec<Message>,
    ) {
        if control.membership.leaves_out(&sample, &control.processes) {
            self.deferred.discard(&sample);
            self.corrections.add(&sample, Outcome::OutOfScope);
            return;
        }
        let process = control.processes.process_of(&sample);
        let key = process.map(ProcessKey::from);
        // A walk of a snapshot can't follow code that HotSpot has generated.
        let can_walk = stack.as_ref().is_none_or(|stack| !stack.has_hotspot_frames());
        let Some(sample) = self.deferred.defer(sample, process, can_walk) else { return };
        let stack = stack.map(|stack| self.without_group_ends(stack));
        let (sample, stack) = self.truncate_stale_frames(sample, stack, control);
        control.request_missing(&sample, stack.as_deref());
        self.emit(key, &sample, stack, control, messages);
    }

    /// Truncates a stack at the first frame in a file range that the process no longer mapped when the sample was taken.
    /// Process events are applied up to the sample's time.
    fn truncate_stale_frames(
        &mut self,
        sample: SampleRecord,
        stack: Option<Arc<Stack>>,
        control: &mut Control,
    ) -> (SampleRecord, Option<Arc<Stack>>) {
        if !control.publication.replacements.affects(&sample) {
            return (sample, stack);
        }
        let Some(process) = control.processes.process_of(&sample) else { return (sample, stack) };
        let stale_index = stack.as_ref().and_then(|stack| {
            self.stale_mappings.first_stale_frame(&stack.frames, process, &mut control.files.table)
        });
        let (Some(stale_index), Some(stack)) = (stale_index, &stack) else { return (sample, stack) };
        let frames = stack.frames.iter().take(stale_index).copied().collect();
        let outcome = Outcome::StaleMapping;
        self.corrections.add(&sample, outcome);
        (SampleRecord { outcome, ..sample }, Some(self.stacks.intern(frames)))
    }

    /// Passes newly known processes to the deferred walks that wait for them.
    pub(super) fn update_deferred(&mut self, control: &Control) {
        self.deferred.set_processes(|pid| control.processes.registry.process(pid));
    }

    /// Performs the deferred walks whose tables are loaded, and emits their events.
    pub(super) fn walk_deferred(
        &mut self,
        control: &mut Control,
        profiler: &Profiler<'_>,
        messages: &mut Vec<Message>,
    ) {
        let binaries = &control.files.binaries;
        let has_rule = |file, at| binaries.has_rule(file, at, &profiler.arena, &profiler.tables);
        for deferred in self.deferred.take_ready(has_rule) {
            match self.walk(&deferred, control, profiler, messages) {
                Ok((frames, outcome)) => {
                    self.early_vm_frames +=
                        frames.iter().filter(|frame| is_early_marker(frame)).count() as u64;
                    let stack = self.stacks.intern(frames);
                    let sample = SampleRecord { outcome, ..deferred.sample.clone() };
                    control.request_missing(&sample, Some(&stack));
                    self.corrections.add(&deferred.sample, outcome);
                    self.walked_late += 1;
                    self.emit(deferred.process_key(), &sample, Some(stack), control, messages);
                }
                Err(Some(missing)) if !deferred.has_expired() => self.deferred.requeue(missing, deferred),
                Err(_) => self.emit_unwalked(&deferred, control, messages),
            }
        }
    }

    /// Whether any deferred walk is waiting, or a stack is being read for one.
    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty() || self.found_waits.is_reading()
    }

    /// Gives up the waiting deferred walks, and emits their samples as they are.
    pub(super) fn abandon_deferred(&mut self, control: &mut Control, messages: &mut Vec<Message>) {
        for deferred in self.deferred.take_all() {
            self.emit_unwalked(&deferred, control, messages);
        }
    }

    /// Emits a sample with the stack that the eBPF programs walked.
    fn emit_unwalked(&mut self, deferred: &DeferredWalk, control: &mut Control, messages: &mut Vec<Message>) {
        let stack = self.stacks.get(deferred.sample.stack).map(|stack| self.without_group_ends(stack));
        control.request_missing(&deferred.sample, stack.as_deref());
        self.emit(deferred.process_key(), &deferred.sample, stack, control, messages);
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
        control: &mut Control,
        profiler: &Profiler<'_>,
        messages: &mut Vec<Message>,
    ) -> Result<(Vec<RawFrame>, Outcome), Option<MissingRule>> {
        let process = deferred.process.as_deref().ok_or(None)?;
        let mut code = ProcessCode::new(process, &mut control.files, &control.interpreters, profiler);
        let sampled = self.stacks.get(deferred.sample.stack);
        let groups = sampled.as_ref().map(|stack| VmGroups::from_frames(&stack.frames)).unwrap_or_default();
        let (frames, outcome) =
            deferred::walk(&deferred.snapshot, groups, self.frame_limit, &mut code).map_err(Some)?;
        for file in code.into_files_seen() {
            control.files.announce(file, messages);
        }
        let kernel_frames = sampled.iter().flat_map(|stack| &stack.frames).copied();
        let kernel_frames = kernel_frames.take_while(|frame| frame.kind() == Some(RawFrameKind::Kernel));
        Ok((kernel_frames.chain(frames).collect(), outcome))
    }

    /// Emits an event, and before it the messages that the reporter needs about its process.
    fn emit(
        &mut self,
        process: Option<ProcessKey>,
        sample: &SampleRecord,
        stack: Option<Arc<Stack>>,
        control: &mut Control,
        messages: &mut Vec<Message>,
    ) {
        // Only the programs of these kinds are loaded.
        let Some(kind) = sample.kind.profile_kind(&self.kinds) else { return };
        let process = process.unwrap_or(ProcessKey { pid: sample.pid, instance: 0 });
        control.descriptions.announce(process, &sample.comm, &mut control.processes, messages);
        if stack.as_ref().is_some_and(|stack| stack.has_anonymous_code) {
            let source = control.descriptions.take_jit_source(process);
            messages.extend(source.map(|source| Message::JitSource(process, source)));
        }
        if stack.as_ref().is_some_and(|stack| stack.has_vm_frames) {
            let sources = control.take_interpreter_sources(process).into_iter();
            messages.extend(sources.map(|source| Message::Interpreter(process, source)));
            let objects = self.code_objects.take(sample.pid, sample.time_ns);
            messages.extend(objects.map(|object| Message::CodeObject(process, object)));
        }
        let (span, labels) = match (sample.context.as_deref(), &sample.labels) {
            (Some(context), _) => {
                let keys = control.descriptions.attribute_keys(process);
                let span = Link { trace_id: context.trace_id, span_id: context.span_id };
                (Some(span), self.labels.labels_from_context(context, keys))
            }
            (None, Some(labels)) => {
                (self.labels.span_from_labels(labels), self.labels.labels_from_set(labels))
            }
            (None, None) => (None, Labels::default()),
        };
        let event = SampleEvent {
            kind,
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
            wait: sample.wait,
            lock: None,
            ended: None,
        };
        match sample.kind {
            SampleKind::OffCpu | SampleKind::FoundWait => {
                let is_found = sample.kind == SampleKind::FoundWait;
                if let Some(charged) = self.waits.begin(event, is_found) {
                    self.push_wait(charged, messages);
                }
            }
            SampleKind::Waker => {
                if let Some(of_waker) = self.wakers.add_sample(event) {
                    self.push(of_waker, messages);
                }
            }
            SampleKind::Cpu => {
                let wall = (self.profiles.wall(), kind.descriptor().period);
                if let (Some(wall), Some(period)) = wall {
                    let wait = Some(WaitReason::RUNNING);
                    self.push(
                        SampleEvent { kind: wall, value: period.amount, wait, ..event.clone() },
                        messages,
                    );
                }
                if self.profiles.contains(kind) {
                    self.push(event, messages);
                }
            }
            _ => self.push(event, messages),
        }
    }

    fn push(&mut self, event: SampleEvent, messages: &mut Vec<Message>) {
        self.events += 1;
        self.stack_bodies_missing += u64::from(event.stack.is_none());
        messages.push(Message::Event(event));
    }

    /// The outcomes of all interrupts since the start.
    pub(super) fn tally(&self, profiler: &Profiler<'_>) -> SamplingTally {
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

/// Whether a frame stands for frames of a virtual machine that was not known when the stack was sampled.
fn is_early_marker(frame: &RawFrame) -> bool {
    frame.kind() == Some(RawFrameKind::Missing(VmMissing::TooEarly))
}
