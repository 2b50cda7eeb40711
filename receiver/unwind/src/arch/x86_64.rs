//! x86-64 (System V ABI for AMD64).

mod call;
pub(crate) mod clone;
pub(crate) mod go;
pub(crate) mod haskell;
mod instruction;
pub(crate) mod known;
pub(crate) mod linkage;
mod step;

pub use self::call::{CALL_BYTES, call_before};
pub(crate) use self::instruction::Instruction;
pub(crate) use self::step::Stepper;

/// The architecture in the headers of ELF files.
pub(crate) const MACHINE: object::Architecture = object::Architecture::X86_64;

/// `SFRAME_ABI_AMD64_ENDIAN_LITTLE`.
pub(crate) const SFRAME_ABI: u8 = 3;
