//! Waits that were found in progress without a sample, and whose stacks are read from the memory of their process.
//!
//! The stack of a thread that waits does not change. The thread may go on during the read, so a read counts only if it has not
//! been given a CPU since it was found.

use std::collections::VecDeque;

use sidewinder_address::Avma;
use sidewinder_base::foreign::{ForeignReader, MemoryAccess, PendingRead, ReadTarget};
use sidewinder_bpf::{FoundWait, Outcome, SampleRecord, StackPiece, StackSnapshot};
use sidewinder_process::{ForeignMemory, Pid};

use super::deferred::DeferredWalks;
use super::stacks::StackCache;
use super::tally::FoundWaitCounts;

/// How much of a stack is read, and in which parts where that is more than there is.
const STACK_BYTES_MAX: usize = 64 << 10;
const STACK_PART_BYTES: usize = 4 << 10;
/// The number of reads at a time, whose results use memory.
const READS_MAX: usize = 16;
/// The number of waits that are kept for a read. Further ones have no user stack.
const QUEUED_MAX: usize = 4 << 10;

/// The top of a thread's stack; `None` if the thread has gone on, or its memory can't be read.
type StackRead = Option<StackPiece>;

/// The waits whose stacks are being read, or are to be.
#[derive(Debug, Default)]
pub(super) struct FoundWaits {
    queued: VecDeque<Box<FoundWait>>,
    reads: Vec<(Box<FoundWait>, PendingRead<StackRead>)>,
    /// Those whose read has ended, or was not possible.
    ended: Vec<(Box<FoundWait>, StackRead)>,
    counts: FoundWaitCounts,
}

impl FoundWaits {
    /// Adds a wait.
    pub(super) fn add(&mut self, wait: Box<FoundWait>) {
        if wait.registers.is_some() && self.queued.len() < QUEUED_MAX {
            self.queued.push_back(wait);
        } else {
            self.ended.push((wait, None));
        }
    }

    /// Starts reads, and returns the samples of waits whose read has ended. Their kernel frames are in `stacks`, and the data for
    /// the walks of their user frames in `deferred`.
    pub(super) fn update(
        &mut self,
        reader: &ForeignReader,
        deferred: &mut DeferredWalks,
        stacks: &mut StackCache,
    ) -> Vec<SampleRecord> {
        for (wait, pending) in std::mem::take(&mut self.reads) {
            match pending.poll() {
                Some(read) => self.ended.push((wait, read.ok().flatten())),
                None => self.reads.push((wait, pending)),
            }
        }
        while self.reads.len() < READS_MAX
            && let Some(wait) = self.queued.pop_front()
        {
            match start_read(&wait, reader) {
                Some(pending) => self.reads.push((wait, pending)),
                None => self.ended.push((wait, None)),
            }
        }
        let mut free_bytes = deferred.free_bytes();
        let mut samples = Vec::new();
        for (wait, read) in self.ended.drain(..) {
            let FoundWait { mut sample, kernel_frames, registers, .. } = *wait;
            stacks.insert_local(sample.stack, kernel_frames);
            match (registers, read) {
                (Some(registers), Some(piece)) => {
                    let (tid, time_ns, pieces) = (sample.tid, sample.time_ns, vec![piece]);
                    let snapshot = StackSnapshot { tid, time_ns, registers, pieces };
                    deferred.add_snapshot(Box::new(snapshot), &mut free_bytes);
                    // As if its own program had been missing the process's mappings, until the walk.
                    (sample.outcome, sample.has_snapshot) = (Outcome::UnknownProcess, true);
                    self.counts.read += 1;
                }
                _ => self.counts.unread += 1,
            }
            samples.push(sample);
        }
        samples
    }

    /// Whether there are waits whose samples are still to come.
    pub(super) fn is_reading(&self) -> bool {
        !(self.queued.is_empty() && self.reads.is_empty() && self.ended.is_empty())
    }

    pub(super) fn counts(&self) -> FoundWaitCounts {
        self.counts
    }
}

fn start_read(wait: &FoundWait, reader: &ForeignReader) -> Option<PendingRead<StackRead>> {
    let target = ReadTarget::from_pid(Pid(wait.sample.pid)).ok()?;
    let (memory, tid, timeslices) = (reader.memory().clone(), wait.sample.tid, wait.timeslices);
    let start = wait.stack_start()?;
    reader.submit(target, move || read_stack(&memory, target, tid, timeslices, start)).ok()
}

fn read_stack(memory: &MemoryAccess, target: ReadTarget, tid: u32, timeslices: u64, start: u64) -> StackRead {
    let opened = memory.open(target).ok()?;
    let mut bytes = vec![0; STACK_BYTES_MAX];
    if opened.read_exact(Avma(start), &mut bytes).is_err() {
        let readable = readable_bytes(&opened, start, &mut bytes);
        bytes.truncate(readable);
    }
    let schedstat = target.open_dir().ok()?.read(&format!("task/{tid}/schedstat")).ok()?;
    let has_waited_on = parse_timeslices(&schedstat) == Some(timeslices);
    (has_waited_on && !bytes.is_empty()).then(|| StackPiece { start, bytes: bytes.into() })
}

/// Reads parts until one can't be read, and returns how much that was. A part ends where a page does, like the stack.
fn readable_bytes(memory: &impl ForeignMemory, start: u64, bytes: &mut [u8]) -> usize {
    let before_page = start.next_multiple_of(STACK_PART_BYTES as u64) - start;
    let (first, others) = bytes.split_at_mut(usize::try_from(before_page).unwrap_or(0));
    let (mut at, mut readable) = (start, 0);
    for part in std::iter::once(first).chain(others.chunks_mut(STACK_PART_BYTES)) {
        if !part.is_empty() && memory.read_exact(Avma(at), part).is_err() {
            break;
        }
        (at, readable) = (at.saturating_add(part.len() as u64), readable + part.len());
    }
    readable
}

/// How often a thread was given a CPU: the third number (Documentation/scheduler/sched-stats.rst).
fn parse_timeslices(schedstat: &[u8]) -> Option<u64> {
    std::str::from_utf8(schedstat).ok()?.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Memory that ends at an address.
    struct EndsAt(u64);

    impl ForeignMemory for EndsAt {
        fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
            to.fill(1);
            if at.0 + to.len() as u64 <= self.0 { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        }
    }

    #[test]
    fn a_stack_is_read_up_to_its_end() {
        let readable = |start, end| readable_bytes(&EndsAt(end), start, &mut vec![0; STACK_BYTES_MAX]);
        assert_eq!(readable(0x1f80, 0x5000), 0x3080);
        assert_eq!(readable(0x2000, 0x5000), 0x3000);
        assert_eq!(readable(0x1f80, 0x1f81), 0, "less than a page is not the end of a stack");
        assert_eq!(readable(0x1f80, u64::MAX / 2), STACK_BYTES_MAX);
        assert_eq!(parse_timeslices(b"17 5 3\n"), Some(3));
        assert_eq!(parse_timeslices(b"17 5\n"), None);
    }
}
