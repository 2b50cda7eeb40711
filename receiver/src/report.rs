//! Builds OTLP reports from events.
//!
//! Input: [`Message`]s from sampling. Output: one [`Report`] per list of processors and reporting interval. Owner: the
//! reporting thread.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sidewinder_bpf::{WaitReason, monotonic_ns};
use sidewinder_config::ResourceProcessor;
use sidewinder_otlp::builder::{
    AttributeSetIndex, Function, Line, LocationIndex, Mapping, MappingBuildIds, ResourceIndex,
    SampleAttributes, SampleIdentity, StackFrame, StackIndex,
};
use sidewinder_otlp::{FrameType, Report, ReportBuilder, ReportOptions, Value};
use sidewinder_process::{ProcessDescription, ProcessKey};
use sidewinder_render::ThreadState;
use sidewinder_vm::Runtime;

use crate::naming::{
    CodeOrigin, FrameLocation, NameCounts, NamedFrame, Namer, NamingContext, STACK_MISSING, truncation_marker,
};
use crate::processor;
use crate::resource::resource_attributes;
use crate::sampling::message::{Labels, LockId, Message, SampleEvent, is_process_specific};

/// The most events in a report: this keeps it far below the size limit of a Collector, and takes little memory to build.
/// With more events, reports are made more often.
const EVENTS_MAX: usize = 100_000;

/// On a sample of waits for a lock: which lock.
pub(crate) const LOCK_ID: &str = "sidewinder.lock.id";

/// Builds the reports of one receiver.
#[derive(Debug)]
pub(crate) struct Reporter {
    namer: Namer,
    pending_reports: Vec<PendingReport>,
    /// Interned data is dropped when its total size exceeds this.
    interned_bytes_max: usize,
    descriptions: HashMap<ProcessKey, Arc<ProcessDescription>>,
    clock: WallClock,
}

/// A report under construction, with the events as one list of processors changes them.
#[derive(Debug)]
struct PendingReport {
    processors: Vec<ResourceProcessor>,
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
    locations: HashMap<sidewinder_bpf::RawFrame, Option<LocationIndex>>,
    /// Of frames that are valid in one process only, and whose address may hold other code later.
    process_locations: HashMap<(ProcessKey, sidewinder_bpf::RawFrame), Option<LocationIndex>>,
    stacks: HashMap<SampleStackKey, StackIndex>,
    attributes: HashMap<EventAttributes, AttributeSetIndex>,
}

impl InternedIndices {
    /// Removes what is valid in one process only.
    fn clear_process_specific(&mut self) {
        self.process_locations.clear();
        self.stacks.retain(|(_, _, process), _| process.is_none());
    }

    /// The approximate size in bytes.
    fn bytes(&self) -> usize {
        let entries = size_of::<(sidewinder_bpf::RawFrame, Option<LocationIndex>)>() * self.locations.len()
            + size_of::<((ProcessKey, sidewinder_bpf::RawFrame), Option<LocationIndex>)>()
                * self.process_locations.len()
            + size_of::<(SampleStackKey, StackIndex)>() * self.stacks.len()
            + size_of::<(EventAttributes, AttributeSetIndex)>() * self.attributes.len()
            + size_of::<(ProcessKey, ResourceIndex)>() * self.resources.len();
        // A hash map is three quarters full on average.
        entries / 3 * 4
    }
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

impl Reporter {
    /// A reporter that makes one report for each list of processors, of which there is at least one.
    pub(crate) fn new(namer: Namer, processors: &[&[ResourceProcessor]], interned_bytes_max: usize) -> Self {
        Self {
            namer,
            interned_bytes_max,
            pending_reports: processors
                .iter()
                .map(|processors| PendingReport::new(processors.to_vec()))
                .collect(),
            descriptions: HashMap::new(),
            clock: WallClock::now(),
        }
    }

    /// Makes reports for other lists of processors from now on. If they differ, events that have not been drained are lost.
    pub(crate) fn change_processors(&mut self, processors: &[&[ResourceProcessor]]) {
        if !self
            .pending_reports
            .iter()
            .map(|pending| pending.processors.as_slice())
            .eq(processors.iter().copied())
        {
            self.pending_reports =
                processors.iter().map(|processors| PendingReport::new(processors.to_vec())).collect();
        }
    }

