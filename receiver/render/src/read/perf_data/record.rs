//! The content of the kernel's records (`enum perf_event_type` of its interface).

use super::bytes::Bytes;
use super::file::{PerfAttributes, PerfRecord, build_id_text};

/// An inode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PerfInode {
    /// The major number of its device.
    pub major: u32,
    /// The minor number of its device.
    pub minor: u32,
    /// Its number there.
    pub inode: u64,
}

/// Bits of `perf_event_attr::sample_type`.
mod sample_type {
    pub(super) const IP: u64 = 1 << 0;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDR: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CALLCHAIN: u64 = 1 << 5;
    pub(super) const ID: u64 = 1 << 6;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const PERIOD: u64 = 1 << 8;
    pub(super) const STREAM_ID: u64 = 1 << 9;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const BRANCH_STACK: u64 = 1 << 11;
    pub(super) const STACK_USER: u64 = 1 << 13;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of `perf_event_attr::branch_sample_type`: branches are calls that have not returned; there is an index before them.
const BRANCH_CALL_STACK: u64 = 1 << 11;
const BRANCH_HW_INDEX: u64 = 1 << 17;
/// Bits of `misc`: a mapping of data; a name that `exec` gave; a mapping with a build ID in place of an inode.
const MISC_MMAP_DATA: u16 = 1 << 13;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
/// In a mapping's protection.
const PROT_EXEC: u32 = 4;
/// Numbers from here on are no addresses in a call chain, but say of what the following ones are (`PERF_CONTEXT_MAX`).
const CONTEXT_MIN: u64 = -4095_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// What a record says.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Content {
    /// Executable memory of a process, or of the kernel.
    Mapping {
        pid: u32,
        start: u64,
        end: u64,
        file_offset: u64,
        path: String,
        identity: FileIdentity,
    },
    /// A function of the kernel that was made at run time: a BPF program.
    KernelFunction {
        start: u64,
        end: u64,
        name: String,
    },
    /// The name of a thread.
    Name {
        pid: u32,
        tid: u32,
        name: String,
        is_exec: bool,
    },
    /// A new process or thread.
    Fork {
        pid: u32,
        parent_pid: u32,
        tid: u32,
        parent_tid: u32,
    },
    /// A number of records that were lost.
    Lost(u64),
    Sample(PerfSample),
    /// Nothing of interest.
    Other,
}

/// What a mapping says of its file: a build ID or an inode, or neither.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct FileIdentity {
    pub(super) build_id: Option<String>,
    pub(super) inode: Option<PerfInode>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct PerfSample {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) time_ns: Option<u64>,
    pub(super) period: Option<u64>,
    /// Leaf first; those of callers are of their call instructions.
    pub(super) stack: Vec<u64>,
    /// Whether the user stack was copied into the sample instead of being unwound.
    pub(super) is_stack_copied: bool,
}

/// PID -1: of the kernel.
pub(super) const KERNEL_PID: u32 = u32::MAX;

impl PerfRecord<'_> {
    /// Parses it; `None`: it is malformed.
    pub(super) fn content(self, attributes: PerfAttributes) -> Option<Content> {
        let Self { kind, misc, mut body } = self;
        Some(match kind {
            1 | 10 => mapping(kind == 10, misc, body)?,
            2 => {
                body.u64()?;
                Content::Lost(body.u64()?)
            }
            3 => {
                let (pid, tid) = (body.u32()?, body.u32()?);
                Content::Name { pid, tid, name: body.text(), is_exec: misc & MISC_COMM_EXEC != 0 }
            }
            7 => {
                let (pid, parent_pid) = (body.u32()?, body.u32()?);
                Content::Fork { pid, parent_pid, tid: body.u32()?, parent_tid: body.u32()? }
            }
            9 => Content::Sample(sample(body, attributes)?),
            // LOST_SAMPLES.
            13 => Content::Lost(body.u64()?),
            // KSYMBOL: address, length, type, flags, name. It is gone if the first flag is set.
            17 => {
                let (start, length, _kind, flags) = (body.u64()?, body.u32()?, body.u16()?, body.u16()?);
                match flags & 1 {
                    0 => Content::KernelFunction {
                        start,
                        end: start.checked_add(length.into())?,
                        name: body.text(),
                    },
                    _ => Content::Other,
                }
            }
            _ => Content::Other,
        })
    }

    /// When it happened, in nanoseconds of the recording's clock; `None`: it does not say so.
    pub(super) fn time_ns(self, attributes: PerfAttributes) -> Option<u64> {
        let has = |bit| attributes.sample_type & bit != 0;
        if !has(sample_type::TIME) {
            return None;
        }
        let after = |bits: &[u64]| bits.iter().filter(|bit| has(**bit)).count() * 8;
        if self.kind == 9 {
            let before = after(&[sample_type::IDENTIFIER, sample_type::IP, sample_type::TID]);
            return Bytes(self.body.0.get(before..)?).u64();
        }
        let behind = [sample_type::ID, sample_type::STREAM_ID, sample_type::CPU, sample_type::IDENTIFIER];
        self.body.u64_before_end(8 + after(&behind)).filter(|_| attributes.sample_id_all)
    }

    /// The ID of the event that it belongs to, if all events have it in the same place as this one.
    pub(super) fn event_id(self, attributes: PerfAttributes) -> Option<u64> {
        let has = |bit| attributes.sample_type & bit != 0;
        let count = |bits: &[u64]| bits.iter().filter(|bit| has(**bit)).count() * 8;
        let is_sample = self.kind == 9;
        if has(sample_type::IDENTIFIER) {
            return if is_sample { Bytes(self.body.0).u64() } else { self.body.u64_before_end(8) };
        }
        if !has(sample_type::ID) {
            return None;
        }
        let before = [sample_type::IP, sample_type::TID, sample_type::TIME, sample_type::ADDR];
        match is_sample {
            true => Bytes(self.body.0.get(count(&before)..)?).u64(),
            false => self.body.u64_before_end(8 + count(&[sample_type::STREAM_ID, sample_type::CPU])),
        }
    }
}

