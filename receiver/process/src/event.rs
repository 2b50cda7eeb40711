//! Process events, as the kernel side reports them.

use std::ops::Range;

use sidewinder_address::{Avma, FileOffset};

use crate::id::{MappedIdentity, Pid, Tid};
use crate::mapping::{Backing, ExecutableMapping};

/// One event of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessEvent {
    /// The time, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The process.
    pub pid: Pid,
    /// The event.
    pub kind: ProcessEventKind,
}

/// The kinds of events, as in perf's side band.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProcessEventKind {
    /// A thread started: the first of a new process, or another one of an existing process.
    Fork {
        /// The process that called fork or clone.
        parent: Pid,
        /// Whether the new thread belongs to an existing process.
        is_thread: bool,
    },
    /// The process executed another program: all earlier mappings are gone, and all threads but one.
    Exec {
        /// The name that the kernel gives it, at most 15 bytes.
        comm: Box<[u8]>,
    },
    /// Memory was mapped, or its protection was changed.
    Map {
        /// The address range.
        range: Range<Avma>,
        /// The offset in the file of the first byte.
        file_offset: FileOffset,
        /// The identity of the file; `None` if no file is mapped.
        file: Option<MappedIdentity>,
        /// The path as the kernel writes it, or its name for memory without a file.
        path: Box<[u8]>,
        /// Whether the memory is executable. If not, the event only removes what was mapped there.
        executable: bool,
    },
    /// A thread ended.
    Exit {
        /// The thread.
        tid: Tid,
    },
    /// The kernel dropped this many events before this time; `pid` is meaningless.
    Lost {
        /// The number of dropped events.
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
