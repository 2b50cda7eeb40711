//! The side band: events from the kernel about processes that fork, exec, map files and exit.
//!
//! These are dummy events, read from the perf ring of each CPU. The format is that of `struct perf_event_mmap_page` and
//! of the records described with `enum perf_event_type` in `include/uapi/linux/perf_event.h`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::{self as sys, bindings as perf};
use sidewinder_address::{Avma, FileOffset};
use zerocopy::{FromBytes, IntoBytes};

use crate::container::CgroupId;
use crate::events::EventError;
use crate::ring::whole_pages;
use sidewinder_kind::CpuIds;

/// The size of a ring, unless a page is larger. All rings of a user share 516 KiB per CPU, so they are kept small.
const RING_BYTES: u32 = 32 << 10;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const MISC_COMM_EXEC: u16 = 1 << 13;
/// `PROT_EXEC`.
const PROT_EXEC: u32 = 4;

/// An event of a process. Process and thread ids are those of our PID namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SideBandEvent {
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Process id (thread group); 0 or `u32::MAX`: outside our namespace.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// What happened.
    pub kind: SideBandKind,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SideBandKind {
    /// The thread was created, in a new process unless `parent_pid` is its own.
    Fork {
        /// The process that forked.
        parent_pid: u32,
    },
    /// The process ran exec; its new mappings follow.
    Exec {
        /// Its new name.
        comm: Vec<u8>,
    },
    /// The thread exited.
    Exit,
    /// An executable mapping was created, replacing any mappings at its addresses.
    Map {
        /// Its start address.
        start: Avma,
        /// Its length.
        bytes: u64,
        /// The file offset at its start.
        file_offset: FileOffset,
        /// Major and minor number of the file's device, as the kernel sees it.
        device: (u32, u32),
        /// Inode number.
        inode: u64,
        /// Generation of the inode.
        inode_generation: u64,
        /// The path in the process's own root, or a name such as `[vdso]`.
        path: Vec<u8>,
    },
    /// The ring was full: events of any process may be missing.
    Lost {
        /// The number of lost events.
        count: u64,
    },
}

/// The perf rings of the side band, one per CPU, and the events that write into them.
#[derive(Debug)]
pub struct SideBand {
    rings: Vec<Ring>,
    /// Events that write into these rings, by container: one per ring.
    container_events: Vec<(CgroupId, Vec<OwnedFd>)>,
}

#[derive(Debug)]
struct Ring {
    event: OwnedFd,
    memory: MmapRaw,
    /// Size of the data after the first page; a power of two.
    data_bytes: usize,
}

impl SideBand {
    /// Maps a ring for the event of each CPU.
    pub(crate) fn new(cpus: &CpuIds, events: Vec<OwnedFd>) -> Result<Self, EventError> {
        let ring = |(cpu, event): (u32, OwnedFd)| {
            let data_bytes = whole_pages(RING_BYTES) as usize;
            let memory = MmapOptions::new()
                .len(data_bytes + rustix::param::page_size())
                .map_raw(event.as_raw_fd())
                .map_err(|source| EventError::Map { cpu, source })?;
            Ok(Ring { event, memory, data_bytes })
        };
        let rings = cpus.iter().zip(events).map(ring).collect::<Result<_, EventError>>()?;
        Ok(Self { rings, container_events: Vec::new() })
    }

    /// Makes the events of a container, on the same CPUs, write into the same rings: all rings of a user share a limit of
    /// locked memory.
    pub(crate) fn add(&mut self, container: CgroupId, events: Vec<OwnedFd>) -> Result<(), EventError> {
        for (ring, event) in self.rings.iter().zip(&events) {
            // SAFETY: an ioctl that takes a descriptor by value; both are open.
            let done = unsafe { sys::ioctls::SET_OUTPUT(event.as_raw_fd(), ring.event.as_raw_fd()) };
            if done < 0 {
                return Err(EventError::Share(io::Error::last_os_error()));
            }
        }
        self.container_events.push((container, events));
        Ok(())
    }

    /// Closes the events of a container.
    pub(crate) fn close(&mut self, container: CgroupId) {
        self.container_events.retain(|(known, _)| *known != container);
    }

    /// Descriptors that become readable when a ring has records.
    pub(crate) fn events(&self) -> impl Iterator<Item = &OwnedFd> {
        self.rings.iter().map(|ring| &ring.event)
    }

