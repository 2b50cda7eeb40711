//! Events of one recording, gathered for people: how often each stack was seen, when, and on which thread.

mod counts;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_bpf::Outcome;
use sidewinder_otlp::builder::Link;
use sidewinder_process::ProcessDescription;
use sidewinder_render::{
    Binary, BinaryIndex, Frame, FrameIndex, FrameKind, Measure, Profile, Sample, Severity, Span, SpanIndex,
    StackIndex, Thread, ThreadIndex,
};

pub(crate) use self::counts::Counts;
use crate::jit::Runtime;
use crate::naming::{BODY_MISSING, Code, NamedFrame, Namer, Place, marker};
use crate::sampling::Tally;
use crate::sampling::feed::{Event, Message, ProcessKey, Stack, is_without_file};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Collection {
    namer: Namer,
    processes: HashMap<ProcessKey, Arc<ProcessDescription>>,
    stacks: HashMap<u64, Arc<Stack>>,
    threads: Numbers<ThreadKey>,
    spans: Numbers<Link>,
    counts: Counts<Seen>,
}

/// What the events have in common that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Seen {
    thread: u32,
    span: Option<u32>,
    stack: Option<u64>,
    outcome: Outcome,
}

/// A thread under one name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ThreadKey {
    process: ProcessKey,
    tid: u32,
    comm: [u8; 16],
}

/// What was recorded, but for the events.
pub(crate) struct Circumstances<'a> {
    pub(crate) title: String,
    pub(crate) rate_hz: u32,
    pub(crate) start: SystemTime,
    /// The same by `CLOCK_MONOTONIC`.
    pub(crate) start_ns: u64,
    pub(crate) duration: Duration,
    pub(crate) tally: &'a Tally,
}

impl Collection {
    pub(crate) fn new(namer: Namer) -> Self {
        Self {
            namer,
            processes: HashMap::new(),
            stacks: HashMap::new(),
            threads: Numbers::default(),
            spans: Numbers::default(),
            counts: Counts::new(),
        }
    }

    pub(crate) fn take(&mut self, message: Message) {
        match message {
            Message::File(id, facts) => self.namer.learn(id, facts),
            Message::Process(key, description) => {
                self.processes.insert(key, description);
            }
            Message::Jit(key, place) => self.namer.learn_runtime(key, place),
            // Their events are still to be named.
            Message::Departed(_) | Message::ForgetFile(_) => {}
            Message::Event(event) => self.count(event),
        }
    }

    fn count(&mut self, event: Event) {
        let seen = Seen {
            thread: self.threads.of(ThreadKey { process: event.process, tid: event.tid, comm: event.comm }),
            span: event.span.map(|span| self.spans.of(span)),
            stack: event.stack.as_ref().map(|stack| stack.number),
            outcome: event.outcome,
        };
        if let Some(stack) = event.stack {
            self.stacks.entry(stack.number).or_insert(stack);
        }
        self.counts.add(event.time_ns, seen, 1);
    }

    /// Names everything and makes a profile of it.
    pub(crate) fn into_profile(mut self, of: Circumstances<'_>) -> Profile {
        let measure = Measure {
            name: "cpu".to_owned(),
            rate_hz: of.rate_hz.into(),
            period_ns: 1_000_000_000 / u64::from(of.rate_hz.max(1)),
        };
        let mut rows: Vec<_> = self.counts.rows_since(of.start_ns).collect();
        // The same profile for the same events, whatever the hash maps' order.
        rows.sort_unstable_by_key(|(slice, seen, _)| {
            (*slice, seen.thread, seen.stack, seen.outcome.label(), seen.span)
        });
        let mut draft = Draft::default();
        let samples = rows.into_iter().map(|(slice, seen, count)| Sample {
            slice,
            thread: ThreadIndex(seen.thread),
            span: seen.span.map(SpanIndex),
            stack: self.stack(seen, &mut draft),
            count,
        });
        let samples = samples.collect();
        Profile {
            start: of.start,
            duration: of.duration,
            slice: self.counts.slice(),
            binaries: draft.binaries,
            frames: draft.frames,
            stacks: draft.stacks,
            threads: self.threads.all.iter().map(|thread| self.thread(thread)).collect(),
            spans: self.spans.to_spans(),
            samples,
            outcomes: outcomes(of.tally),
            ..Profile::empty(of.title, measure)
        }
    }

