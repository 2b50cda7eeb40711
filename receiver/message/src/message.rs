//! Messages from sampling to the reporter: events with their stacks, and the files and processes that they refer to. Each
//! file and process is announced before the first event that refers to it.

use std::fmt;
use std::sync::Arc;

use sidewinder_address::{FileOffset, LoadSegment};
use sidewinder_bpf::{CodeObject, LockEvidence, Outcome, RawFrame, RawFrameKind, WaitReason};
use sidewinder_debug_files::Companions;
use sidewinder_kind::Kind;
use sidewinder_process::{BuildIds, FileHash, FileId, OpenedFile, ProcessDescription, ProcessKey};
use sidewinder_profile::Link;

use crate::{JitSource, RuntimeSource};

/// Attributes of an event as key-value pairs, sorted by key.
pub type Labels = Arc<[(Arc<str>, Arc<str>)]>;

/// A walked stack.
#[derive(Debug)]
pub struct Stack {
    /// Unique in this run.
    pub id: u64,
    /// Leaf first.
    pub frames: Box<[RawFrame]>,
    /// Whether a frame is in anonymous memory.
    pub has_anonymous_code: bool,
    /// Whether a frame is of a runtime.
    pub has_vm_frames: bool,
}

impl Stack {
    /// A stack with this ID, which no other stack of the run has, and these frames.
    pub fn new(id: u64, frames: Box<[RawFrame]>) -> Self {
        let has_anonymous_code = frames.iter().any(|frame| frame.kind() == Some(RawFrameKind::Anonymous));
        let has_vm_frames = frames.iter().any(|frame| frame.kind().is_some_and(is_of_vm));
        Self { id, frames, has_anonymous_code, has_vm_frames }
    }

    /// Whether a snapshot of the stack has all that its walk needs, as far as its frames tell.
    pub fn is_in_snapshots(&self) -> bool {
        !self.has_vm_frames
            || self.frames.iter().all(|frame| match frame.kind() {
                Some(RawFrameKind::Vm(function)) => function.runtime.is_in_snapshots(),
                _ => true,
            })
    }

    /// Whether the stack has a meaning only within one process, because one of its frames has.
    pub fn is_process_specific(&self) -> bool {
        self.has_anonymous_code || self.has_vm_frames
    }
}

/// Whether a frame has a meaning only within one process: it is in anonymous memory, or of a runtime.
pub fn is_process_specific(frame: &RawFrame) -> bool {
    frame.kind().is_some_and(|kind| kind == RawFrameKind::Anonymous || is_of_vm(kind))
}

fn is_of_vm(kind: RawFrameKind) -> bool {
    matches!(kind, RawFrameKind::Vm(_))
}

/// The file and file offset of a frame's instruction; `None` if no file backs it. A return address is moved back by one,
/// into the call.
pub fn file_location(frame: &RawFrame) -> Option<(FileId, FileOffset)> {
    match frame.kind()? {
        RawFrameKind::Native { file } => {
            Some((FileId(file), FileOffset(frame.address() - u64::from(frame.is_return_address()))))
        }
        RawFrameKind::Kernel
        | RawFrameKind::Anonymous
        | RawFrameKind::Vm(_)
        | RawFrameKind::Missing { .. } => None,
    }
}

/// One sample.
#[derive(Clone, Debug)]
pub struct SampleEvent {
    /// The kind of profile that it is for.
    pub kind: Kind,
    /// Its weight, in the unit of its kind: 1 for an interrupt.
    pub value: u64,
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The process that was sampled, or charged.
    pub process: ProcessKey,
    /// The thread's ID in our PID namespace.
    pub tid: u32,
    /// The CPU that the thread ran on.
    pub cpu: u32,
    /// The thread's name, up to the first NUL.
    pub comm: [u8; 16],
    /// How the walk ended.
    pub outcome: Outcome,
    /// `None`: the stack's record never arrived.
    pub stack: Option<Arc<Stack>>,
    /// The span that was active on the thread, as the thread published it.
    pub span: Option<Link>,
    /// The thread's other published attributes.
    pub labels: Labels,
    /// What the thread waited for, if it did.
    pub wait: Option<WaitReason>,
    /// Of an event of waits for locks.
    pub lock: Option<LockSample>,
    /// Of an event of a thread that ended the wait of another one.
    pub ended: Option<Box<EndedWait>>,
}

/// The wait of another thread that the thread of an event ended.
#[derive(Clone, Debug)]
pub struct EndedWait {
    /// The process of the thread that waited.
    pub process: ProcessKey,
    /// The stack with which it waited, which tells whether it waited for a lock.
    pub stack: Option<Arc<Stack>>,
}

/// The futex in which a thread waited, perhaps for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LockSample {
    /// Tells the lock apart from the others of a run, of any process, and does not tell its address. `None`: unknown.
    pub id: Option<LockId>,
    /// What the system call says of it.
    pub evidence: LockEvidence,
}

/// A hash of a lock's process and address, with a secret of this run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LockId(pub u64);

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A file that frames refer to.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// As seen by the process that maps it; may be empty.
    pub path: String,
    /// The build IDs in its notes.
    pub build_ids: BuildIds,
    /// The hash of its content by which OpenTelemetry identifies executables; `None` if it could not be read.
    pub hash: Option<FileHash>,
    /// Its loadable segments, by which offsets in the file become addresses.
    pub loads: Vec<LoadSegment>,
    /// The open file, which stays readable after the process exits.
    pub content: Option<OpenedFile>,
    /// Its separate debug files, once they have been searched for.
    pub companions: Companions,
}

impl FileInfo {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("[unknown file]")
    }

    /// Whether the file exists only in memory (memfd_create(2)), as generated code does that a runtime maps twice, once to
    /// write it.
    pub fn is_memory_file(&self) -> bool {
        self.path.starts_with("/memfd:")
    }
}

/// A message from sampling to the reporter. It refers only to files, processes and sources that earlier messages announced.
#[derive(Clone, Debug)]
pub enum Message {
    /// A file: sent when a frame first refers to it, and again once its headers have been read.
    File(FileId, Arc<FileInfo>),
    /// A file that no later frame refers to.
    ForgetFile(FileId),
    /// A process: sent before its first event, and again when its description changes.
    Process(ProcessKey, Arc<ProcessDescription>),
    /// Where the runtime of a process publishes the names of its generated code: sent before the first event with such code.
    JitSource(ProcessKey, Arc<JitSource>),
    /// A runtime that a process runs: sent before the first event with its frames.
    Runtime(ProcessKey, Arc<RuntimeSource>),
    /// A function of a process with a runtime, copied when it ran.
    CodeObject(ProcessKey, Box<CodeObject>),
    /// A process that has exited. If a later event still refers to it, it is announced again first.
    ProcessExited(ProcessKey),
    /// A sample.
    Event(SampleEvent),
}

impl Message {
    /// Whether it is a sample, to which no other message refers.
    pub fn is_event(&self) -> bool {
        matches!(self, Self::Event(_))
    }
}