    /// Reads all available events: in order for each CPU, in no order between CPUs. Returns how full the fullest ring
    /// was, from 0 to 1.
    pub fn drain(&mut self, mut take: impl FnMut(SideBandEvent)) -> f64 {
        let filled = self.rings.iter_mut().map(|ring| ring.drain(&mut take) as f64 / ring.data_bytes as f64);
        filled.fold(0.0, f64::max)
    }
}

impl Ring {
    /// Returns how many bytes the ring contained.
    fn drain(&mut self, take: &mut impl FnMut(SideBandEvent)) -> u64 {
        let head = self.position(std::mem::offset_of!(perf::perf_event_mmap_page, data_head));
        let tail = self.position(std::mem::offset_of!(perf::perf_event_mmap_page, data_tail));
        let end = head.load(Ordering::Acquire);
        let start = tail.load(Ordering::Relaxed);
        let mut at = start;
        let mut record = Vec::new();
        while at < end {
            let mut header = PerfEventHeader::default();
            self.copy(at, header.as_mut_bytes());
            let bytes = u64::from(header.bytes);
            if bytes < size_of::<PerfEventHeader>() as u64 || bytes > end - at {
                // The kernel never writes this. The next record can't be found, so everything up to the head is skipped.
                take(SideBandEvent { time_ns: 0, pid: 0, tid: 0, kind: SideBandKind::Lost { count: 1 } });
                at = end;
                break;
            }
            record.resize(bytes as usize, 0);
            self.copy(at, &mut record);
            parse(&record).map(&mut *take);
            at += bytes;
        }
        tail.store(at, Ordering::Release);
        at - start
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page of the mapping is a perf_event_mmap_page, whose two positions are aligned words that are
        // shared with the kernel; the mapping lives as long as self.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().wrapping_add(offset).cast()) }
    }

    /// Copies from the data, which starts after the first page and wraps around.
    fn copy(&self, at: u64, to: &mut [u8]) {
        let start = at as usize & (self.data_bytes - 1);
        let before_wrap = to.len().min(self.data_bytes - start);
        let data = self.memory.as_ptr().wrapping_add(rustix::param::page_size());
        let (first, second) = to.split_at_mut(before_wrap);
        // SAFETY: `start` and `before_wrap` are within the data, and the kernel doesn't write between its two positions.
        unsafe { std::ptr::copy_nonoverlapping(data.wrapping_add(start), first.as_mut_ptr(), first.len()) };
        // SAFETY: as above; a record is shorter than the data, so the wrapped part ends before `start`.
        unsafe { std::ptr::copy_nonoverlapping(data, second.as_mut_ptr(), second.len()) };
    }
}

/// `struct perf_event_header`, the start of each record.
#[derive(FromBytes, IntoBytes, Default)]
#[repr(C)]
struct PerfEventHeader {
    record_type: u32,
    misc: u16,
    /// Length of the whole record.
    bytes: u16,
}

/// `struct sample_id` in the requested format, the end of each record.
#[derive(FromBytes)]
#[repr(C)]
struct SampleId {
    _pid: u32,
    _tid: u32,
    time_ns: u64,
}

/// `PERF_RECORD_FORK` and `PERF_RECORD_EXIT`.
#[derive(FromBytes)]
#[repr(C)]
struct Task {
    pid: u32,
    parent_pid: u32,
    tid: u32,
}

/// `PERF_RECORD_COMM`; the name follows.
#[derive(FromBytes)]
#[repr(C)]
struct Comm {
    pid: u32,
    tid: u32,
}

/// `PERF_RECORD_LOST`.
#[derive(FromBytes)]
#[repr(C)]
struct LostRecord {
    _id: u64,
    count: u64,
}

/// `PERF_RECORD_MMAP2`; the path follows.
#[derive(FromBytes)]
#[repr(C)]
struct Mmap2 {
    pid: u32,
    tid: u32,
    start: u64,
    bytes: u64,
    file_offset: u64,
    device: [u32; 2],
    inode: u64,
    inode_generation: u64,
    protection: u32,
    _flags: u32,
}

