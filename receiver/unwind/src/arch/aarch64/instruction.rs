//! One decoded instruction, as far as the control flow of a function depends on it.

use super::NOP;
use super::branch::{Next, call_distance, is_branch_to_register, is_return};
use super::fields::{LINK, STACK_POINTER, base};
use super::writes::is_call;

/// The size of an instruction.
const WORD_BYTES: u32 = 4;

/// A word of code, and where it is, in bytes from the lowest code of its file.
#[derive(Clone, Copy)]
pub(crate) struct Instruction {
    pub(super) word: u32,
    pub(super) at: u32,
}

impl Instruction {
    /// Decodes the instruction at the start of `bytes`, located at `at`. What no instruction begins with isn't decoded, nor is
    /// `udf`, as which zeros would be decoded.
    pub(crate) fn decode(bytes: &[u8], at: u32) -> Option<Self> {
        let word = u32::from_le_bytes(*bytes.first_chunk()?);
        let is_allocated = match word >> 25 & 0b1111 {
            0b0000 => word >> 31 == 1, // SME
            0b0001 | 0b0011 => false,
            _ => true,
        };
        (at.is_multiple_of(WORD_BYTES) && is_allocated).then_some(Self { word, at })
    }

    /// Its first byte.
    pub(crate) fn start(&self) -> u32 {
        self.at
    }

    /// The first byte after it.
    pub(crate) fn end(&self) -> u32 {
        self.at.saturating_add(WORD_BYTES)
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u32 {
        WORD_BYTES
    }

    /// The target of a direct jump or call.
    pub(crate) fn target(&self) -> Option<u32> {
        let distance = call_distance(self.word).map(i64::from).or_else(|| Next::of(self.word).branch)?;
        u32::try_from(i64::from(self.at) + distance * i64::from(WORD_BYTES)).ok()
    }

    /// Whether it calls anything but the instruction after it, which is how code obtains its own address.
    pub(crate) fn is_call(&self) -> bool {
        is_call(self.word) && call_distance(self.word) != Some(1)
    }

    /// Whether it jumps to an address in its operand, always or on a condition.
    pub(crate) fn is_direct_jump(&self) -> bool {
        Next::of(self.word).branch.is_some()
    }

    /// Whether it jumps to an address held in a register, as `ret` does if that isn't the one in which a call left it.
    pub(crate) fn is_indirect_jump(&self) -> bool {
        is_branch_to_register(self.word) || is_return(self.word) && !self.is_return()
    }

    /// Whether it returns to the caller: `ret`, also with authentication, which names no register.
    pub(crate) fn is_return(&self) -> bool {
        is_return(self.word) && matches!(base(self.word), LINK | STACK_POINTER)
    }

    /// No instruction contains the address of a word that it jumps through.
    #[expect(clippy::unused_self, reason = "those of other architectures do")]
    pub(crate) fn stated_word(&self) -> Option<u64> {
        None
    }

    /// Whether user programs may not execute it: `hvc`, `smc`, `eret` and `drps`.
    pub(crate) fn is_privileged(&self) -> bool {
        self.word & 0xffe0_001e == 0xd400_0002 || self.word & 0xffdf_0000 == 0xd69f_0000
    }

    /// Whether it does nothing, like the instructions used to align code.
    pub(crate) fn is_padding(&self) -> bool {
        self.word == NOP
    }

    /// Whether execution never continues with the next instruction.
    pub(crate) fn is_last(&self) -> bool {
        !Next::of(self.word).falls_through
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_unwind_table::Architecture;

    use super::*;
    use crate::begins_instruction;

    fn decoded(word: u32) -> Instruction {
        Instruction::decode(&word.to_le_bytes(), 0x100).unwrap()
    }

    #[test]
    fn targets_are_relative_to_the_instruction() {
        let targets = [0x9400_0010, 0x17ff_ffff, 0x5400_0040, 0xb4ff_ffe0, 0x3600_0040, 0xd63f_0020];
        let targets = targets.map(|word| decoded(word).target());
        assert_eq!(targets, [Some(0x140), Some(0xfc), Some(0x108), Some(0xfc), Some(0x108), None]);
        assert_eq!(decoded(0x97ff_ff00).target(), None, "before all code");
    }

    #[test]
    fn calls_jumps_and_returns_are_told_apart() {
        let of = |word| {
            let it = decoded(word);
            [it.is_call(), it.is_direct_jump(), it.is_indirect_jump(), it.is_return(), it.is_last()]
        };
        assert_eq!(of(0x9400_0010), [true, false, false, false, false], "bl");
        assert_eq!(of(0x9400_0001), [false; 5], "bl to the next instruction");
        assert_eq!(of(0x1400_0010), [false, true, false, false, true], "b");
        assert_eq!(of(0x5400_0040), [false, true, false, false, false], "b.eq");
        assert_eq!(of(0xd71f_0822), [false, false, true, false, true], "braa x1, x2");
        assert_eq!(of(0xd65f_03c0), [false, false, false, true, true], "ret");
        assert_eq!(of(0xd65f_0bff), [false, false, false, true, true], "retaa");
        assert_eq!(of(0xd65f_01e0), [false, false, true, false, true], "ret x15");
        assert_eq!(of(0xd420_0020), [false, false, false, false, true], "brk");
    }

    #[test]
    fn instructions_begin_at_words() {
        let code = [0xfd, 0x7b, 0xbe, 0xa9, 0xc0, 0x03, 0x5f, 0xd6];
        let begins: Vec<_> =
            (0..=8).filter(|at| begins_instruction(Architecture::Aarch64, &code, *at)).collect();
        assert_eq!(begins, [0, 4]);
    }

    #[test]
    fn what_is_no_instruction_is_not_decoded() {
        let decode = |word: u32, at| Instruction::decode(&word.to_le_bytes(), at).is_some();
        assert!(!decode(0, 0x100), "udf");
        assert!(!decode(0x0223_4567, 0x100), "reserved");
        assert!(!decode(NOP, 0x102), "between two");
        assert!(Instruction::decode(&[0x1f, 0x20, 0x03], 0x100).is_none());
        assert!(decoded(0xd69f_03e0).is_privileged() && decoded(0xd400_0002).is_privileged());
        assert!(!decoded(0xd400_0001).is_privileged(), "svc");
    }
}
