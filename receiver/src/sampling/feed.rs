//! The messages from sampling to the reporter: events with their stacks, and what these refer to, once.

use std::sync::Arc;

use sidewinder_address::{FileOffset, LoadSegment};
use sidewinder_bpf::{Frame, FrameKind, Outcome};
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::Link;
use sidewinder_process::{BuildIds, FileHash, FileId, OpenedFile, ProcessDescription, ProcessKey};

use super::control::tables::debug_file::Companions;
pub(crate) use super::data::Labels;
use crate::jit::JitPlace;

/// A stack as it was walked.
#[derive(Debug)]
pub(crate) struct Stack {
    /// Unique in this run.
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

/// The instruction that a frame is at, in its file.
pub(crate) fn instruction_of(frame: &Frame) -> Option<(FileId, FileOffset)> {
    match frame.kind()? {
        FrameKind::Native { file } => {
            Some((FileId(file), FileOffset(frame.address() - u64::from(frame.is_return_address()))))
        }
        FrameKind::Kernel | FrameKind::Anonymous => None,
    }
}

/// One sample.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The kind of profile that it is for.
    pub(crate) kind: Kind,
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
    /// The span that the thread published.
    pub(crate) span: Option<Link>,
    /// What else it published.
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
    /// Its separate debug file and the like, once searched.
    pub(crate) companions: Companions,
}

impl FileFacts {
    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("[unknown file]")
    }
}

/// A message from sampling to the reporter. Each refers only to what earlier ones announce.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A file, when a frame first refers to it, and again once its headers have been read.
    File(FileId, Arc<FileFacts>),
    /// A file that no later frame refers to.
    ForgetFile(FileId),
    /// A process, before its first event, and again when its description changes.
    Process(ProcessKey, Arc<ProcessDescription>),
    /// Where the runtime of a process writes the names of its code, before the first event with such code.
    Jit(ProcessKey, Arc<JitPlace>),
    /// A process that has exited. An event that arrives later still announces it again.
    Departed(ProcessKey),
    /// An interrupt.
    Event(Event),
}
