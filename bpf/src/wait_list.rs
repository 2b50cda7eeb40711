//! The waits in progress, which an iterator over all tasks lists.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::ProgramMut;
use zerocopy::FromBytes;

use crate::frame::{RawFrame, RawFrameKind};
use crate::intf::{self, sw_found_wait, sw_wait_end};
use crate::iterator;
use crate::outcome::Outcome;
use crate::ring::{RegisterFile, SampleRecord, StackHash};
use crate::sample_kind::SampleKind;
use crate::wait::{CERTAIN, WaitEnd, WaitReason};

/// A wait in progress.
#[derive(Clone, Debug)]
pub enum ListedWait {
    /// It has a sample.
    Sampled {
        /// Its length so far, as if it ended now.
        so_far: WaitEnd,
        /// Whether the thread no longer waits: then the length so far may include time in which it was runnable.
        is_woken: bool,
    },
    /// It had none, and has one from now on.
    Found(Box<FoundWait>),
}

/// A wait that was found in progress without a sample. Its end will be sent.
#[derive(Clone, Debug)]
pub struct FoundWait {
    /// Its sample, of certain probability, without a stack.
    pub sample: SampleRecord,
    /// The kernel frames of its stack, leaf first.
    pub kernel_frames: Box<[RawFrame]>,
    /// The user registers; `None` if they are unknown.
    pub registers: Option<RegisterFile>,
    /// How often the thread was given a CPU, as in `/proc/PID/task/TID/schedstat`: if it is more later, the thread has run,
    /// and its stack may be another one.
    pub timeslices: u64,
}

impl FoundWait {
    /// Where the used part of the stack begins; `None` if it is unknown.
    #[must_use]
    pub fn stack_start(&self) -> Option<u64> {
        let sp = self.registers?[intf::SW_REG_SP as usize];
        Some(sp.saturating_sub(intf::SW_RED_ZONE_BYTES.into()) & !7)
    }

    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (found, rest) = sw_found_wait::read_from_prefix(bytes).ok()?;
        let addresses = found.kernel.get(..usize::from(found.kernel_frames))?.iter();
        let frame =
            |(depth, address): (usize, &u64)| RawFrame::new(RawFrameKind::Kernel, *address, depth > 0, false);
        let has_registers = found.registers[intf::SW_REG_SP as usize] != 0;
        let sample = SampleRecord {
            kind: SampleKind::FoundWait,
            value: CERTAIN,
            time_ns: found.time_ns,
            // No stack of the programs has this hash, which theirs are keyed to make unpredictable.
            stack: StackHash(found.time_ns, found.tid.into()),
            epoch: 0,
            pid: found.pid,
            tid: found.tid,
            cpu: found.cpu,
            outcome: if has_registers { Outcome::StackUnreadable } else { Outcome::NoRegisters },
            in_kernel: true,
            has_snapshot: false,
            wait: WaitReason::from_flags(found.flags),
            comm: found.comm.map(|letter| letter as u8),
            context: None,
            labels: None,
        };
        let found = Self {
            sample,
            kernel_frames: addresses.enumerate().map(frame).collect(),
            registers: has_registers.then_some(found.registers),
            timeslices: found.timeslices,
        };
        Some((found, rest))
    }
}

/// Lists the waits in progress.
#[derive(Debug)]
pub(crate) struct WaitList {
    link: OwnedFd,
}

impl WaitList {
    pub(crate) fn new(program: &ProgramMut<'_>) -> io::Result<Self> {
        Ok(Self { link: iterator::link(program.as_fd(), None)? })
    }

    /// The waits in progress, of the threads that are in scope.
    pub(crate) fn list(&self) -> io::Result<Vec<ListedWait>> {
        let mut listed = Vec::new();
        iterator::run(&self.link, |output| listed.extend(parse(output)))?;
        Ok(listed)
    }
}

fn parse(mut output: &[u8]) -> impl Iterator<Item = ListedWait> {
    std::iter::from_fn(move || {
        let record_type = u32::from(u16::read_from_prefix(output).ok()?.0);
        if record_type == intf::SW_RECORD_WAIT_FOUND {
            let (found, rest) = FoundWait::parse(output)?;
            output = rest;
            return Some(ListedWait::Found(Box::new(found)));
        }
        let (progress, rest) = sw_wait_end::read_from_prefix(output).ok()?;
        let so_far = WaitEnd::parse(output)?;
        output = rest;
        Some(ListedWait::Sampled { so_far, is_woken: progress.is_woken != 0 })
    })
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn the_output_is_a_sequence_of_both_kinds_of_record() {
        let progress = sw_wait_end {
            type_: intf::SW_RECORD_WAIT_PROGRESS as u16,
            is_woken: 1,
            tid: 7,
            start_ns: 1,
            time_ns: 9,
            off_cpu_ns: 5,
            runnable_ns: 2,
            walk_ns: 1,
            ..Default::default()
        };
        let mut found = sw_found_wait {
            type_: intf::SW_RECORD_WAIT_FOUND as u16,
            kernel_frames: 2,
            tid: 8,
            time_ns: 4,
            timeslices: 3,
            ..Default::default()
        };
        found.kernel[..2].copy_from_slice(&[0x10, 0x20]);
        let output = [progress.as_bytes(), found.as_bytes(), progress.as_bytes()].concat();
        let listed: Vec<_> = parse(&output).collect();
        let [
            ListedWait::Sampled { so_far, is_woken: true },
            ListedWait::Found(found),
            ListedWait::Sampled { .. },
        ] = &listed[..]
        else {
            panic!("{listed:?}")
        };
        let expected = WaitEnd {
            tid: 7,
            start_ns: 1,
            time_ns: 9,
            off_cpu_ns: 5,
            runnable_ns: 2,
            walk_ns: 1,
            undrawn_ns: 0,
            lock: None,
            waker: None,
        };
        assert_eq!(*so_far, expected);
        let kernel: Vec<_> = found.kernel_frames.iter().map(|frame| frame.address()).collect();
        assert_eq!((found.sample.tid, found.sample.time_ns, found.timeslices), (8, 4, 3));
        assert_eq!(
            (kernel, found.registers, found.sample.outcome),
            (vec![0x10, 0x20], None, Outcome::NoRegisters)
        );
        assert_eq!(parse(&output[..progress.as_bytes().len() + 8]).count(), 1, "the second is not whole");
    }
}
