//! A contiguous piece of code, and its instructions.

use sidewinder_unwind_table::Architecture;

use crate::arch::Instruction;

/// A contiguous piece of code.
#[derive(Clone, Copy)]
pub(crate) struct CodeSlice<'data> {
    pub(crate) architecture: Architecture,
    /// Its first byte, counted from the lowest code of the file.
    pub(crate) start: u32,
    pub(crate) bytes: &'data [u8],
}

impl CodeSlice<'_> {
    pub(crate) fn end(&self) -> u32 {
        self.start.saturating_add(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX))
    }

    /// Decodes the instruction at this address.
    pub(crate) fn decode(&self, at: u32) -> Option<Instruction> {
        let bytes = self.bytes.get(usize::try_from(at.checked_sub(self.start)?).ok()?..)?;
        Instruction::decode(self.architecture, bytes, at)
    }

    /// The first address from `at` on whose byte isn't zero.
    pub(crate) fn after_zeros(&self, at: u32) -> u32 {
        let after = at.checked_sub(self.start).and_then(|from| self.bytes.get(from as usize..));
        let zeros = after.map_or(0, |bytes| bytes.iter().take_while(|byte| **byte == 0).count());
        at.saturating_add(u32::try_from(zeros).unwrap_or(u32::MAX))
    }

    /// The first address from `at` on that isn't padding.
    pub(crate) fn after_padding(&self, mut at: u32) -> u32 {
        while let Some(padding) = self.decode(at).filter(Instruction::is_padding) {
            at = padding.end();
        }
        at
    }

    /// Whether it contains this address.
    pub(crate) fn contains(&self, at: u32) -> bool {
        (self.start..self.end()).contains(&at)
    }

    /// The part of it from `start` up to `end`.
    pub(crate) fn part(&self, start: u32, end: u32) -> Self {
        let within = |at: u32| at.saturating_sub(self.start) as usize;
        let bytes = self.bytes.get(within(start)..within(end)).unwrap_or_default();
        CodeSlice { start, bytes, ..*self }
    }

    /// Whether the instruction at this address does nothing.
    pub(crate) fn has_padding_at(&self, at: u32) -> bool {
        self.decode(at).is_some_and(|instruction| instruction.is_padding())
    }

    /// Whether a part consists only of instructions that do nothing, or of zeros.
    pub(crate) fn is_padding(&self, start: u32, end: u32) -> bool {
        let part = self.part(start, end);
        let mut at = start;
        while at < end {
            match part.decode(at) {
                Some(instruction) if instruction.is_padding() => at += instruction.len(),
                _ => return part.part(at, end).bytes.iter().all(|byte| *byte == 0),
            }
        }
        true
    }
}

/// The piece that contains an address; `pieces` are in order.
pub(crate) fn piece_at<'a, 'data>(pieces: &'a [CodeSlice<'data>], at: u32) -> Option<&'a CodeSlice<'data>> {
    let after = pieces.partition_point(|piece| piece.start <= at);
    pieces.get(after.checked_sub(1)?).filter(|piece| piece.contains(at))
}
