//! The executable mappings of processes, as walks look them up.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use sidewinder_address::{Avma, FileOffset};
use thiserror::Error;
use zerocopy::IntoBytes;

use crate::arena::{Arena, ArenaBlock, ArenaError};
use crate::intf::{self, sw_process, sw_range, sw_ranges, sw_runtime, sw_tls_variable};
use crate::memory::MappedArray;
use crate::runtime::{PublishedRuntime, RuntimeCode};
use crate::tables::SegmentId;
use crate::tls::TlsVariable;

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
    /// Samples of its threads include what `variables` point to (at most [`TlsVariable::MAX`]), and the frames of its
    /// `runtimes`: of one for each [`RuntimeCode`]. A later process with the same id does not use them, since it started later.
    ///
    /// # Errors
    /// If the table of processes or the arena is full; walks then keep using the previous mappings.
    pub fn publish(
        &mut self,
        arena: &mut Arena,
        pid: u32,
        ranges: &[MappedRange],
        variables: &[TlsVariable],
        runtimes: &[&PublishedRuntime],
        known_ns: u64,
    ) -> Result<(), ProcessesError> {
        let place = self
            .find(pid)
            .or_else(|| self.free_slot(pid))
            .ok_or(ProcessesError::Full { pid, places: self.slots.entries() })?;
        let block = arena
            .store(&encode(ranges, variables, runtimes))
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

fn encode(ranges: &[MappedRange], variables: &[TlsVariable], runtimes: &[&PublishedRuntime]) -> Vec<u8> {
    let variables = &variables[..variables.len().min(TlsVariable::MAX)];
    let first = |code| runtimes.iter().find(|published| published.runtime().code() == code);
    let [with_loop, with_cache] = RuntimeCode::ALL.map(|code| first(code).map(|found| found.encode()));
    let runtimes: Vec<sw_runtime> = with_loop.into_iter().chain(with_cache).collect();
    let head_bytes = size_of::<sw_ranges>()
        + size_of::<sw_tls_variable>() * variables.len()
        + size_of_val(runtimes.as_slice());
    let mut bytes = Vec::with_capacity(head_bytes + size_of_val(ranges));
    let head = sw_ranges {
        count: ranges.len() as u32,
        variables: variables.len() as u16,
        interpreters: with_loop.is_some().into(),
        hotspots: with_cache.is_some().into(),
    };
    bytes.extend(head.as_bytes());
    for variable in variables {
        bytes.extend(variable.encode().as_bytes());
    }
    for runtime in &runtimes {
        bytes.extend(runtime.as_bytes());
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