/// Parses a record; `None` for kinds that aren't used.
fn parse(record: &[u8]) -> Option<SideBandEvent> {
    let (header, record) = PerfEventHeader::read_from_prefix(record).ok()?;
    let (body, sample_id) = SampleId::read_from_suffix(record).ok()?;
    let event = |pid, tid, kind| Some(SideBandEvent { time_ns: sample_id.time_ns, pid, tid, kind });
    match header.record_type {
        perf::PERF_RECORD_FORK => {
            let (Task { pid, parent_pid, tid }, _) = Task::read_from_prefix(body).ok()?;
            event(pid, tid, SideBandKind::Fork { parent_pid })
        }
        perf::PERF_RECORD_EXIT => {
            let (Task { pid, tid, .. }, _) = Task::read_from_prefix(body).ok()?;
            event(pid, tid, SideBandKind::Exit)
        }
        perf::PERF_RECORD_COMM if header.misc & MISC_COMM_EXEC != 0 => {
            let (Comm { pid, tid }, name) = Comm::read_from_prefix(body).ok()?;
            event(pid, tid, SideBandKind::Exec { comm: until_nul(name).to_vec() })
        }
        perf::PERF_RECORD_LOST => {
            let (LostRecord { count, .. }, _) = LostRecord::read_from_prefix(body).ok()?;
            event(0, 0, SideBandKind::Lost { count })
        }
        perf::PERF_RECORD_MMAP2 => {
            let (map, path) = Mmap2::read_from_prefix(body).ok()?;
            if map.protection & PROT_EXEC == 0 {
                return None;
            }
            let kind = SideBandKind::Map {
                start: Avma(map.start),
                bytes: map.bytes,
                file_offset: FileOffset(map.file_offset),
                device: map.device.into(),
                inode: map.inode,
                inode_generation: map.inode_generation,
                path: until_nul(path).to_vec(),
            };
            event(map.pid, map.tid, kind)
        }
        _ => None,
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(record_type: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(record_type.to_ne_bytes());
        bytes.extend(misc.to_ne_bytes());
        bytes.extend((8 + body.len() as u16 + 16).to_ne_bytes());
        bytes.extend(body);
        bytes.extend(1u32.to_ne_bytes());
        bytes.extend(2u32.to_ne_bytes());
        bytes.extend(12345u64.to_ne_bytes());
        bytes
    }

    fn mapping(protection: u32, path: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        for half in [10u32, 11] {
            body.extend(half.to_ne_bytes());
        }
        for word in [0x7f00_0000u64, 0x3000, 0x1000] {
            body.extend(word.to_ne_bytes());
        }
        for half in [8u32, 1] {
            body.extend(half.to_ne_bytes());
        }
        for word in [77u64, 3] {
            body.extend(word.to_ne_bytes());
        }
        for half in [protection, 2] {
            body.extend(half.to_ne_bytes());
        }
        body.extend(path);
        body
    }

    #[test]
    fn an_executable_mapping_is_read_whole() {
        let bytes = record(perf::PERF_RECORD_MMAP2, 0, &mapping(5, b"/bin/x\0\0"));
        let event = parse(&bytes).unwrap();
        assert_eq!((event.pid, event.tid, event.time_ns), (10, 11, 12345));
        let expected = SideBandKind::Map {
            start: Avma(0x7f00_0000),
            bytes: 0x3000,
            file_offset: FileOffset(0x1000),
            device: (8, 1),
            inode: 77,
            inode_generation: 3,
            path: b"/bin/x".to_vec(),
        };
        assert_eq!(event.kind, expected);
    }

    #[test]
    fn what_is_not_executable_and_what_ends_early_is_none() {
        assert_eq!(parse(&record(perf::PERF_RECORD_MMAP2, 0, &mapping(3, b"/bin/x\0\0"))), None);
        let bytes = record(perf::PERF_RECORD_MMAP2, 0, &mapping(5, b"/bin/x\0\0"));
        for length in 0..72 {
            assert_eq!(parse(&bytes[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn a_name_given_by_a_thread_to_itself_is_no_exec() {
        let mut body = Vec::new();
        body.extend(10u32.to_ne_bytes());
        body.extend(10u32.to_ne_bytes());
        body.extend(b"name\0\0\0\0");
        assert_eq!(parse(&record(perf::PERF_RECORD_COMM, 0, &body)), None);
        let exec = parse(&record(perf::PERF_RECORD_COMM, MISC_COMM_EXEC, &body)).unwrap();
        assert_eq!(exec.kind, SideBandKind::Exec { comm: b"name".to_vec() });
    }
}
