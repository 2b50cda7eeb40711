//! The executable mappings of processes, as walks look them up.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use sidewinder_address::{Avma, FileOffset};
use thiserror::Error;
use zerocopy::IntoBytes;

use crate::arena::{Arena, ArenaBlock, ArenaError};
use crate::intf::{self, sw_process, sw_range, sw_ranges, sw_tls_variable};
use crate::memory::MappedArray;
use crate::tables::SegmentId;

/// An executable mapping, or the part of one that a segment covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedRange {
    /// Its start address; a multiple of the page size.
    pub start: Avma,
    /// Its length; a multiple of the page size.
    pub bytes: u64,
    /// The id of the file that backs it; 0: none.
    pub file: u32,
    /// The file offset that is mapped at `start`.
    pub file_offset: FileOffset,
    /// The segment with its unwind table, if it has one.
    pub segment: Option<SegmentId>,
}

/// How to find each thread's copy of a thread-local variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsVariable {
    /// In the static TLS block, which each thread gets with its control block.
    Static {
        /// Offset from the thread pointer.
        offset: i32,
        /// What the variable points to, unless it is null.
        to: Pointee,
    },
    /// In a dynamic TLS block, which a thread gets on first use.
    Dynamic {
        /// The module's index in the thread's dynamic thread vector, from 1.
        module: u16,
        /// Offset from the start of the block.
        offset: i32,
        /// The format of the vector.
        vector: TlsVector,
        /// What the variable points to, unless it is null.
        to: Pointee,
    },
    /// Not a variable, but the path to the pprof labels of the goroutine that a thread runs.
    Goroutine {
        /// Offset of the thread's `g` from the thread pointer.
        g: i32,
        /// Offset of `curg` in an `m`: a multiple of 8 below 2048.
        curg: u16,
        /// Offset of `labels` in a `g`, likewise.
        labels: u16,
        /// Whether labels are a slice, as since Go 1.24, or a map.
        is_slice: bool,
    },
}

/// What a thread's variable points to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pointee {
    /// The context record of the thread (OTEP 4947).
    Record,
    /// A set of labels (custom-labels, ABI 1).
    LabelSet,
}

/// The format of dynamic thread vectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsVector {
    /// glibc's.
    Glibc,
    /// musl's.
    Musl,
}

impl TlsVariable {
    /// The maximum number of variables per process.
    pub const MAX: usize = intf::SW_TLS_VARIABLES_MAX as usize;
    /// The highest supported module index.
    pub const MODULE_MAX: u16 = intf::SW_TLS_MODULE_MAX as u16;

    fn encode(self) -> sw_tls_variable {
        let pointing = |model: u32, to| match to {
            Pointee::Record => model,
            Pointee::LabelSet => model | intf::SW_TLS_LABEL_SET,
        };
        let (offset, module, model) = match self {
            Self::Static { offset, to } => (offset, 0, pointing(intf::SW_TLS_STATIC, to)),
            Self::Dynamic { module, offset, vector, to } => {
                let model = match vector {
                    TlsVector::Glibc => intf::SW_TLS_GLIBC,
                    TlsVector::Musl => intf::SW_TLS_MUSL,
                };
                (offset, module, pointing(model, to))
            }
            Self::Goroutine { g, curg, labels, is_slice } => {
                let model = if is_slice { intf::SW_TLS_GO_SLICE } else { intf::SW_TLS_GO_MAP };
                (g, (curg / 8) & 0xff | (labels / 8) << 8, model)
            }
        };
        sw_tls_variable { offset, module, model: model as u16 }
    }
}

/// Why a process could not be published.
#[derive(Debug, Error)]
pub enum ProcessesError {
    /// There is no free entry near its hash.
    #[error("no room for process {pid} in a table of {places} places")]
    Full {
        /// The process.
        pid: u32,
        /// The length of the table.
        places: usize,
    },
    /// There is no room for its mappings.
    #[error("no room for the mappings of process {pid}")]
    Mappings {
        /// The process.
        pid: u32,
        /// The cause.
        source: ArenaError,
    },
}

/// The table of processes and their mappings that walks look up; part of the [`Profiler`](crate::Profiler).
#[derive(Debug)]
pub struct ProcessMap {
    slots: MappedArray,
    /// By index in the table.
    blocks: Vec<Option<ArenaBlock>>,
    count: usize,
}

impl ProcessMap {
    pub(crate) fn new(places: MappedArray) -> Self {
        let blocks = std::iter::repeat_with(|| None).take(places.entries()).collect();
        Self { slots: places, blocks, count: 0 }
    }

