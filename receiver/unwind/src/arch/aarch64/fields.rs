//! The fields of instructions, and the instructions that compute a value from one register.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.1, "A64 instruction set encoding".

/// The register number 31 is the stack pointer in some fields of some instructions, and zero in the others.
pub(super) const STACK_POINTER: u32 = 31;
pub(super) const LINK: u32 = 30;

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

/// `add` and `sub` of 64 bits with a register, of which the first two operands may be the stack pointer: to, from, the register,
/// and whether that is subtracted.
pub(super) fn register_sum(word: u32) -> Option<(u32, u32, u32, bool)> {
    (word & 0xbfe0_fc00 == 0x8b20_6000).then_some((first(word), base(word), third(word), word >> 30 & 1 == 1))
}

/// `movz` and `movk`: the register, the bits that are kept, and those that are set.
pub(super) fn constant(word: u32) -> Option<(u32, u64, u64)> {
    let (is_wide, shift) = (word >> 31 == 1, (word >> 21 & 0b11) * 16);
    let set = u64::from(word >> 5 & 0xffff) << shift;
    let kept = match word & 0x7f80_0000 {
        0x5280_0000 => 0,
        0x7280_0000 => !(0xffff << shift),
        _ => return None,
    };
    (is_wide || shift < 32).then_some((first(word), kept, set))
}

/// The distance in bytes from the page of `adrp` to the one whose address it computes.
pub(super) fn page_distance(word: u32) -> Option<i64> {
    let pages = i64::from(signed_field(word, 5, 19)) << 2 | i64::from(word >> 29 & 0b11);
    (word & 0x9f00_0000 == 0x9000_0000).then_some(pages << 12)
}

/// The register that `mov` of 64 bits copies.
pub(super) fn moved(word: u32) -> Option<u32> {
    (word & 0xffe0_ffe0 == 0xaa00_03e0).then_some(third(word))
}
