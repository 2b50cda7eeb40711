//! Differences between architectures: the frames of the interpreter.

#[cfg(any(target_arch = "aarch64", test))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use self::aarch64 as host;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as host;

pub(crate) use host::interpreted_frame;

/// Frames of the interpreter, as far as they depend on its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterpretedFrame {
    /// How far below the frame pointer the address of the bytecode is, in bytes.
    pub bytecode: u8,
    /// The register with the caller's stack pointer at the entry of a method, by its number in DWARF.
    pub sender_sp: u8,
}
