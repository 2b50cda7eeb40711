//! Reads the records that the programs send: samples, and the stacks that they refer to.

use std::cell::RefCell;
use std::ffi::c_char;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, RingBuffer, RingBufferBuilder};
use sidewinder_unwind_table::Register;
use zerocopy::FromBytes;

use crate::code_object::CodeObject;
use crate::frame::RawFrame;
use crate::intf::{
    self, sw_body, sw_context, sw_frame, sw_hash, sw_label, sw_newcomer, sw_sample, sw_snapshot,
};
use crate::outcome::Outcome;
use crate::sample_kind::SampleKind;
use crate::wait::{WaitEnd, WaitReason};
use sidewinder_kind::CpuIds;

/// The 128-bit hash of a stack: its frames and its outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StackHash(pub u64, pub u64);

impl From<sw_hash> for StackHash {
    fn from(sw_hash { lo, hi }: sw_hash) -> Self {
        Self(lo, hi)
    }
}

/// One interrupt.
#[derive(Clone, Debug)]
pub struct SampleRecord {
    /// Why it was taken.
    pub kind: SampleKind,
    /// Its value, in the unit of its kind: 1 for an interrupt; for a wait that begins, the probability with which it was
    /// sampled, for [`weighted_off_cpu_ns`](crate::weighted_off_cpu_ns).
    pub value: u64,
    /// When it was taken (`CLOCK_MONOTONIC`).
    pub time_ns: u64,
    /// The hash of its stack, which is sent once per epoch.
    pub stack: StackHash,
    /// The epoch of the sample.
    pub epoch: u32,
    /// Thread group, in our PID namespace.
    pub pid: u32,
    /// Thread, in our PID namespace.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// How the walk of its stack ended.
    pub outcome: Outcome,
    /// Whether the CPU was in kernel mode, on the thread's behalf.
    pub in_kernel: bool,
    /// Whether a [`StackSnapshot`] with the same thread and time was sent before.
    pub has_snapshot: bool,
    /// What the thread waits for, if this is the sample of a wait.
    pub wait: Option<WaitReason>,
    /// The thread's name: bytes up to the first NUL.
    pub comm: [u8; intf::SW_COMM_BYTES as usize],
    /// The span that the thread publishes.
    pub context: Option<Box<ThreadContext>>,
    /// The labels of the thread, or of the goroutine that it was running.
    pub labels: Option<Box<LabelSet>>,
}

/// The labels of a goroutine (pprof) or of a thread (custom-labels): up to six, with keys of up to 30 bytes and values of
/// up to 64 bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LabelSet(Vec<LabelPair>);

/// A key and a value.
type LabelPair = (Box<[u8]>, Box<[u8]>);

impl LabelSet {
    /// Creates labels as the programs would send them.
    #[must_use]
    pub fn new<'text>(labels: impl IntoIterator<Item = (&'text [u8], &'text [u8])>) -> Self {
        Self(labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// Keys and values. If a key occurs twice, the first counts.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    fn parse(bytes: &[u8]) -> Box<Self> {
        let text = |letters: &[c_char], length: u8| -> Option<Box<[u8]>> {
            Some(letters.get(..usize::from(length))?.iter().map(|letter| *letter as u8).collect())
        };
        let labels = parse_array(bytes).filter_map(|label: sw_label| {
            let key = text(&label.key, label.key_bytes)?;
            let value = text(&label.value, label.value_bytes)?;
            (!key.is_empty()).then_some((key, value))
        });
        Box::new(Self(labels.take(intf::SW_LABELS_MAX as usize).collect()))
    }
}

/// The context that a thread publishes of its span (OTEP 4947).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ThreadContext {
    /// Never all zero.
    pub trace_id: [u8; 16],
    /// Never all zero.
    pub span_id: [u8; 8],
    /// The attributes as the thread wrote them; empty if they aren't read.
    attributes: Box<[u8]>,
}

impl ThreadContext {
    /// Creates a context with attributes as in records: key index, length of the text, text.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], attributes: &[u8]) -> Self {
        Self { trace_id, span_id, attributes: attributes.into() }
    }

    /// Key indices and texts, up to the first truncated attribute. If a key occurs twice, the last counts.
    pub fn attributes(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = &*self.attributes;
        std::iter::from_fn(move || {
            let [key, length, behind @ ..] = rest else { return None };
            let (text, behind) = behind.split_at_checked(usize::from(*length))?;
            rest = behind;
            Some((*key, text))
        })
    }

    /// Parses the bytes after a sample; `None` if they are too short, or there is no span.
    fn parse(bytes: &[u8]) -> Option<Box<Self>> {
        let (head, attributes) = bytes.split_at_checked(intf::SW_CONTEXT_HEAD_BYTES as usize)?;
        // The record is truncated after its last attribute.
        let mut whole = [0; size_of::<sw_context>()];
        whole[..head.len()].copy_from_slice(head);
        let sw_context { trace_id, span_id, attributes_bytes, .. } = zerocopy::transmute!(whole);
        // Records in a ring are padded.
        let attributes = attributes.get(..usize::from(attributes_bytes)).unwrap_or(attributes);
        (trace_id != [0; 16] && span_id != [0; 8]).then(|| Box::new(Self::new(trace_id, span_id, attributes)))
    }
}

