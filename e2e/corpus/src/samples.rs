//! What became of one program's samples.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::{DecodedEvent, DecodedFrame};

use sidewinder_e2e_judge::{Chain, Judge};
use sidewinder_e2e_support::conservation::Summary;
use sidewinder_e2e_support::rate::Expected;
use sidewinder_e2e_support::received::Received;

use super::managed::ManagedFrames;
use super::outcome::is_user_stack;
use super::programs::Language;
use super::python::PythonFrames;

/// Walks that ended at their first frame in a file that was still unknown, or in a process that was: whatever is said of
/// that frame, it is not that its code was generated.
const FILE_UNKNOWN: [&str; 2] = ["no_table", "unknown_process"];
/// Interrupts that become no sample, though somebody in scope was interrupted, or may have been.
const LOST: [&str; 3] = ["busy", "ring_full", "missed"];
pub(super) const EXAMPLES: usize = 5;
/// By then, the tables of what a program is made of are there, unless it runs other programs.
const START: Duration = Duration::from_secs(1);

/// How the stacks of one kind of sample ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ends {
    /// Stacks with a proven end.
    pub complete: u64,
    /// The others, by outcome.
    pub cut: BTreeMap<String, u64>,
}

impl Ends {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.complete + self.cut.values().sum::<u64>()
    }

    /// The share of those with a proven end.
    #[must_use]
    pub fn complete_share(&self) -> f64 {
        if self.all() == 0 { 1.0 } else { self.complete as f64 / self.all() as f64 }
    }

    fn add(&mut self, outcome: Option<&str>, events: u64) {
        match outcome {
            _ if events == 0 => {}
            None => self.complete += events,
            Some(cut) => *self.cut.entry(cut.to_owned()).or_default() += events,
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        self.complete += other.complete;
        other
            .cut
            .iter()
            .for_each(|(outcome, events)| *self.cut.entry(outcome.clone()).or_default() += events);
    }
}

/// What became of one program's samples.
#[derive(Clone, Debug)]
pub struct Samples {
    /// How many there should be.
    pub expected: Expected,
    /// How many there are.
    pub received: u64,
    /// Interrupts that became no sample, of whatever was interrupted, by outcome.
    pub lost: BTreeMap<String, u64>,
    /// Of these, without a user stack that could be walked.
    pub no_user_stack: u64,
    /// User stacks whose code is all in files.
    pub native: Ends,
    /// Those of them that are not from the start of the program.
    pub settled: Ends,
    /// User stacks that go through code generated at run time.
    pub generated: Ends,
    /// Frames of Python behind the start of the program.
    pub python: PythonFrames,
    /// Frames of Java or JavaScript behind the start of the program, in which they are judged.
    pub managed: Option<ManagedFrames>,
    /// The sum of the frames of all user stacks.
    frames: u64,
    /// Frames of the longest stack.
    pub depth_max: usize,
    /// Events whose stack contradicts its binaries or the program's known chain.
    pub wrong: u64,
    /// Where cut stacks end, with their outcome, most frequent first.
    pub ends_of_cut: Vec<(String, u64)>,
    /// The first few wrong stacks.
    pub examples: Vec<String>,
}

impl Samples {
    pub(crate) fn judged(
        expected: Expected,
        received: &Received,
        summary: &Summary,
        chain: Option<Chain>,
        language: Option<Language>,
    ) -> Self {
        let managed = match language {
            Some(Language::Java) => Some(FrameType::Jvm),
            Some(Language::JavaScript) => Some(FrameType::V8js),
            Some(Language::Python) | None => None,
        };
        let mut judge = Judge::default();
        let mut samples = Self {
            expected,
            received: 0,
            lost: LOST.iter().map(|outcome| ((*outcome).to_owned(), summary.outcome(outcome))).collect(),
            no_user_stack: 0,
            native: Ends::default(),
            settled: Ends::default(),
            generated: Ends::default(),
            python: PythonFrames::since(received, settled_ns(received)),
            managed: managed.map(|frame_type| ManagedFrames::of(frame_type, received)),
            frames: 0,
            depth_max: 0,
            wrong: 0,
            ends_of_cut: Vec::new(),
            examples: Vec::new(),
        };
        let mut ends = HashMap::new();
        for stack in by_stack(received) {
            samples.add(&stack, &mut judge, chain.as_ref(), &mut ends);
        }
        samples.ends_of_cut = ends.into_iter().collect();
        samples.ends_of_cut.sort_by_key(|(_, events)| std::cmp::Reverse(*events));
        samples
    }

