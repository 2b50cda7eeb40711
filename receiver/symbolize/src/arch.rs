//! The architecture-specific parts: constants of ELF files, the stubs of procedure linkage tables, registers by name, and
//! machine code as text.
//!
//! The unit tests of all architectures run on any of them.

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(not(target_arch = "aarch64"), expect(unused, reason = "only its tests use it here"))]
mod aarch64;
pub(crate) mod listed_instruction;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use self::aarch64 as host;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as host;

pub use self::listed_instruction::ListedInstruction;
pub(crate) use host::{
    ARGUMENT_REGISTERS, GLOB_DAT, JUMP_SLOT, MACHINE, RELATIVE, RESULT_REGISTER, disassemble, parse_operand,
    stubs,
};

/// A stub of a procedure linkage table, and the word that it jumps through, by their stated addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stub {
    pub(crate) word: u64,
    pub(crate) svma: u64,
    pub(crate) bytes: u32,
}

/// A number in decimal digits or, behind `0x`, hexadecimal ones, with or without a minus sign.
fn parse_number(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let magnitude = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
        None if digits.starts_with(|first: char| first.is_ascii_digit()) => digits.parse::<i64>().ok()?,
        None => return None,
    };
    Some(sign * magnitude)
}
