//! The architecture-specific parts: constants of ELF files, the stubs of procedure linkage tables, registers by name, and
//! machine code as text.
//!
//! The unit tests of all architectures run on any of them.

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(not(target_arch = "aarch64"), expect(unused, reason = "only its tests use it here"))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use self::aarch64 as host;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as host;

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
