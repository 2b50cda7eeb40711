//! x86-64.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

use super::flow::{Flow, Step};
use crate::pthread::layout::{CLibrary, KeyValues, PthreadLayout};

/// The longest instruction, in bytes.
pub const INSTRUCTION_BYTES_MAX: usize = 15;

/// The instruction at an address; `None` if the bytes are not one.
#[must_use]
pub fn step(code: &[u8], at: u64) -> Option<Step> {
    let instruction = Decoder::with_ip(64, code, at, DecoderOptions::NONE).iter().next()?;
    let is_direct = instruction.is_jmp_short_or_near() || instruction.is_jcc_short_or_near();
    let target = instruction.near_branch_target();
    let flow = match instruction.flow_control() {
        // After a `hlt`, which user space may not execute, HotSpot has no code that belongs to what is before it.
        FlowControl::Next if instruction.mnemonic() != Mnemonic::Hlt => Flow::Next,
        FlowControl::Call | FlowControl::IndirectCall => Flow::Call,
        FlowControl::UnconditionalBranch if is_direct => Flow::Jump(target),
        FlowControl::ConditionalBranch if is_direct => Flow::Branch(target),
        _ => Flow::End,
    };
    (!instruction.is_invalid()).then(|| Step { next: instruction.next_ip(), flow })
}

/// The offset of `struct pthread` from the thread pointer, which points to it.
#[must_use]
pub fn offset_of_pthread(_bytes: u32) -> i64 {
    0
}

/// The layout of the C library's threads: the fields are where they are in all versions.
#[must_use]
pub const fn pthread_layout(library: CLibrary) -> Option<PthreadLayout> {
    let values = match library {
        CLibrary::Glibc => KeyValues::Blocks { first: 0x310, pointers: 0x510 },
        CLibrary::Musl => KeyValues::Array { pointer: 0x80 },
    };
    Some(PthreadLayout { structure: 0, values })
}

/// Instructions for tests of code that follows them.
#[cfg(any(test, feature = "test-support"))]
pub mod instructions {
    /// `nop`.
    pub const NEXT: u8 = 0x90;
    /// `ret`.
    pub const RETURN: u8 = 0xc3;
    /// `call`.
    pub const CALL: [u8; 5] = [0xe8, 0, 1, 0, 0];

    /// `jmp` from one offset to another.
    #[must_use]
    pub fn jump(from: i8, to: i8) -> [u8; 2] {
        [0xeb, (to - from - 2).cast_unsigned()]
    }

    /// `jne` from one offset to another.
    #[must_use]
    pub fn branch(from: i8, to: i8) -> [u8; 2] {
        [0x75, (to - from - 2).cast_unsigned()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_follows_an_instruction_is_known() {
        for (code, bytes, flow) in [
            (&[0x48, 0x89, 0xc3][..], 3, Flow::Next),
            (&[0xe8, 0, 1, 0, 0], 5, Flow::Call),
            // Through a register.
            (&[0xff, 0xd0], 2, Flow::Call),
            (&[0xff, 0xe0], 2, Flow::End),
            (&[0xeb, 0x10], 2, Flow::Jump(0x1012)),
            (&[0xe9, 0xfb, 0xff, 0xff, 0xff], 5, Flow::Jump(0x1000)),
            (&[0x75, 0xfe], 2, Flow::Branch(0x1000)),
            (&[0x0f, 0x84, 0, 1, 0, 0], 6, Flow::Branch(0x1106)),
            (&[0xc3], 1, Flow::End),
            (&[0xcc], 1, Flow::End),
            // An instruction that never is one, and the trap of HotSpot.
            (&[0x0f, 0x0b], 2, Flow::End),
            (&[0xf4], 1, Flow::End),
        ] {
            assert_eq!(step(code, 0x1000), Some(Step { next: 0x1000 + bytes, flow }), "{code:x?}");
        }
        // The start of one, and none.
        assert_eq!(step(&[0xe8, 0, 1], 0x1000), None);
        assert_eq!(step(&[0x06], 0x1000), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_instruction_or_none(code: Vec<u8>, at: u64) {
            if let Some(step) = step(&code, at) {
                prop_assert!((1..=INSTRUCTION_BYTES_MAX as u64).contains(&step.next.wrapping_sub(at)));
            }
        }
    }
}