    /// The stack of an event with all its names.
    fn stack(&mut self, seen: Seen, draft: &mut Draft) -> StackIndex {
        let walked = seen.stack.and_then(|number| self.stacks.get(&number));
        let process = self.threads.all.get(seen.thread as usize).map(|thread| thread.process);
        // The process is part of what is known where it means something in one process only.
        let of_process = process.filter(|_| walked.is_some_and(|stack| stack.has_code_without_file));
        let key = (seen.stack, seen.outcome, of_process);
        if let Some(index) = draft.stack_numbers.get(&key) {
            return *index;
        }
        let mut frames = Vec::new();
        match (walked, process) {
            (Some(stack), Some(process)) => {
                for frame in &stack.frames {
                    frames.extend(draft.named(&mut self.namer, process, *frame));
                }
                frames.extend(marker(seen.outcome).map(|marker| draft.marker(&marker)));
            }
            _ => frames.push(draft.marker(&format!("[truncated: {BODY_MISSING}]"))),
        }
        let index = StackIndex(draft.stacks.len() as u32);
        draft.stacks.push(frames);
        draft.stack_numbers.insert(key, index);
        index
    }

    fn thread(&self, thread: &ThreadKey) -> Thread {
        let name = text_of(&thread.comm);
        let description = self.processes.get(&thread.process);
        let process = description
            .and_then(|description| description.executable_name())
            .map_or_else(|| Arc::clone(&name), |name| String::from_utf8_lossy(name).into());
        Thread { process, pid: thread.process.pid, name, tid: thread.tid }
    }
}

/// Numbers for values, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Numbers<T> {
    pub(crate) all: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Copy + Eq + Hash> Numbers<T> {
    pub(crate) fn of(&mut self, value: T) -> u32 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.all.push(value);
            self.all.len() as u32 - 1
        })
    }
}

impl Numbers<Link> {
    /// As a profile has them, by number.
    pub(crate) fn to_spans(&self) -> Vec<Span> {
        self.all.iter().map(|link| Span { trace_id: link.trace_id, span_id: link.span_id }).collect()
    }
}

/// The lines of a summary: what happened to each interrupt.
pub(crate) fn outcomes(tally: &Tally) -> Vec<sidewinder_render::Outcome> {
    let of_outcome = |&(outcome, count): &(Outcome, u64)| sidewinder_render::Outcome {
        name: outcome.label().replace('_', " "),
        count,
        severity: severity(outcome),
        help: outcome.meaning().to_owned(),
    };
    let missed = sidewinder_render::Outcome {
        name: "missed".to_owned(),
        count: tally.interrupts.missed(),
        severity: Severity::Lost,
        help: "the kernel did not run the program for these interrupts".to_owned(),
    };
    let body_missing = sidewinder_render::Outcome {
        name: BODY_MISSING.replace('_', " "),
        count: tally.bodies_missing,
        severity: Severity::Cut,
        help: "these samples, counted above by how their walk ended, arrived without their stack".to_owned(),
    };
    let rows = tally.interrupts.outcomes.iter().map(of_outcome).chain([missed, body_missing]);
    rows.filter(|row| row.count > 0).collect()
}

fn severity(outcome: Outcome) -> Severity {
    match outcome {
        Outcome::Complete => Severity::Complete,
        Outcome::Busy | Outcome::RingFull => Severity::Lost,
        cut if cut.is_loss() => Severity::Cut,
        _ => Severity::Aside,
    }
}

fn text_of(comm: &[u8; 16]) -> Arc<str> {
    let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into()
}