fn mapping(has_protection: bool, misc: u16, mut body: Bytes<'_>) -> Option<Content> {
    let (pid, _tid) = (body.u32()?, body.u32()?);
    let (start, length, file_offset) = (body.u64()?, body.u64()?, body.u64()?);
    let mut file = FileIdentity::default();
    if has_protection {
        let identity = body.take(24)?;
        if misc & MISC_MMAP_BUILD_ID != 0 {
            // Its size, three bytes of padding, itself.
            file.build_id = build_id_text(&identity[4..4 + usize::from(identity[0]).min(20)]);
        } else {
            let mut identity = Bytes(identity);
            let [major, minor] = [identity.u32()?, identity.u32()?];
            file.inode =
                identity.u64().filter(|inode| *inode != 0).map(|inode| PerfInode { major, minor, inode });
        }
        let (protection, _flags) = (body.u32()?, body.u32()?);
        if pid != KERNEL_PID && protection & PROT_EXEC == 0 {
            return Some(Content::Other);
        }
    } else if misc & MISC_MMAP_DATA != 0 {
        return Some(Content::Other);
    }
    let end = start.checked_add(length)?;
    Some(Content::Mapping { pid, start, end, file_offset, path: body.text(), identity: file })
}

fn sample(mut body: Bytes<'_>, attributes: PerfAttributes) -> Option<PerfSample> {
    let has = |bit| attributes.sample_type & bit != 0;
    let mut field = |bit: u64| if has(bit) { body.u64().map(Some) } else { Some(None) };
    field(sample_type::IDENTIFIER)?;
    let ip = field(sample_type::IP)?;
    let ids = field(sample_type::TID)?.unwrap_or(0);
    let time_ns = field(sample_type::TIME)?;
    for bit in [sample_type::ADDR, sample_type::ID, sample_type::STREAM_ID, sample_type::CPU] {
        field(bit)?;
    }
    let period = field(sample_type::PERIOD)?;
    if has(sample_type::READ) {
        skip_counters(&mut body, attributes.read_format)?;
    }
    let mut stack = Vec::new();
    if has(sample_type::CALLCHAIN) {
        let count = usize::try_from(body.u64()?).ok()?;
        let chain = body.take(count.checked_mul(8)?)?;
        let mut branches = None;
        if has(sample_type::BRANCH_STACK) && attributes.branch_sample_type & BRANCH_CALL_STACK != 0 {
            branches = Some(branch_stack(&mut body, attributes)?);
        }
        add_chain(&mut stack, chain, branches);
    }
    if stack.is_empty() {
        stack.extend(ip);
    }
    Some(PerfSample {
        pid: ids as u32,
        tid: (ids >> 32) as u32,
        time_ns,
        period: period.or(attributes.fixed_period),
        stack,
        is_stack_copied: has(sample_type::STACK_USER),
    })
}

/// Skips the values of counters, whose number their format states.
fn skip_counters(body: &mut Bytes<'_>, read_format: u64) -> Option<()> {
    /// Bits of `perf_event_attr::read_format`: two times; the ID and the lost samples of each counter; a group of counters.
    const TIMES: u64 = 0b11;
    const ID_AND_LOST: u64 = 0b1_0100;
    const GROUP: u64 = 0b1000;
    let words = |bits: u64| (read_format & bits).count_ones() as usize;
    let (times, each) = (words(TIMES), 1 + words(ID_AND_LOST));
    let (counters, times) = match read_format & GROUP {
        0 => (1, times),
        _ => (usize::try_from(body.u64()?).ok()?, times),
    };
    body.take(counters.checked_mul(each)?.checked_add(times)?.checked_mul(8)?).map(drop)
}

/// The calls that the CPU has recorded, the innermost first: where each came from, and where the innermost led to.
fn branch_stack(body: &mut Bytes<'_>, attributes: PerfAttributes) -> Option<Vec<u64>> {
    if attributes.sample_type & sample_type::RAW != 0 {
        let size = body.u32()?;
        body.take(size as usize)?;
    }
    let count = usize::try_from(body.u64()?).ok()?;
    if attributes.branch_sample_type & BRANCH_HW_INDEX != 0 {
        body.u64()?;
    }
    let entries = body.take(count.checked_mul(24)?)?;
    let mut stack = Vec::new();
    for entry in entries.chunks_exact(24) {
        let mut entry = Bytes(entry);
        let (from, to) = (entry.u64()?, entry.u64()?);
        if stack.is_empty() {
            stack.push(to);
        }
        stack.push(from);
    }
    Some(stack)
}

/// Adds the addresses of a call chain. Recorded branches take the place of its user part.
fn add_chain(stack: &mut Vec<u64>, chain: &[u8], branches: Option<Vec<u64>>) {
    let mut is_first = true;
    for address in chain.chunks_exact(8).filter_map(|address| Bytes(address).u64()) {
        if address >= CONTEXT_MIN {
            is_first = true;
            if let Some(branches) = branches.as_ref().filter(|_| address == CONTEXT_USER) {
                stack.extend(branches);
                return;
            }
            continue;
        }
        // All others are return addresses: the call is before them.
        stack.push(if std::mem::take(&mut is_first) { address } else { address.saturating_sub(1) });
    }
}

#[cfg(test)]
mod tests;
