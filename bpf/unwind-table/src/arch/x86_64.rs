//! x86-64 (System V ABI for AMD64).

mod register;
mod rule;

pub use self::register::Register;

/// Bytes of an entry of a procedure linkage table that is bound lazily (section 5.2): the index is on the stack from byte 11 on,
/// or from byte 10 where `endbr64` comes first.
pub const PLT_ENTRY_BYTES: u32 = 16;