    /// The number of known processes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Publishes the mappings of a process: `ranges` are sorted, don't overlap, and are all that it had at `known_ns`.
    /// Samples of its threads include what `variables` point to (at most [`TlsVariable::MAX`]). A later process with the
    /// same id does not use them, since it started later.
    ///
    /// # Errors
    /// If the table of processes or the arena is full; walks then keep using the previous mappings.
    pub fn publish(
        &mut self,
        arena: &mut Arena,
        pid: u32,
        ranges: &[MappedRange],
        variables: &[TlsVariable],
        known_ns: u64,
    ) -> Result<(), ProcessesError> {
        let place = self
            .find(pid)
            .or_else(|| self.free_slot(pid))
            .ok_or(ProcessesError::Full { pid, places: self.slots.entries() })?;
        let block = arena
            .store(&encode(ranges, variables))
            .map_err(|source| ProcessesError::Mappings { pid, source })?;
        let is_new = self.pid(place) != pid;
        if is_new {
            self.word(place, offset_of!(sw_process, exec_ns)).store(0, Ordering::Relaxed);
        }
        self.word(place, offset_of!(sw_process, ranges)).store(block.location(), Ordering::Release);
        self.word(place, offset_of!(sw_process, known_ns)).store(known_ns, Ordering::Release);
        if is_new {
            self.slots.atomic_u32(place, offset_of!(sw_process, pid)).store(pid, Ordering::Release);
            self.count += 1;
        }
        if let Some(old) = self.blocks[place].replace(block) {
            arena.retire(old);
        }
        Ok(())
    }

    /// Records that the published ranges of a process are still complete at `known_ns`.
    pub fn confirm(&self, pid: u32, known_ns: u64) {
        if let Some(place) = self.find(pid) {
            self.word(place, offset_of!(sw_process, known_ns)).fetch_max(known_ns, Ordering::Release);
        }
    }

    /// The time up to which the published ranges of a process are known to be complete.
    #[must_use]
    pub fn known_ns(&self, pid: u32) -> Option<u64> {
        self.find(pid).map(|place| self.word(place, offset_of!(sw_process, known_ns)).load(Ordering::Relaxed))
    }

    /// Whether a process ran exec after its ranges were read.
    #[must_use]
    pub fn is_outdated(&self, pid: u32) -> bool {
        self.find(pid).is_some_and(|place| {
            let exec_ns = self.word(place, offset_of!(sw_process, exec_ns)).load(Ordering::Acquire);
            self.word(place, offset_of!(sw_process, known_ns)).load(Ordering::Relaxed) <= exec_ns
        })
    }

    /// Removes a process.
    pub fn remove(&mut self, arena: &mut Arena, pid: u32) {
        let Some(place) = self.find(pid) else { return };
        self.slots.atomic_u32(place, offset_of!(sw_process, pid)).store(0, Ordering::SeqCst);
        self.word(place, offset_of!(sw_process, ranges)).store(0, Ordering::SeqCst);
        if let Some(block) = self.blocks[place].take() {
            arena.retire(block);
        }
        self.count -= 1;
    }

    fn find(&self, pid: u32) -> Option<usize> {
        self.probe(pid).find(|place| self.pid(*place) == pid)
    }

    fn free_slot(&self, pid: u32) -> Option<usize> {
        self.probe(pid).find(|place| self.pid(*place) == 0)
    }

    /// The indices at which a process can be, in the order in which `c/table.bpf.h` probes them.
    fn probe(&self, pid: u32) -> impl Iterator<Item = usize> {
        let places = self.slots.entries();
        let first = pid.wrapping_mul(intf::SW_HASH_MULTIPLIER) >> intf::SW_PROCESS_PLACE_SHIFT;
        (0..intf::SW_PROCESS_PROBES).map(move |probe| first.wrapping_add(probe) as usize & (places - 1))
    }

    fn pid(&self, place: usize) -> u32 {
        self.slots.atomic_u32(place, offset_of!(sw_process, pid)).load(Ordering::Acquire)
    }

    fn word(&self, place: usize, offset: usize) -> &std::sync::atomic::AtomicU64 {
        self.slots.atomic_u64(place, offset)
    }
}

fn encode(ranges: &[MappedRange], variables: &[TlsVariable]) -> Vec<u8> {
    let variables = &variables[..variables.len().min(TlsVariable::MAX)];
    let head_bytes = size_of::<sw_ranges>() + size_of::<sw_tls_variable>() * variables.len();
    let mut bytes = Vec::with_capacity(head_bytes + size_of_val(ranges));
    let head = sw_ranges { count: ranges.len() as u32, variables: variables.len() as u32 };
    bytes.extend(head.as_bytes());
    for variable in variables {
        bytes.extend(variable.encode().as_bytes());
    }
    for range in ranges {
        let pages = |bytes: u64| (bytes >> intf::SW_PAGE_SHIFT) as u32;
        let range = sw_range {
            start: range.start.0,
            pages: pages(range.bytes),
            file: range.file,
            file_page: pages(range.file_offset.0),
            segment: range.segment.map_or(0, |segment| segment.0),
        };
        bytes.extend(range.as_bytes());
    }
    debug_assert_eq!(bytes.len(), head_bytes + ranges.len() * size_of::<sw_range>());
    bytes
}
