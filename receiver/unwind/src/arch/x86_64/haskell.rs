//! Rules for code of GHC, the Haskell compiler.
//!
//! Haskell code has its own stack, in `rbp`, makes no calls on the C stack, and leaves the stack pointer where the
//! runtime system had it when it entered Haskell (`StgRun`): below an area that compiled code may spill registers to.
//! So wherever Haskell code is interrupted, its caller on the C stack is the caller of `StgRun`, and the frames of
//! Haskell's own stack are not unwound. Only around calls of C functions is the stack one word deeper, for alignment.

use sidewinder_unwind_table::{
    Architecture, Cfa, Entry, EntryId, EntryInterner, Register, ReturnAddress, RowBuffer, Rule, SavedRegister,
};

use crate::code::piece::CodeSlice;

/// From the stack pointer in Haskell code up to its value in the caller of `StgRun` on Linux: the return address, six
/// registers and `RESERVED_C_STACK_BYTES`.
pub(crate) const CFA_OFFSET: i32 = 8 + SAVED_BYTES + 16384;
const SAVED_BYTES: i32 = 6 * 8;

/// Of the saved registers, `rbx` comes first and `rbp` second.
const FRAME_POINTER_AT: i32 = -8 - SAVED_BYTES + 8;

/// `sub $8,%rsp` and `add $8,%rsp`, which surround calls.
const ALIGN: [u8; 4] = [0x48, 0x83, 0xec, 0x08];
const ALIGN_BACK: [u8; 4] = [0x48, 0x83, 0xc4, 0x08];
/// The longest distance from one to the other: arguments and the call.
const MAX_CALL_BYTES: usize = 128;

/// The rules for Haskell code.
pub(crate) struct Frames {
    plain: EntryId,
    around_calls: EntryId,
}

impl Frames {
    pub(crate) fn new(cfa_offset: i32, entries: &mut EntryInterner) -> Self {
        let mut rule = |offset| {
            entries.intern(Entry::Rule(Rule {
                cfa: Cfa::Register { register: Register::Rsp, offset },
                frame_pointer: SavedRegister::AtCfa(FRAME_POINTER_AT),
                return_address: ReturnAddress::AtCfa(-8),
                ..Architecture::X86_64.leaf()
            }))
        };
        Self { plain: rule(cfa_offset), around_calls: rule(cfa_offset.saturating_add(8)) }
    }

    /// Emits the rows of a part of a piece.
    pub(crate) fn put(&self, piece: &CodeSlice<'_>, start: u32, end: u32, out: &mut RowBuffer) {
        out.push((start, self.plain));
        let part = piece.part(start, end);
        let mut at = 0;
        while let Some(call) = find(part.bytes, at, &ALIGN) {
            let within = part.bytes.len().min(call.saturating_add(MAX_CALL_BYTES));
            at = call;
            if let Some(back) = find(part.bytes.get(..within).unwrap_or_default(), call, &ALIGN_BACK) {
                out.push((start + call as u32, self.around_calls));
                out.push((start + back as u32, self.plain));
                at = back;
            }
        }
    }
}

/// The end of the next occurrence of an instruction.
fn find(code: &[u8], from: usize, instruction: &[u8; 4]) -> Option<usize> {
    let at = code.get(from..)?.windows(instruction.len()).position(|bytes| bytes == instruction)?;
    Some(from + at + instruction.len())
}
