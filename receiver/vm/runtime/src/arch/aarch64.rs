//! arm64.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.

use super::flow::{Flow, Step};
use crate::pthread::layout::{CLibrary, PthreadLayout};

/// The length of an instruction, in bytes.
pub const INSTRUCTION_BYTES_MAX: usize = 4;

/// The instruction at an address; `None` if the bytes are not one.
#[must_use]
pub fn step(code: &[u8], at: u64) -> Option<Step> {
    let word = u32::from_le_bytes(*code.first_chunk()?);
    // A signed number of instructions, in bits from `low` on.
    let target = |bits: u32, low: u32| {
        let distance = (word << (32 - bits - low)).cast_signed() >> (32 - bits);
        at.wrapping_add_signed(i64::from(distance) * INSTRUCTION_BYTES_MAX as i64)
    };
    let flow = match word {
        // `udf`: bytes that are no instruction.
        _ if word >> 16 == 0 => return None,
        // `b`, `b.cond`, `cbz`, `cbnz`, `tbz` and `tbnz`.
        _ if word >> 26 == 0b00_0101 => Flow::Jump(target(26, 0)),
        _ if word & 0xff00_0010 == 0x5400_0000 => Flow::Branch(target(19, 5)),
        _ if word & 0x7e00_0000 == 0x3400_0000 => Flow::Branch(target(19, 5)),
        _ if word & 0x7e00_0000 == 0x3600_0000 => Flow::Branch(target(14, 5)),
        // `bl`, and `blr`, also with authentication.
        _ if word >> 26 == 0b10_0101 || word & 0xfeff_f000 == 0xd63f_0000 => Flow::Call,
        // `br`, `ret`, `eret` and `drps`, also with authentication; `brk` and `hlt`.
        _ if word & 0xfe00_0000 == 0xd600_0000 => Flow::End,
        _ if matches!(word & 0xffe0_001f, 0xd420_0000 | 0xd440_0000) => Flow::End,
        _ => Flow::Next,
    };
    Some(Step { next: at.wrapping_add(INSTRUCTION_BYTES_MAX as u64), flow })
}

/// The offset of `struct pthread` from the thread pointer, below which it ends.
#[must_use]
pub fn offset_of_pthread(bytes: u32) -> i64 {
    -i64::from(bytes)
}

/// The layout of the C library's threads, if it is the same in all versions. Its size depends on the C library's version. That of musl is not known.
#[must_use]
pub const fn pthread_layout(_library: CLibrary) -> Option<PthreadLayout> {
    None
}

/// Instructions for tests of code that follows them.
#[cfg(any(test, feature = "test-support"))]
pub mod instructions {
    /// `ret`.
    pub const RETURN: [u8; 4] = [0xc0, 0x03, 0x5f, 0xd6];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_an_instruction_is_known() {
        for (word, flow) in [
            (0xd503_201f_u32, Flow::Next),
            (0xf940_0000, Flow::Next),
            // `svc`.
            (0xd400_0001, Flow::Next),
            (0x9400_0040, Flow::Call),
            (0xd63f_0020, Flow::Call),
            // `blraa`.
            (0xd73f_0843, Flow::Call),
            (0x1400_0004, Flow::Jump(0x1010)),
            (0x17ff_ffff, Flow::Jump(0xffc)),
            (0x5400_0061, Flow::Branch(0x100c)),
            (0xb4ff_ffe3, Flow::Branch(0xffc)),
            (0x3500_0040, Flow::Branch(0x1008)),
            (0xb718_0045, Flow::Branch(0x1008)),
            (0x3607_ffe5, Flow::Branch(0xffc)),
            (0xd61f_0200, Flow::End),
            (0xd65f_03c0, Flow::End),
            // `retab`, `brk`, `hlt`.
            (0xd65f_0fff, Flow::End),
            (0xd420_0000, Flow::End),
            (0xd440_0000, Flow::End),
        ] {
            assert_eq!(step(&word.to_le_bytes(), 0x1000), Some(Step { next: 0x1004, flow }), "{word:#x}");
        }
        assert_eq!(step(&[0, 0, 0, 0], 0x1000), None);
        assert_eq!(step(&[0x1f, 0x20, 0x03], 0x1000), None, "the start of one");
    }
}
