//! What sampling hands on: events with their stacks, and once what they refer to.

use std::sync::Arc;

use sidewinder_address::LoadSegment;
use sidewinder_bpf::{Frame, FrameKind, Outcome, SampleKind};
use sidewinder_otlp::builder::Link;
use sidewinder_process::{BuildIds, FileHash, FileId, OpenedFile, Process, ProcessDescription};

use super::debug_file::Companions;
pub(crate) use super::labels::Labels;
use crate::jit::JitPlace;

/// A process, told from every other that has or had its number in this run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ProcessKey {
    /// Its number in our PID namespace.
    pub(crate) pid: u32,
    /// As in [`sidewinder_process::Process::instance`]; 0: the registry never knew it.
    pub(crate) instance: u64,
}

impl ProcessKey {
    pub(crate) fn of(process: &Process) -> Self {
        Self { pid: process.pid().0, instance: process.instance() }
    }
}

/// A stack as it was walked.
#[derive(Debug)]
pub(crate) struct Stack {
    /// Tells it from other stacks of this run.
    pub(crate) number: u64,
    /// Leaf first.
    pub(crate) frames: Box<[Frame]>,
    /// Whether a frame of it is in memory that no file backs, so that it means something in one process only.
    pub(crate) has_code_without_file: bool,
}

impl Stack {
    pub(crate) fn new(number: u64, frames: Box<[Frame]>) -> Self {
        let has_code_without_file = frames.iter().any(is_without_file);
        Self { number, frames, has_code_without_file }
    }
}

/// Whether a frame is in memory that no file backs.
pub(crate) fn is_without_file(frame: &Frame) -> bool {
    frame.kind() == Some(FrameKind::Anonymous)
}

/// One sample.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Why it was taken.
    pub(crate) kind: SampleKind,
    /// What it counts for, as its kind has it: 1 for an interrupt.
    pub(crate) value: u64,
    /// `CLOCK_MONOTONIC`.
    pub(crate) time_ns: u64,
    pub(crate) process: ProcessKey,
    pub(crate) tid: u32,
    pub(crate) cpu: u32,
    /// The thread's name, up to the first NUL.
    pub(crate) comm: [u8; 16],
    /// How the walk ended.
    pub(crate) outcome: Outcome,
    /// `None`: the body never arrived.
    pub(crate) stack: Option<Arc<Stack>>,
    /// The span that the thread said it was in.
    pub(crate) span: Option<Link>,
    /// What else it said.
    pub(crate) labels: Labels,
}

/// A file that frames refer to.
#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    /// As its process sees it; may be empty.
    pub(crate) path: String,
    pub(crate) build_ids: BuildIds,
    pub(crate) hash: Option<FileHash>,
    pub(crate) loads: Vec<LoadSegment>,
    /// Its content, which outlives the process.
    pub(crate) content: Option<OpenedFile>,
    /// Its separate debug file and the like, once they have been looked for.
    pub(crate) companions: Companions,
}

impl FileFacts {
    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("[unknown file]")
    }
}

/// What sampling has to say, in an order in which each message refers only to what came before.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A file, when it is first met, and again once its content could be read.
    File(FileId, Arc<FileFacts>),
    /// A file that no frame to come is in.
    ForgetFile(FileId),
    /// A process, before its first event.
    Process(ProcessKey, Arc<ProcessDescription>),
    /// Where a process's runtime writes names of its code, before the first event with such code.
    Jit(ProcessKey, Arc<JitPlace>),
    /// A process of which no more events are to be expected: one that comes all the same tells of it anew.
    Departed(ProcessKey),
    /// An interrupt.
    Event(Event),
}
