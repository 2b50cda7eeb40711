//! Finds functions by the calls to them, and by pointers to them.

use sidewinder_address::Svma;

use crate::arch::{self, StatedAddresses};
use crate::code::piece::CodeSlice;
use crate::memory::{Memory, Reservation};

/// A linear sweep over all instructions of pieces of code.
///
/// Compilers put no data between functions, but assembly does. The apparent target of a call in data counts as a
/// function only if one could begin there.
pub(super) struct CallSweep<'memory> {
    called: Vec<u32>,
    /// Addresses that instructions compute.
    pointed_to: Vec<u32>,
    /// Addresses that the previous instruction doesn't continue to, or that follow padding.
    beginnings: Vec<u32>,
    reserved: Reservation<'memory>,
}

impl<'memory> CallSweep<'memory> {
    /// `base` is the address of the lowest code. What is found ends where the memory does.
    pub(super) fn new(pieces: &[CodeSlice<'_>], base: Svma, memory: Memory<'memory>) -> Self {
        let (called, pointed_to, beginnings) = (Vec::new(), Vec::new(), Vec::new());
        let mut sweep = Self { called, pointed_to, beginnings, reserved: memory.nothing() };
        let _ = pieces.iter().try_for_each(|piece| sweep.add(piece, base));
        for addresses in [&mut sweep.called, &mut sweep.pointed_to] {
            addresses.sort_unstable();
            addresses.dedup();
        }
        sweep
    }

    /// `None` once there is no memory for more.
    fn add(&mut self, piece: &CodeSlice<'_>, base: Svma) -> Option<()> {
        let Self { called, pointed_to, beginnings, reserved } = self;
        let mut note = |addresses: &mut Vec<u32>, at| reserved.push(addresses, at).then_some(());
        let alignment_bytes = arch::function_alignment_bytes(piece.architecture);
        let mut addresses = StatedAddresses::default();
        let mut at = piece.start;
        note(beginnings, at)?;
        while at < piece.end() {
            let Some(instruction) = piece.decode(at) else {
                at = piece.after_zeros(at).max(at + 1);
                continue;
            };
            at += instruction.len();
            if let Some(target) = instruction.target().filter(|_| instruction.is_call()) {
                note(called, target)?;
            }
            if let Some(address) = addresses.next(&instruction, base) {
                note(pointed_to, address)?;
            }
            let ends = instruction.is_last()
                || instruction.is_padding()
                || (instruction.is_call() && at.is_multiple_of(alignment_bytes));
            if ends {
                note(beginnings, at)?;
                // Some compilers fill with zeros up to the next function. The last zeros and the first bytes of that
                // function could be decoded as an instruction.
                let after = piece.after_zeros(at);
                if after > at && after < piece.end() {
                    at = after;
                    note(beginnings, at)?;
                }
            }
        }
        Some(())
    }

    /// The addresses that are called, in order.
    pub(super) fn called(&self) -> impl Iterator<Item = u32> + '_ {
        self.called.iter().copied()
    }

    /// The addresses that are called and at which a function could begin.
    pub(super) fn functions(&self) -> impl Iterator<Item = u32> + '_ {
        self.called().filter(|at| self.beginnings.binary_search(at).is_ok())
    }

    /// Whether an instruction computes this address.
    pub(super) fn is_pointed_to(&self, at: u32) -> bool {
        self.pointed_to.binary_search(&at).is_ok()
    }

    /// Where functions could begin from `start` up to `end`, in order.
    pub(super) fn beginnings_within(&self, start: u32, end: u32) -> &[u32] {
        let before = |limit: u32| self.beginnings.partition_point(|at| *at < limit);
        self.beginnings.get(before(start)..before(end)).unwrap_or_default()
    }
}
