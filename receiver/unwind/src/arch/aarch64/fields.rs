//! The fields of instructions, and the instructions that compute a value from one register.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.1, "A64 instruction set encoding".

/// The register number 31 is the stack pointer in some fields of some instructions, and zero in the others.
pub(super) const STACK_POINTER: u32 = 31;
pub(super) const LINK: u32 = 30;
pub(super) const FRAME_POINTER: u32 = 29;

/// Rd or Rt.
pub(super) fn first(word: u32) -> u32 {
    word & 0b1_1111
}

/// Rn, the base of an address.
pub(super) fn base(word: u32) -> u32 {
    word >> 5 & 0b1_1111
}

/// Rt2.
pub(super) fn second(word: u32) -> u32 {
    word >> 10 & 0b1_1111
}

/// Rm.
pub(super) fn third(word: u32) -> u32 {
    word >> 16 & 0b1_1111
}

/// A signed number in so many bits of an instruction, from bit `shift` on.
pub(super) fn signed_field(word: u32, shift: u32, bits: u32) -> i32 {
    (word >> shift << (32 - bits)).cast_signed() >> (32 - bits)
}

/// `add` and `sub` of 64 bits with a constant: to, from, and what is added.
pub(super) fn sum(word: u32) -> Option<(u32, u32, i32)> {
    let is_sum = word & 0xbf80_0000 == 0x9100_0000;
    let constant = i32::try_from((word >> 10 & 0xfff) << ((word >> 22 & 1) * 12)).ok()?;
    let addend = if word >> 30 & 1 == 1 { -constant } else { constant };
    is_sum.then_some((first(word), base(word), addend))
}

/// The register that `mov` of 64 bits copies.
pub(super) fn moved(word: u32) -> Option<u32> {
    (word & 0xffe0_ffe0 == 0xaa00_03e0).then_some(third(word))
}
