//! A report under construction, as one list of processors changes its events.
//!
//! Input: events, with the description of their process. Output: a [`Report`] for an interval. What recurs (resources, stacks,
//! locations, attributes) is added to the dictionary once, as long as memory allows.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use sidewinder_bpf::WaitReason;
use sidewinder_bpf::{RawFrame, RawFrameKind};
use sidewinder_config::ResourceProcessor;
use sidewinder_otlp::builder::{
    AttributeSetIndex, LocationIndex, ResourceIndex, SampleAttributes, SampleIdentity, StackIndex,
};
use sidewinder_otlp::{Report, ReportBuilder, ReportOptions, Value};
use sidewinder_process::{ProcessDescription, ProcessKey};
use sidewinder_render::ThreadState;

use super::location::{location, truncation_location};
use crate::naming::{Namer, STACK_MISSING, missing_stack, truncation};
use crate::processor;
use crate::resource::resource_attributes;
use crate::sampling::message::{Labels, LockId, SampleEvent, is_process_specific};

/// On a sample of waits for a lock: which lock.
pub(crate) const LOCK_ID: &str = "sidewinder.lock.id";

/// A report under construction, with the events as one list of processors changes them.
#[derive(Debug)]
pub(super) struct PendingReport {
    pub(super) processors: Vec<ResourceProcessor>,
    builder: ReportBuilder,
    interned: InternedIndices,
}

/// A stack's ID and the outcome of its walk; with the process if the stack has frames that are valid in one process only.
type SampleStackKey = (Option<u64>, sidewinder_bpf::Outcome, Option<ProcessKey>);

/// The builder's indices of what was added to it.
#[derive(Debug, Default)]
struct InternedIndices {
    resources: HashMap<ProcessKey, ResourceIndex>,
    /// `None`: the frame is omitted.
    locations: HashMap<RawFrame, Option<LocationIndex>>,
    /// Of frames that are valid in one process only, and whose address may hold other code later.
    process_locations: HashMap<(ProcessKey, RawFrame), Option<LocationIndex>>,
    stacks: HashMap<SampleStackKey, StackIndex>,
    attributes: HashMap<EventAttributes, AttributeSetIndex>,
}

/// The properties of an event that become its attributes.
#[derive(PartialEq, Eq, Hash, Debug)]
struct EventAttributes {
    tid: u32,
    comm: [u8; 16],
    cpu: u32,
    outcome: Option<&'static str>,
    labels: Labels,
    wait: Option<WaitReason>,
    lock: Option<LockId>,
}

impl InternedIndices {
    /// Removes what is valid in one process only.
    fn clear_process_specific(&mut self) {
        self.process_locations.clear();
        self.stacks.retain(|(_, _, process), _| process.is_none());
    }

    /// The approximate size in bytes.
    fn bytes(&self) -> usize {
        let entries = size_of::<(RawFrame, Option<LocationIndex>)>() * self.locations.len()
            + size_of::<((ProcessKey, RawFrame), Option<LocationIndex>)>() * self.process_locations.len()
            + size_of::<(SampleStackKey, StackIndex)>() * self.stacks.len()
            + size_of::<(EventAttributes, AttributeSetIndex)>() * self.attributes.len()
            + size_of::<(ProcessKey, ResourceIndex)>() * self.resources.len();
        // A hash map is three quarters full on average.
        entries / 3 * 4
    }
}

impl PendingReport {
    pub(super) fn new(processors: Vec<ResourceProcessor>) -> Self {
        let builder = ReportBuilder::new(ReportOptions::new(env!("CARGO_PKG_VERSION")));
        Self { processors, builder, interned: InternedIndices::default() }
    }

    /// What was added since the last call, in reports of at most this size, none if there is nothing.
    pub(super) fn drain(
        &mut self,
        unix_ns: Range<u64>,
        report_bytes_max: usize,
        interned_bytes_max: usize,
    ) -> Vec<Report> {
        let reports = self.builder.drain(unix_ns, report_bytes_max);
        // Other code may be at the addresses of code that a process generated.
        self.interned.clear_process_specific();
        if self.bytes() > interned_bytes_max {
            // Most stacks don't recur, and what they consist of does.
            self.interned.stacks.clear();
            self.builder.forget_stacks();
        }
        if self.bytes() > interned_bytes_max {
            *self = Self::new(std::mem::take(&mut self.processors));
        }
        reports
    }

    fn bytes(&self) -> usize {
        self.builder.interned_bytes() + self.interned.bytes()
    }

    pub(super) fn add(
        &mut self,
        event: &SampleEvent,
        unix_ns: u64,
        resource: ResourceIndex,
        namer: &mut Namer,
    ) {
        let outcome = match (&event.stack, event.outcome) {
            (None, _) => Some(STACK_MISSING),
            (_, sidewinder_bpf::Outcome::Complete) => None,
            (_, other) => Some(other.label()),
        };
        let identity = SampleIdentity {
            resource,
            profile_type: self.builder.kind(event.kind),
            stack: self.stack(event, namer),
            attributes: self.attributes(event, outcome),
            link: event.span,
        };
        self.builder.event(&identity, unix_ns, i64::try_from(event.value).unwrap_or(i64::MAX));
    }

    /// Names the frames of an event that have a meaning only within its process, while it has what they refer to.
    pub(super) fn name_process_specific(&mut self, event: &SampleEvent, namer: &mut Namer) {
        let Some(stack) = event.stack.as_ref().filter(|stack| stack.is_process_specific()) else { return };
        namer.read_functions(event.process, stack);
        let locations = &mut self.interned.process_locations;
        for frame in stack.frames.iter().filter(|frame| is_process_specific(frame)) {
            let Entry::Vacant(unknown) = locations.entry((event.process, *frame)) else { continue };
            let named = namer.resolve(event.process, *frame, event.time_ns);
            if !named.as_ref().is_some_and(|named| named.is_provisional) {
                unknown.insert(named.map(|named| location(&mut self.builder, &named)));
            }
        }
    }