/// The tables of a profile in the making.
#[derive(Default)]
struct Draft {
    binaries: Vec<Binary>,
    frames: Vec<Frame>,
    stacks: Vec<Vec<FrameIndex>>,
    binary_numbers: HashMap<u32, BinaryIndex>,
    kernel: Option<BinaryIndex>,
    stack_numbers: HashMap<(Option<u64>, Outcome, Option<ProcessKey>), StackIndex>,
    /// The frames of a place in code; of a place that means something in one process only, with that.
    known: HashMap<(sidewinder_bpf::Frame, Option<ProcessKey>), Vec<FrameIndex>>,
    frame_numbers: HashMap<(Option<BinaryIndex>, u64, Box<str>, u32), FrameIndex>,
}

impl Draft {
    /// The frames that a frame of the walk stands for, leaf first.
    fn named(
        &mut self,
        namer: &mut Namer,
        process: ProcessKey,
        frame: sidewinder_bpf::Frame,
    ) -> Vec<FrameIndex> {
        let key = (frame, is_without_file(&frame).then_some(process));
        if let Some(frames) = self.known.get(&key) {
            return frames.clone();
        }
        let frames = self.frames(&namer.name(process, frame));
        self.known.insert(key, frames.clone());
        frames
    }

    /// A frame of its own for each inlined call, leaf first.
    fn frames(&mut self, named: &NamedFrame) -> Vec<FrameIndex> {
        let (binary, address) = match &named.place {
            Place::File { id, facts, svma, .. } => {
                let binaries = &mut self.binaries;
                let binary = *self.binary_numbers.entry(id.0).or_insert_with(|| {
                    let build_id = facts.build_ids.gnu.as_ref().map(ToString::to_string);
                    binaries.push(Binary { path: facts.path.clone(), build_id });
                    BinaryIndex(binaries.len() as u32 - 1)
                });
                (Some(binary), svma.0)
            }
            Place::Kernel { address } => {
                let binaries = &mut self.binaries;
                let kernel = *self.kernel.get_or_insert_with(|| {
                    binaries.push(Binary { path: "[kernel]".to_owned(), build_id: None });
                    BinaryIndex(binaries.len() as u32 - 1)
                });
                (Some(kernel), *address)
            }
            Place::Anonymous { address } => (None, *address),
        };
        let kind = match named.code {
            Code::Native => FrameKind::Native,
            Code::Rust => FrameKind::Rust,
            Code::Go => FrameKind::Go,
            Code::Kernel => FrameKind::Kernel,
            Code::Jit(Runtime::CPython) => FrameKind::Python,
            Code::Jit(_) => FrameKind::Jit,
        };
        if named.functions.is_empty() {
            let is_named = matches!(named.code, Code::Kernel | Code::Jit(_));
            let function = Function { name: &named.name, is_named, ..Function::default() };
            return vec![self.intern(binary, address, kind, &function)];
        }
        let functions = named.functions.iter().map(|function| Function {
            name: &function.name.demangled,
            is_named: true,
            system_name: &function.name.system_name,
            path: function.path.as_deref().unwrap_or_default(),
            line: function.line,
        });
        functions.map(|function| self.intern(binary, address, kind, &function)).collect()
    }

    fn marker(&mut self, text: &str) -> FrameIndex {
        let function = Function { name: text, is_named: true, ..Function::default() };
        self.intern(None, 0, FrameKind::Marker, &function)
    }

    /// The number of a frame.
    fn intern(
        &mut self,
        binary: Option<BinaryIndex>,
        address: u64,
        kind: FrameKind,
        function: &Function<'_>,
    ) -> FrameIndex {
        let Function { name, is_named, system_name, path, line } = *function;
        let frames = &mut self.frames;
        *self.frame_numbers.entry((binary, address, name.into(), line)).or_insert_with(|| {
            frames.push(Frame {
                name: name.to_owned(),
                is_named,
                system_name: if system_name == name { String::new() } else { system_name.to_owned() },
                binary,
                kind,
                address,
                path: path.to_owned(),
                line,
            });
            FrameIndex(frames.len() as u32 - 1)
        })
    }
}

/// A function in a frame.
#[derive(Default)]
struct Function<'a> {
    name: &'a str,
    is_named: bool,
    system_name: &'a str,
    path: &'a str,
    line: u32,
}