/// The content of a stack.
#[derive(Clone, Debug)]
pub enum StackEntries {
    /// Frames, leaf first.
    Frames(Box<[RawFrame]>),
    /// Consecutive chunks of frames, leaf end first: a stack too long for one record.
    Chain(Box<[StackHash]>),
}

/// A stack, or a chunk of a longer one.
#[derive(Clone, Debug)]
pub struct StackBody {
    /// Its hash.
    pub hash: StackHash,
    /// The epoch in which it was sent.
    pub epoch: u32,
    /// Its content.
    pub entries: StackEntries,
}

/// The general registers by DWARF number, followed by the pc.
pub type RegisterFile = [u64; intf::SW_REGISTERS as usize];

// The programs and unwind rules mean the same registers.
const _: () = {
    assert!(Register::COUNT + 1 == intf::SW_REGISTERS as usize);
    assert!(Register::PC_DWARF as u32 == intf::SW_REG_PC);
    assert!(Register::STACK_POINTER.dwarf() as u32 == intf::SW_REG_SP);
    assert!(Register::FRAME_POINTER.dwarf() as u32 == intf::SW_REG_FP);
    assert!(Register::CALLEE_SAVED.dwarf() as u32 == intf::SW_REG_CALLEE_SAVED);
    assert!(Register::SYSCALL_RESULT.dwarf() as u32 == intf::SW_REG_SYSCALL_RESULT);
};

/// User registers and the top of the stack, for a walk that was missing mappings or tables.
#[derive(Clone, Debug)]
pub struct StackSnapshot {
    /// The thread of the sample.
    pub tid: u32,
    /// The time of the sample.
    pub time_ns: u64,
    /// The registers.
    pub registers: RegisterFile,
    /// As much of the stack as could be read, from below the stack pointer; other parts of it are in separate records.
    pub pieces: Vec<StackPiece>,
}

/// A part of a stack.
#[derive(Clone, Debug)]
pub struct StackPiece {
    /// The address of its first byte.
    pub start: u64,
    /// Its bytes.
    pub bytes: Box<[u8]>,
}

/// A process ran exec in a container of the pod that wasn't marked as known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newcomer {
    /// Its process id, in our PID namespace.
    pub pid: u32,
    /// The id of the cgroup directly below the pod's.
    pub container: u64,
}

/// A record from a ring.
#[derive(Clone, Debug)]
pub enum Record {
    /// An interrupt.
    Sample(SampleRecord),
    /// The stack snapshot of a sample.
    Snapshot(Box<StackSnapshot>),
    /// A stack that was not sent before in this epoch.
    Body(StackBody),
    /// A new container.
    Newcomer(Newcomer),
    /// A function in a stack of a young process.
    CodeObject(Box<CodeObject>),
    /// The end of a sampled wait.
    WaitEnd(WaitEnd),
}

impl Record {
    /// Parses a record; `None` if it is of an unknown kind.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let record_type = u32::from(u16::read_from_prefix(bytes).ok()?.0);
        match record_type {
            intf::SW_RECORD_SAMPLE => Some(Self::Sample(SampleRecord::parse(bytes)?)),
            intf::SW_RECORD_SNAPSHOT => Some(Self::Snapshot(Box::new(StackSnapshot::parse(bytes)?))),
            intf::SW_RECORD_OBJECT => Some(Self::CodeObject(Box::new(CodeObject::parse(bytes)?))),
            intf::SW_RECORD_WAIT_END => Some(Self::WaitEnd(WaitEnd::parse(bytes)?)),
            intf::SW_RECORD_NEWCOMER => Some(Self::Newcomer(Newcomer::parse(bytes)?)),
            intf::SW_RECORD_STACK | intf::SW_RECORD_CHAIN => {
                Some(Self::Body(StackBody::parse(record_type, bytes)?))
            }
            _ => None,
        }
    }
}

