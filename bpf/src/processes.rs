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

/// One executable mapping, or the part of one that a segment covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedRange {
    /// Where it starts; a multiple of the page size.
    pub start: Avma,
    /// Its length; a multiple of the page size.
    pub bytes: u64,
    /// The file that backs it, by number; 0: none does.
    pub file: u32,
    /// What part of the file is mapped at `start`.
    pub file_offset: FileOffset,
    /// Where its unwind table is, if it is to have one.
    pub segment: Option<SegmentId>,
}

/// Where the threads of a process keep a thread-local variable: each its own copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsVariable {
    /// In the block that each thread is given with its control block.
    Static {
        /// From the thread pointer.
        offset: i32,
        /// What it points to, unless it is null.
        to: Pointee,
    },
    /// In a block that a thread is given when it first needs it.
    Dynamic {
        /// The number of the module in the thread's vector of blocks, from 1.
        module: u16,
        /// From the start of the block.
        offset: i32,
        /// Whose vectors they are.
        vector: TlsVector,
        /// What it points to, unless it is null.
        to: Pointee,
    },
    /// None of its own: what leads to the pprof labels of the goroutine that a thread runs.
    Goroutine {
        /// Of the thread's `g`, from the thread pointer.
        g: i32,
        /// Of `curg` in an `m`: a multiple of 8 below 2048.
        curg: u16,
        /// Of `labels` in a `g`, likewise.
        labels: u16,
        /// Whether labels are a slice, as they are since Go 1.24, or a map.
        is_slice: bool,
    },
}

/// What a thread's variable points to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pointee {
    /// The record of the thread (OTEP 4947).
    Record,
    /// A set of labels (custom-labels, ABI 1).
    LabelSet,
}

/// The form of the vectors that lead to the blocks of thread-local variables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsVector {
    /// glibc's.
    Glibc,
    /// musl's.
    Musl,
}

impl TlsVariable {
    /// Variables of one process that are looked at.
    pub const MAX: usize = intf::SW_TLS_VARIABLES_MAX as usize;
    /// The highest number of a module that is followed.
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

/// Why a process could not be made known to walks.
#[derive(Debug, Error)]
pub enum ProcessesError {
    /// No place is free near its hash.
    #[error("no room for process {pid} in a table of {places} places")]
    Full {
        /// The process.
        pid: u32,
        /// Places in all.
        places: usize,
    },
    /// No room for its mappings.
    #[error("no room for the mappings of process {pid}")]
    Mappings {
        /// The process.
        pid: u32,
        /// Why.
        source: ArenaError,
    },
}

/// See the [module](self).
#[derive(Debug)]
pub struct ProcessMap {
    slots: MappedArray,
    /// By place.
    blocks: Vec<Option<ArenaBlock>>,
    count: usize,
}

impl ProcessMap {
    pub(crate) fn new(places: MappedArray) -> Self {
        let blocks = std::iter::repeat_with(|| None).take(places.entries()).collect();
        Self { slots: places, blocks, count: 0 }
    }

    /// Processes that are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Makes walks of a process use these ranges, which are sorted, don't overlap, and are all that it had at
    /// `known_ns`, and has samples of its threads tell what these variables point to ([`TlsVariable::MAX`] of them). A later
    /// process of the same number does not use them: it started after that.
    ///
    /// # Errors
    /// If the table of processes or the arena is full; walks then find what they found before.
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

    /// Says that the ranges published for a process are still all that it has at `known_ns`.
    pub fn confirm(&self, pid: u32, known_ns: u64) {
        if let Some(place) = self.find(pid) {
            self.word(place, offset_of!(sw_process, known_ns)).fetch_max(known_ns, Ordering::Release);
        }
    }

    /// Up to when the ranges of a process are known to be all that it had.
    #[must_use]
    pub fn known_ns(&self, pid: u32) -> Option<u64> {
        self.find(pid).map(|place| self.word(place, offset_of!(sw_process, known_ns)).load(Ordering::Relaxed))
    }

    /// Whether a process ran exec after its ranges were known.
    #[must_use]
    pub fn is_outdated(&self, pid: u32) -> bool {
        self.find(pid).is_some_and(|place| {
            let exec_ns = self.word(place, offset_of!(sw_process, exec_ns)).load(Ordering::Acquire);
            self.word(place, offset_of!(sw_process, known_ns)).load(Ordering::Relaxed) <= exec_ns
        })
    }

    /// Forgets a process.
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

    /// The places where a process may be, in the order in which `c/table.bpf.h` looks.
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