    pub(crate) fn handle(&mut self, message: Message) {
        match message {
            Message::File(id, facts) => {
                self.namer.add_file(id, facts);
                // Frames of this file may have a better name now.
                for pending in &mut self.pending_reports {
                    pending.interned.locations.clear();
                    pending.interned.stacks.clear();
                }
            }
            Message::ForgetFile(id) => self.namer.remove_file(id),
            Message::Process(key, description) => {
                for pending in &mut self.pending_reports {
                    pending.interned.resources.remove(&key);
                }
                self.descriptions.insert(key, self.namer.describe(description));
            }
            Message::JitSource(key, source) => {
                self.namer.add_jit_source(key, source);
                self.clear_process_specific();
            }
            Message::Interpreter(key, source) => {
                self.namer.add_interpreter(key, source);
                self.clear_process_specific();
            }
            Message::CodeObject(key, object) => {
                if self.namer.add_code_object(key, &object) {
                    self.clear_process_specific();
                }
            }
            Message::ProcessExited(key) => {
                self.namer.remove_process(key);
                for pending in &mut self.pending_reports {
                    pending.interned.resources.remove(&key);
                }
                self.descriptions.remove(&key);
            }
            Message::Event(event) => self.add_event(&event),
        }
    }

    /// Whether the next reports should be made now rather than when they are due.
    pub(crate) fn is_full(&self) -> bool {
        self.pending_reports.iter().any(|pending| pending.builder.pending_events() >= EVENTS_MAX)
    }

    /// The reports of all events since the previous call, one for each list of processors. `monotonic_ns` is the time that
    /// they cover, by `CLOCK_MONOTONIC`. `None` if there were no events.
    pub(crate) fn drain(&mut self, monotonic_ns: Range<u64>) -> Vec<Option<Report>> {
        let interval = self.clock.unix_ns(monotonic_ns.start)..self.clock.unix_ns(monotonic_ns.end);
        let share = self.interned_bytes_max / self.pending_reports.len().max(1);
        let reports =
            self.pending_reports.iter_mut().map(|pending| pending.drain(interval.clone(), share)).collect();
        self.clock = WallClock::now();
        reports
    }

    /// From now on, names are looked up only in files that have already been read.
    pub(crate) fn stop_reading(&mut self) {
        self.namer.stop_reading();
    }

    /// What the live page needs to name events.
    pub(crate) fn naming_context(&mut self) -> NamingContext<'_> {
        NamingContext { namer: &mut self.namer, processes: &self.descriptions }
    }

    /// Counts of frames without names, or without complete ones.
    pub(crate) fn name_counts(&self) -> NameCounts {
        self.namer.counts()
    }

    /// Looks up again what is valid in one process only.
    fn clear_process_specific(&mut self) {
        for pending in &mut self.pending_reports {
            pending.interned.clear_process_specific();
        }
    }

    fn add_event(&mut self, event: &SampleEvent) {
        let unknown = ProcessDescription::default();
        let description = self.descriptions.get(&event.process).map_or(&unknown, |description| description);
        let time_ns = self.clock.unix_ns(event.time_ns);
        for pending in &mut self.pending_reports {
            pending.add(event, time_ns, description, &mut self.namer);
        }
    }
}

impl PendingReport {
    fn new(processors: Vec<ResourceProcessor>) -> Self {
        let builder = ReportBuilder::new(ReportOptions::new(env!("CARGO_PKG_VERSION")));
        Self { processors, builder, interned: InternedIndices::default() }
    }

    fn drain(&mut self, unix_ns: Range<u64>, interned_bytes_max: usize) -> Option<Report> {
        let report = self.builder.drain(unix_ns);
        // Other code may be at the addresses of code that a process generated.
        self.interned.clear_process_specific();
        if self.builder.interned_bytes() + self.interned.bytes() > interned_bytes_max {
            *self = Self::new(std::mem::take(&mut self.processors));
        }
        report
    }