    fn add(
        &mut self,
        stack: &Stack<'_>,
        judge: &mut Judge,
        chain: Option<&Chain>,
        ends: &mut HashMap<String, u64>,
    ) {
        let events = stack.events;
        self.received += events;
        if !is_user_stack(stack.outcome) {
            self.no_user_stack += events;
            return;
        }
        let user = || stack.frames.iter().filter(|frame| frame.frame_type() != Some(FrameType::Kernel));
        // A cut stack's last frame is the mark that says so.
        let depth = user().count() - usize::from(stack.outcome.is_some());
        self.frames += events * depth as u64;
        self.depth_max = self.depth_max.max(depth);
        let is_unknown = stack.outcome.is_some_and(|outcome| FILE_UNKNOWN.contains(&outcome));
        // Those of interpreters have no address; the native frames are all there.
        let is_known = |frame: &Arc<DecodedFrame>| {
            frame.mapping.is_some() || frame.frame_type() == Some(FrameType::CPython)
        };
        let is_native = user().take(depth - usize::from(is_unknown)).all(is_known);
        if is_native {
            self.native.add(stack.outcome, events);
            self.settled.add(stack.outcome, stack.settled_events);
        } else {
            self.generated.add(stack.outcome, events);
        }
        if let Some(outcome) = stack.outcome {
            let last = user().take(depth).last();
            *ends
                .entry(format!("{outcome} at {}", last.map_or("the first frame".to_owned(), |f| place(f))))
                .or_default() += events;
        }
        let wrong = judge.contradiction(stack.frames, stack.outcome.is_none()).map(|found| found.to_string());
        let wrong = wrong.or_else(|| judge.strays(stack.frames, chain.filter(|_| stack.outcome.is_none())?));
        if let Some(wrong) = wrong {
            self.wrong += events;
            if self.examples.len() < EXAMPLES {
                self.examples.push(wrong);
            }
        }
    }

    /// How many interrupts are accounted for, if all those that were lost were the program's.
    #[must_use]
    pub fn received_or_lost(&self) -> u64 {
        self.received + self.lost.values().sum::<u64>()
    }

    /// Frames of a user stack on average.
    #[must_use]
    pub fn depth_mean(&self) -> f64 {
        self.frames as f64 / (self.native.all() + self.generated.all()).max(1) as f64
    }
}

fn place(frame: &DecodedFrame) -> String {
    match (&frame.mapping, frame.file_offset()) {
        (Some(mapping), Some(offset)) => {
            let function = frame.function().map(|name| format!(" ({name})")).unwrap_or_default();
            format!("{}+{offset:#x}{function}", mapping.filename)
        }
        _ => "generated code".to_owned(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity<'a> {
    frames: *const Arc<DecodedFrame>,
    outcome: Option<&'a str>,
}

/// A stack with its outcome, and how many events it has.
struct Stack<'a> {
    frames: &'a [Arc<DecodedFrame>],
    outcome: Option<&'a str>,
    events: u64,
    /// Of these, not from the start of the program.
    settled_events: u64,
}

/// When the start of a program is over.
fn settled_ns(received: &Received) -> u64 {
    let first_ns = received.events().map(|event| event.time_unix_ns).min().unwrap_or_default();
    first_ns + START.as_nanos() as u64
}

/// Every stack once.
fn by_stack(received: &Received) -> Vec<Stack<'_>> {
    let settled_ns = settled_ns(received);
    let mut stacks: HashMap<Identity<'_>, Stack<'_>> = HashMap::new();
    for DecodedEvent { sample, time_unix_ns, .. } in received.events() {
        let outcome = sample.outcome();
        let identity = Identity { frames: sample.stack.as_ptr(), outcome };
        let stack = stacks.entry(identity).or_insert_with(|| Stack {
            frames: &sample.stack,
            outcome,
            events: 0,
            settled_events: 0,
        });
        stack.events += 1;
        stack.settled_events += u64::from(time_unix_ns >= settled_ns);
    }
    stacks.into_values().collect()
}
