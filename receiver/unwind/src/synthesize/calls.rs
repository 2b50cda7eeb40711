//! Functions by the calls of them.

use crate::code::piece::CodeSlice;
use crate::code::span::FUNCTION_ALIGNMENT_BYTES;

/// All instructions of pieces of code, one after the other.
///
/// Compilers put no data between functions, assembly does: what such bytes seem to call is no function unless
/// one could begin there.
pub(super) struct CallSweep {
    called: Vec<u32>,
    /// Places that the instruction before doesn't go on to, or that come after padding.
    beginnings: Vec<u32>,
}

impl CallSweep {
    pub(super) fn new(pieces: &[CodeSlice<'_>]) -> Self {
        let mut sweep = Self { called: Vec::new(), beginnings: Vec::new() };
        pieces.iter().for_each(|piece| sweep.add(piece));
        sweep.called.sort_unstable();
        sweep.called.dedup();
        sweep
    }

    fn add(&mut self, piece: &CodeSlice<'_>) {
        let mut at = piece.start;
        self.beginnings.push(at);
        while at < piece.end() {
            let Some(instruction) = piece.decode(at) else {
                at = piece.after_zeros(at).max(at + 1);
                continue;
            };
            at += instruction.len();
            self.called.extend(instruction.target().filter(|_| instruction.is_call()));
            let ends = instruction.is_last()
                || instruction.is_padding()
                || (instruction.is_call() && at.is_multiple_of(FUNCTION_ALIGNMENT_BYTES));
            if ends {
                self.beginnings.push(at);
                // Some compilers fill with zeros up to the next function, the last of which and its first bytes could be
                // read as an instruction.
                let after = piece.after_zeros(at);
                if after > at && after < piece.end() {
                    at = after;
                    self.beginnings.push(at);
                }
            }
        }
    }

    /// The places that are called and at which a function could begin.
    pub(super) fn functions(&self) -> impl Iterator<Item = u32> + '_ {
        self.called.iter().copied().filter(|at| self.beginnings.binary_search(at).is_ok())
    }

    /// Where functions could begin, in order.
    pub(super) fn beginnings(&self) -> &[u32] {
        &self.beginnings
    }

    /// The same, from `start` up to `end`.
    pub(super) fn beginnings_within(&self, start: u32, end: u32) -> &[u32] {
        let before = |limit: u32| self.beginnings.partition_point(|at| *at < limit);
        self.beginnings.get(before(start)..before(end)).unwrap_or_default()
    }
}