impl SampleRecord {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (sample, behind) = sw_sample::read_from_prefix(bytes).ok()?;
        let has = |flag| sample.flags & flag != 0;
        Some(Self {
            kind: SampleKind::from_number(sample.kind)?,
            value: sample.value,
            time_ns: sample.time_ns,
            stack: sample.stack.into(),
            epoch: sample.epoch,
            pid: sample.pid,
            tid: sample.tid,
            cpu: sample.cpu,
            outcome: Outcome::from_number(sample.outcome)?,
            in_kernel: has(intf::SW_SAMPLE_IN_KERNEL),
            has_snapshot: has(intf::SW_SAMPLE_HAS_SNAPSHOT),
            wait: WaitReason::from_flags(sample.flags),
            comm: sample.comm.map(|letter| letter as u8),
            labels: has(intf::SW_SAMPLE_HAS_LABELS).then(|| LabelSet::parse(behind)),
            context: if has(intf::SW_SAMPLE_HAS_CONTEXT) { ThreadContext::parse(behind) } else { None },
        })
    }
}

impl StackSnapshot {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (snapshot, stack) = sw_snapshot::read_from_prefix(bytes).ok()?;
        let length = usize::try_from(snapshot.bytes).ok()?;
        Some(Self {
            tid: snapshot.tid,
            time_ns: snapshot.time_ns,
            registers: snapshot.registers,
            pieces: vec![StackPiece { start: snapshot.start, bytes: stack.get(..length)?.into() }],
        })
    }

    /// A word of the stack; `None` if it wasn't copied.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        self.pieces.iter().find_map(|piece| {
            let at = usize::try_from(address.checked_sub(piece.start)?).ok()?;
            Some(u64::from_ne_bytes(piece.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
        })
    }
}

impl Newcomer {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (sw_newcomer { pid, container, .. }, _) = sw_newcomer::read_from_prefix(bytes).ok()?;
        Some(Self { pid, container })
    }
}

impl StackBody {
    fn parse(record_type: u32, bytes: &[u8]) -> Option<Self> {
        const { assert!(size_of::<sw_frame>() == size_of::<sw_hash>()) };
        let (body, behind) = sw_body::read_from_prefix(bytes).ok()?;
        let entries = behind.get(..usize::from(body.count) * size_of::<sw_frame>())?;
        Some(Self {
            hash: body.hash.into(),
            epoch: body.epoch,
            entries: if record_type == intf::SW_RECORD_CHAIN {
                StackEntries::Chain(parse_array(entries).map(|hash: sw_hash| hash.into()).collect())
            } else {
                StackEntries::Frames(parse_array(entries).map(|frame: sw_frame| frame.into()).collect())
            },
        })
    }
}

/// The values in `bytes`, without a truncated last one.
fn parse_array<T: FromBytes>(bytes: &[u8]) -> impl Iterator<Item = T> + '_ {
    bytes.chunks_exact(size_of::<T>()).filter_map(|value| T::read_from_bytes(value).ok())
}

/// The ring buffers of all CPUs.
pub struct Rings {
    rings: RingBuffer<'static>,
    received: Rc<RefCell<ReceivedRecords>>,
}

#[derive(Default)]
struct ReceivedRecords {
    records: Vec<Record>,
    unknown: u64,
}

impl Rings {
    /// Creates a ring for each CPU and stores it in the programs' map. The snapshots' ring is drained after these, so
    /// that a sample's snapshot was submitted before the sample is seen.
    pub(crate) fn create(
        map: &MapHandle,
        snapshots: MapHandle,
        cpus: &CpuIds,
        bytes: u32,
    ) -> libbpf_rs::Result<Self> {
        let arrived = Rc::new(RefCell::new(ReceivedRecords::default()));
        let handles: Vec<MapHandle> = cpus
            .iter()
            .map(|cpu| {
                let ring = create_ring(bytes)?;
                let fd = ring.as_fd().as_raw_fd();
                map.update(&cpu.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
                Ok(ring)
            })
            .collect::<libbpf_rs::Result<_>>()?;
        let mut builder = RingBufferBuilder::new();
        for handle in handles.iter().chain([&snapshots]) {
            let arrived = Rc::clone(&arrived);
            builder.add(handle, move |bytes| {
                let mut arrived = arrived.borrow_mut();
                match Record::parse(bytes) {
                    Some(record) => arrived.records.push(record),
                    None => arrived.unknown += 1,
                }
                0
            })?;
        }
        Ok(Self { rings: builder.build()?, received: arrived })
    }

    /// Becomes readable when a ring is filling up.
    #[must_use]
    pub(crate) fn epoll_fd(&self) -> RawFd {
        self.rings.epoll_fd()
    }

    /// Reads all available records, in order for each CPU.
    pub fn drain(&mut self, sink: &mut Vec<Record>) {
        // Only a callback can fail here, and ours doesn't. `poll` first: it resets the wakeup.
        let _ = self.rings.poll(Duration::ZERO);
        let _ = self.rings.consume();
        sink.append(&mut self.received.borrow_mut().records);
    }

    /// Records of unknown kinds.
    #[must_use]
    pub fn unknown_records(&self) -> u64 {
        self.received.borrow().unknown
    }
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings").field("epoll_fd", &self.epoll_fd()).finish_non_exhaustive()
    }
}