    fn add(
        &mut self,
        event: &SampleEvent,
        unix_ns: u64,
        description: &ProcessDescription,
        namer: &mut Namer,
    ) {
        let outcome = match (&event.stack, event.outcome) {
            (None, _) => Some(STACK_MISSING),
            (_, sidewinder_bpf::Outcome::Complete) => None,
            (_, other) => Some(other.label()),
        };
        let identity = SampleIdentity {
            resource: self.resource(event.process, description),
            kind: event.kind,
            stack: self.stack(event, namer),
            attributes: self.attributes(event, outcome),
            link: event.span,
        };
        self.builder.event(&identity, unix_ns, i64::try_from(event.value).unwrap_or(i64::MAX));
    }

    fn resource(&mut self, process: ProcessKey, description: &ProcessDescription) -> ResourceIndex {
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
        let marker = match stack {
            Some(_) => truncation_marker(outcome),
            None => Some(format!("[truncated: {STACK_MISSING}]")),
        };
        locations.extend(marker.map(|marker| marker_location(&mut self.builder, &marker)));
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

fn location(builder: &mut ReportBuilder, named: &NamedFrame) -> LocationIndex {
    let (mapping, address) = match &named.location {
        FrameLocation::File { facts, svma, load, .. } => {
            // The hash identifies the file of a mapping. For a file that could not be read, the name of the frame has the
            // path.
            let mapping = facts.hash.map(|hash| {
                builder.mapping(&Mapping {
                    memory_start: load.svma.0,
                    memory_limit: load.svma.0.saturating_add(load.size),
                    file_offset: load.file_offset.0,
                    filename: &facts.path,
                    build_ids: MappingBuildIds {
                        htlhash: &hash.to_string(),
                        gnu: facts.build_ids.gnu.as_ref().map(ToString::to_string).as_deref(),
                        go: facts.build_ids.go.as_deref(),
                    },
                })
            });
            (mapping, svma.0)
        }
        FrameLocation::Kernel { address } | FrameLocation::Anonymous { address } => (None, *address),
        FrameLocation::Vm => (None, 0),
    };
    let frame_type = match named.origin {
        CodeOrigin::Native => FrameType::Native,
        CodeOrigin::Rust => FrameType::Rust,
        CodeOrigin::Go => FrameType::Go,
        CodeOrigin::Kernel => FrameType::Kernel,
        CodeOrigin::Jit(None) => FrameType::Native,
        CodeOrigin::Jit(Some(runtime)) | CodeOrigin::Interpreted(runtime) => match runtime {
            Runtime::CPython => FrameType::CPython,
            Runtime::V8 => FrameType::V8js,
            Runtime::Jvm => FrameType::Jvm,
            Runtime::Dotnet => FrameType::Dotnet,
            Runtime::Ruby => FrameType::Ruby,
            Runtime::Php => FrameType::Php,
            Runtime::Perl => FrameType::Perl,
            Runtime::LuaJit => FrameType::LuaJit,
            Runtime::Beam => FrameType::Beam,
            Runtime::Go => FrameType::Go,
            // The conventions have no type for it.
            Runtime::PyPy => FrameType::Native,
        },
    };
    // A location without a name is left to backends that have symbols: it has the file and the address.
    let lines: Vec<Line> = match &*named.functions {
        [] if mapping.is_some() => Vec::new(),
        [] => vec![Line::new(builder.function(&Function { name: &named.name, ..Function::default() }))],
        functions => functions
            .iter()
            .map(|function| Line {
                function: builder.function(&Function {
                    name: &function.name.demangled,
                    system_name: &function.name.system_name,
                    filename: function.path.as_deref().unwrap_or_default(),
                    ..Function::default()
                }),
                line: function.line,
                column: function.column,
            })
            .collect(),
    };
    builder.location(&StackFrame {
        mapping,
        address,
        frame_type,
        is_guessed: named.is_guessed,
        lines: &lines,
    })
}

fn marker_location(builder: &mut ReportBuilder, marker: &str) -> LocationIndex {
    let function = builder.function(&Function { name: marker, ..Function::default() });
    builder.location(&StackFrame {
        mapping: None,
        address: 0,
        frame_type: FrameType::Native,
        is_guessed: false,
        lines: &[Line::new(function)],
    })
}

/// Converts times of `CLOCK_MONOTONIC` to Unix time, by the offset between both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    unix_offset_ns: u64,
}

impl WallClock {
    /// How often the clocks are compared. The quickest comparison is used: this thread may be preempted between two
    /// readings.
    const ATTEMPTS: u32 = 8;