    /// Names the frames of these events that are in files, file by file in the order of addresses.
    pub(super) fn name_files(&mut self, events: &[SampleEvent], namer: &mut Namer) {
        let frames = events.iter().filter_map(|event| event.stack.as_ref()).flat_map(|stack| &*stack.frames);
        let is_unknown = |frame: &&RawFrame| {
            matches!(frame.kind(), Some(RawFrameKind::Native { .. }))
                && !is_process_specific(frame)
                && !self.interned.locations.contains_key(frame)
        };
        let unknown: HashSet<RawFrame> = frames.filter(is_unknown).copied().collect();
        let (builder, locations) = (&mut self.builder, &mut self.interned.locations);
        namer.resolve_in_files(unknown, |frame, named| {
            if !named.is_provisional {
                locations.insert(frame, Some(location(builder, &named)));
            }
        });
    }

    /// The number of events that were added since it was last drained.
    pub(super) fn events(&self) -> usize {
        self.builder.pending_events()
    }

    /// Names all frames again: those of a file may have a better name.
    pub(super) fn clear_locations(&mut self) {
        self.interned.locations.clear();
        self.interned.stacks.clear();
    }

    /// Describes a process again.
    pub(super) fn remove_resource(&mut self, process: ProcessKey) {
        self.interned.resources.remove(&process);
    }

    /// Names again what is valid in one process only.
    pub(super) fn clear_process_specific(&mut self) {
        self.interned.clear_process_specific();
    }

    /// The resource of a process.
    pub(super) fn resource(
        &mut self,
        process: ProcessKey,
        description: &ProcessDescription,
    ) -> ResourceIndex {
        let (builder, processors) = (&mut self.builder, &self.processors);
        *self.interned.resources.entry(process).or_insert_with(|| {
            let mut attributes = resource_attributes(process, description);
            processor::apply(processors, &mut attributes);
            builder.resource(&attributes.borrowed())
        })
    }

    fn attributes(&mut self, event: &SampleEvent, outcome: Option<&'static str>) -> AttributeSetIndex {
        let builder = &mut self.builder;
        let lock_id = event.lock.and_then(|lock| lock.id).map(|id| id.to_string());
        let key = EventAttributes {
            tid: event.tid,
            comm: event.comm,
            cpu: event.cpu,
            outcome,
            labels: Labels::clone(&event.labels),
            wait: event.wait,
            lock: event.lock.and_then(|lock| lock.id),
        };
        *self.interned.attributes.entry(key).or_insert_with(|| {
            let name = event.comm.split(|byte| *byte == 0).next().unwrap_or_default();
            builder.attributes(&SampleAttributes {
                thread_id: Some(event.tid.into()),
                thread_name: Some(&String::from_utf8_lossy(name)),
                cpu: Some(event.cpu),
                outcome,
                extra: &extra_attributes(event, lock_id.as_deref()),
            })
        })
    }

    fn stack(&mut self, event: &SampleEvent, namer: &mut Namer) -> StackIndex {
        let (stack, outcome, process) = (event.stack.as_ref(), event.outcome, event.process);
        let process_scope = stack.filter(|stack| stack.is_process_specific()).map(|_| process);
        let key = (stack.map(|stack| stack.id), outcome, process_scope);
        if let Some(index) = self.interned.stacks.get(&key) {
            return *index;
        }
        if let Some(stack) = stack {
            namer.read_functions(process, stack);
        }
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let (builder, interned) = (&mut self.builder, &mut self.interned);
        let mut has_provisional = false;
        let mut locations: Vec<LocationIndex> = frames
            .iter()
            .filter_map(|frame| {
                let process_key = is_process_specific(frame).then_some((process, *frame));
                let known = match &process_key {
                    Some(key) => interned.process_locations.get(key),
                    None => interned.locations.get(frame),
                };
                if let Some(index) = known {
                    return *index;
                }
                let named = namer.resolve(process, *frame, event.time_ns);
                let index = named.as_ref().map(|named| location(builder, named));
                match process_key {
                    _ if named.is_some_and(|named| named.is_provisional) => has_provisional = true,
                    Some(key) => drop(interned.process_locations.insert(key, index)),
                    None => drop(interned.locations.insert(*frame, index)),
                }
                index
            })
            .collect();
        let truncation = if stack.is_some() { truncation(outcome) } else { Some(missing_stack()) };
        locations.extend(truncation.map(|truncation| truncation_location(&mut self.builder, &truncation)));
        let index = self.builder.stack(&locations);
        if !has_provisional {
            self.interned.stacks.insert(key, index);
        }
        index
    }
}

/// What the thread has published, and what it waited for.
fn extra_attributes<'a>(event: &'a SampleEvent, lock_id: Option<&'a str>) -> Vec<(&'a str, Value<'a>)> {
    let labels = event.labels.iter().map(|(key, value)| (&**key, Value::Str(value)));
    let state = event.wait.iter().map(|wait| (ThreadState::STATE_KEY, Value::Str(wait.state)));
    let cause = event.wait.iter().filter_map(|wait| Some((ThreadState::CAUSE_KEY, Value::Str(wait.cause?))));
    labels.chain(state).chain(cause).chain(lock_id.map(|id| (LOCK_ID, Value::Str(id)))).collect()
}