/// The smallest valid size of a ring that holds `bytes`: a power of two, and a multiple of this machine's page size.
pub(crate) fn whole_pages(bytes: u32) -> u32 {
    bytes.max(u32::try_from(rustix::param::page_size()).unwrap_or(u32::MAX)).next_power_of_two()
}

/// A ring buffer of `bytes`, a size from [`whole_pages`].
pub(crate) fn create_ring(bytes: u32) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    MapHandle::create(MapType::RingBuf, Some("sw_ring"), 0, 0, bytes, &options)
}

/// A descriptor that its owner keeps open.
pub(crate) fn borrow(fd: RawFd, _owner: &impl Sized) -> BorrowedFd<'_> {
    // SAFETY: the descriptor belongs to `_owner`, which outlives the result.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::RawFrameKind;

    fn bytes_of_body(record_type: u32, pairs: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((record_type as u16).to_ne_bytes());
        bytes.extend((pairs.len() as u16).to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(1u64.to_ne_bytes());
        bytes.extend(2u64.to_ne_bytes());
        for (a, b) in pairs {
            bytes.extend(a.to_ne_bytes());
            bytes.extend(b.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_body_is_read_frame_by_frame() {
        let native = u64::from(intf::SW_FRAME_NATIVE)
            | u64::from(intf::SW_FRAME_RETURN_ADDRESS) << intf::SW_FRAME_FLAGS_SHIFT
            | 42 << intf::SW_FRAME_ID_SHIFT;
        let bytes =
            bytes_of_body(intf::SW_RECORD_STACK, &[(u64::from(intf::SW_FRAME_KERNEL), 9), (native, 0x1234)]);
        let Some(Record::Body(StackBody { hash, epoch, entries: StackEntries::Frames(frames) })) =
            Record::parse(&bytes)
        else {
            panic!("not a body of frames");
        };
        assert_eq!((hash, epoch), (StackHash(1, 2), 7));
        assert_eq!(frames[0].kind(), Some(RawFrameKind::Kernel));
        assert_eq!(frames[1].kind(), Some(RawFrameKind::Native { file: 42 }));
        assert_eq!(frames[1].address(), 0x1234);
        assert!(frames[1].is_return_address() && !frames[0].is_return_address());
    }

    /// A sample with its context: only complete attributes are kept.
    #[test]
    fn a_context_is_read_behind_its_sample() {
        let parsed = |attributes: &[u8], said_bytes: u16, trace_byte: u8| {
            let mut bytes = vec![0; size_of::<sw_sample>()];
            bytes[0] = intf::SW_RECORD_SAMPLE as u8;
            bytes[std::mem::offset_of!(sw_sample, kind)] = intf::sw_sample_kind::SW_SAMPLE_CPU as u8;
            bytes[std::mem::offset_of!(sw_sample, flags)] = intf::SW_SAMPLE_HAS_CONTEXT as u8;
            bytes.extend([trace_byte; 16]);
            bytes.extend([2; 8]);
            bytes.extend([1, 0]);
            bytes.extend(said_bytes.to_ne_bytes());
            bytes.extend(attributes);
            let Some(Record::Sample(sample)) = Record::parse(&bytes) else { panic!("not a sample") };
            sample.context
        };
        let context = parsed(b"\x00\x01a\x01\x00\x07\x03bcd", 10, 1).unwrap();
        assert_eq!((context.trace_id, context.span_id), ([1; 16], [2; 8]));
        let attributes: Vec<_> = context.attributes().collect();
        assert_eq!(attributes, [(0, &b"a"[..]), (1, b""), (7, b"bcd")]);
        let cut = parsed(b"\x00\x01a\x07\x03bc", 7, 1).unwrap();
        assert_eq!(cut.attributes().collect::<Vec<_>>(), [(0, &b"a"[..])]);
        let said_too_much = parsed(b"\x00\x01a", 600, 1).unwrap();
        assert_eq!(said_too_much.attributes().count(), 1);
        let padded = parsed(b"\x00\x01a\x00\x00\x00", 3, 1).unwrap();
        assert_eq!(padded.attributes().count(), 1);
        assert_eq!(parsed(b"", 0, 0), None);
    }

    #[test]
    fn a_record_that_ends_early_is_none() {
        let bytes = bytes_of_body(intf::SW_RECORD_CHAIN, &[(1, 2), (3, 4)]);
        assert!(matches!(
            Record::parse(&bytes),
            Some(Record::Body(StackBody { entries: StackEntries::Chain(_), .. }))
        ));
        for length in 0..bytes.len() {
            assert!(Record::parse(&bytes[..length]).is_none(), "{length} bytes");
        }
        let sample = vec![intf::SW_RECORD_SAMPLE as u8; size_of::<sw_sample>() - 1];
        assert!(Record::parse(&sample).is_none());
    }
}