    pub(crate) fn now() -> Self {
        let attempts = (0..Self::ATTEMPTS).map(|_| {
            let before_ns = monotonic_ns();
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let took_ns = monotonic_ns().saturating_sub(before_ns);
            let unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
            (took_ns, unix_ns.saturating_sub(before_ns + took_ns / 2))
        });
        Self { unix_offset_ns: attempts.min().map_or(0, |(_, ahead_ns)| ahead_ns) }
    }

    pub(crate) fn unix_ns(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_add(self.unix_offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::Kind;
    use sidewinder_otlp::builder::Link;

    use super::*;
    use crate::naming::NamingOptions;
    use crate::sampling::message::Stack;

    /// One stack without a span, with one span, and with another span under two routes: four samples share one stack.
    #[test]
    fn samples_that_differ_in_their_span_or_labels_stay_apart_and_share_their_stack() {
        let namer = Namer::new(NamingOptions::default());
        let mut reporter = Reporter::new(namer, &[&[]], usize::MAX);
        let frame =
            sidewinder_bpf::RawFrame::new(sidewinder_bpf::RawFrameKind::Anonymous, 0x1000, false, false);
        let stack = Arc::new(Stack::new(1, [frame].into()));
        let link = |id| Some(Link { trace_id: [id; 16], span_id: [id; 8] });
        let route = |route: &str| Labels::from([("http.route".into(), route.into())]);
        let now_ns = monotonic_ns();
        let events = [
            (None, Labels::default()),
            (link(1), Labels::default()),
            (link(2), route("/a")),
            (link(2), route("/b")),
            (link(1), Labels::default()),
        ];
        for (index, (span, labels)) in events.into_iter().enumerate() {
            reporter.handle(Message::Event(SampleEvent {
                kind: Kind::Cpu { samples_per_second: 97 },
                value: 1,
                time_ns: now_ns + index as u64,
                process: ProcessKey { pid: 7, instance: 1 },
                tid: 7,
                cpu: 0,
                comm: [0; 16],
                outcome: sidewinder_bpf::Outcome::Complete,
                stack: Some(Arc::clone(&stack)),
                span,
                labels,
                wait: None,
                lock: None,
                ended: None,
            }));
        }
        let report = reporter.drain(now_ns..now_ns + 10).remove(0).unwrap();
        assert!(sidewinder_otlp::conformance::check(report.as_bytes()).is_empty());
        let profiles = sidewinder_otlp::decode::decode_profiles_data(report.as_bytes()).unwrap();
        let samples = &profiles[0].samples;
        let seen: Vec<_> = samples
            .iter()
            .map(|sample| {
                let route = sample.attributes.get("http.route").and_then(|value| value.as_str());
                (sample.link.map(|link| link.span_id[0]), route, sample.timestamps_unix_ns.len())
            })
            .collect();
        assert_eq!(
            seen,
            [(None, None, 1), (Some(1), None, 2), (Some(2), Some("/a"), 1), (Some(2), Some("/b"), 1)]
        );
        assert!(samples.iter().all(|sample| Arc::ptr_eq(&sample.stack, &samples[0].stack)), "one stack");
    }

    #[test]
    fn nothing_is_kept_of_an_exited_process() {
        let namer = Namer::new(NamingOptions::default());
        let mut reporter = Reporter::new(namer, &[&[]], usize::MAX);
        let processes = (1..=1_000).map(|instance| ProcessKey { pid: 7, instance });
        for process in processes {
            reporter.handle(Message::Process(process, Arc::default()));
            reporter.handle(Message::ProcessExited(process));
        }
        assert!(reporter.descriptions.is_empty());
    }
}
