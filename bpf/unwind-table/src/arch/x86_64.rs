//! x86-64 (System V ABI for AMD64).

mod register;
mod rule;

pub use self::register::Register;

/// Bytes per entry of a lazily bound procedure linkage table (section 5.2): the index is on the stack from byte 11 on, or
/// from byte 10 if the entry starts with `endbr64`.
pub const PLT_ENTRY_BYTES: u32 = 16;
