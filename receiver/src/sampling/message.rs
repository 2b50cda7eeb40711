//! The messages from sampling to the reporter: events with their stacks, and what these refer to, once.

use std::sync::Arc;

use sidewinder_address::{FileOffset, LoadSegment};
use sidewinder_bpf::{Outcome, RawFrame, RawFrameKind};
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::Link;
use sidewinder_process::{BuildIds, FileHash, FileId, OpenedFile, ProcessDescription, ProcessKey};

use super::control::tables::debug_files::Companions;
pub(crate) use super::data::Labels;
use crate::jit::JitSource;

/// A stack as it was walked.
#[derive(Debug)]
pub(crate) struct Stack {
    /// Unique in this run.
    pub(crate) id: u64,
    /// Leaf first.
    pub(crate) frames: Box<[RawFrame]>,
    /// Whether a frame of it is in memory that no file backs, so that it means something in one process only.
    pub(crate) has_anonymous_code: bool,
}

impl Stack {
    pub(crate) fn new(number: u64, frames: Box<[RawFrame]>) -> Self {
        let has_code_without_file = frames.iter().any(is_anonymous);
        Self { id: number, frames, has_anonymous_code: has_code_without_file }
    }
}

/// Whether a frame is in memory that no file backs.
pub(crate) fn is_anonymous(frame: &RawFrame) -> bool {
    frame.kind() == Some(RawFrameKind::Anonymous)
}

/// The instruction that a frame is at, in its file.
pub(crate) fn file_location(frame: &RawFrame) -> Option<(FileId, FileOffset)> {
    match frame.kind()? {
        RawFrameKind::Native { file } => {
            Some((FileId(file), FileOffset(frame.address() - u64::from(frame.is_return_address()))))
        }
        RawFrameKind::Kernel | RawFrameKind::Anonymous => None,
    }
}

/// One sample.
#[derive(Clone, Debug)]
pub(crate) struct SampleEvent {
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
pub(crate) struct FileInfo {
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

impl FileInfo {
    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("[unknown file]")
    }
}

/// A message from sampling to the reporter. Each refers only to what earlier ones announce.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A file, when a frame first refers to it, and again once its headers have been read.
    File(FileId, Arc<FileInfo>),
    /// A file that no later frame refers to.
    ForgetFile(FileId),
    /// A process, before its first event, and again when its description changes.
    Process(ProcessKey, Arc<ProcessDescription>),
    /// Where the runtime of a process writes the names of its code, before the first event with such code.
    JitSource(ProcessKey, Arc<JitSource>),
    /// A process that has exited. An event that arrives later still announces it again.
    ProcessExited(ProcessKey),
    /// An interrupt.
    Event(SampleEvent),
}
