//! What happens to processes, as the kernel side reports it.

use std::ops::Range;

use sidewinder_address::{Avma, FileOffset};

use crate::id::{MappedIdentity, Pid, Tid};
use crate::mapping::{Backing, ExecutableMapping};

/// One thing that happened to one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessEvent {
    /// When: nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// To which process.
    pub pid: Pid,
    /// What.
    pub kind: ProcessEventKind,
}

/// The kinds of events, as perf's side band has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProcessEventKind {
    /// A thread came to life: the first of a new process, or one more of a known one.
    Fork {
        /// The process that called fork or clone.
        parent: Pid,
        /// Whether the new thread belongs to a process that was there before.
        is_thread: bool,
    },
    /// The process runs another program now: all mappings from before are gone, and all threads but one.
    Exec {
        /// The name that the kernel gives it, at most 15 bytes.
        comm: Box<[u8]>,
    },
    /// Memory was mapped, or its protection was changed.
    Map {
        /// Where.
        range: Range<Avma>,
        /// Which byte of the file comes first.
        file_offset: FileOffset,
        /// What tells the file from others; `None` where no file is behind.
        file: Option<MappedIdentity>,
        /// The path as the kernel writes it, or its name for memory without a file.
        path: Box<[u8]>,
        /// Whether the memory may be executed. Where not, the event only ends what was there.
        executable: bool,
    },
    /// A thread ended.
    Exit {
        /// Which one.
        tid: Tid,
    },
    /// The kernel dropped this many events before this time; `pid` means nothing.
    Lost {
        /// How many.
        count: u64,
    },
}

impl ProcessEventKind {
    /// The mapping that a map event reports.
    pub(crate) fn mapping(
        range: Range<Avma>,
        file_offset: FileOffset,
        file: Option<MappedIdentity>,
        path: &[u8],
    ) -> ExecutableMapping {
        ExecutableMapping { range, file_offset, backing: Backing::from_report(file, path) }
    }
}
