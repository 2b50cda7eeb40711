//! Events of one recording, gathered for people: how often each stack was seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_bpf::Outcome;
use sidewinder_process::ProcessDescription;
use sidewinder_render::{
    Binary, BinaryIndex, Frame, FrameIndex, FrameKind, Measure, Profile, Severity, WeightedStack,
};

use crate::jit::Runtime;
use crate::naming::{BODY_MISSING, Code, NamedFrame, Namer, Place, marker};
use crate::sampling::Tally;
use crate::sampling::feed::{Event, Message, ProcessKey, Stack, is_without_file};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Collection {
    namer: Namer,
    processes: HashMap<ProcessKey, Arc<ProcessDescription>>,
    counts: HashMap<Seen, (u64, Option<Arc<Stack>>)>,
}

/// What the events have in common that are counted together.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Seen {
    process: ProcessKey,
    comm: [u8; 16],
    stack: Option<u64>,
    outcome: Outcome,
}

impl Collection {
    pub(crate) fn new(namer: Namer) -> Self {
        Self { namer, processes: HashMap::new(), counts: HashMap::new() }
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
            process: event.process,
            comm: event.comm,
            stack: event.stack.as_ref().map(|stack| stack.number),
            outcome: event.outcome,
        };
        self.counts.entry(seen).or_insert((0, event.stack)).0 += 1;
    }

    /// Names everything and makes a profile of it.
    pub(crate) fn into_profile(
        mut self,
        title: String,
        rate_hz: u32,
        start: SystemTime,
        duration: Duration,
        tally: &Tally,
    ) -> Profile {
        let mut draft = Draft::default();
        // The process is part of what is known where it means something in one process only.
        let mut stacks: HashMap<(u64, Option<ProcessKey>), Vec<FrameIndex>> = HashMap::new();
        let mut known: HashMap<(sidewinder_bpf::Frame, Option<ProcessKey>), Vec<FrameIndex>> = HashMap::new();
        let counts = std::mem::take(&mut self.counts);
        let mut weighted = Vec::with_capacity(counts.len());
        for (seen, (count, stack)) in counts {
            let mut frames = match &stack {
                Some(stack) => stacks
                    .entry((stack.number, stack.has_code_without_file.then_some(seen.process)))
                    .or_insert_with(|| {
                        let mut named = Vec::with_capacity(stack.frames.len());
                        for frame in &stack.frames {
                            let frames = known
                                .entry((*frame, is_without_file(frame).then_some(seen.process)))
                                .or_insert_with(|| draft.frames(&self.namer.name(seen.process, *frame)));
                            named.extend_from_slice(frames);
                        }
                        named
                    })
                    .clone(),
                None => vec![draft.marker(&format!("[truncated: {BODY_MISSING}]"))],
            };
            if stack.is_some()
                && let Some(marker) = marker(seen.outcome)
            {
                frames.push(draft.marker(&marker));
            }
            let thread = text_of(&seen.comm);
            let process = self
                .processes
                .get(&seen.process)
                .and_then(|description| description.executable_name())
                .map_or_else(|| thread.clone(), |name| String::from_utf8_lossy(name).into());
            weighted.push(WeightedStack { frames, count, process, thread });
        }
        // The same profile for the same events, whatever the hash maps' order.
        let numbers = |stack: &WeightedStack| stack.frames.iter().map(|frame| frame.0).collect::<Vec<_>>();
        weighted.sort_by_cached_key(|stack| {
            (std::cmp::Reverse(stack.count), Arc::clone(&stack.process), numbers(stack))
        });
        Profile {
            title,
            measure: Measure {
                name: "cpu".to_owned(),
                rate_hz: rate_hz.into(),
                period_ns: 1_000_000_000 / u64::from(rate_hz.max(1)),
            },
            start,
            duration,
            binaries: draft.binaries,
            frames: draft.frames,
            stacks: weighted,
            outcomes: outcomes(tally),
        }
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
    binary_numbers: HashMap<u32, BinaryIndex>,
    frame_numbers: HashMap<(Option<BinaryIndex>, u64, Box<str>, u32), FrameIndex>,
}

impl Draft {
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
            Place::Kernel { address } | Place::Anonymous { address } => (None, *address),
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
