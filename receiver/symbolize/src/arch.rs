//! The architecture-specific parts: constants of ELF files, the stubs of procedure linkage tables, and registers by name.

mod x86_64;

pub(crate) use self::x86_64::{
    ARGUMENT_REGISTERS, GLOB_DAT, JUMP_SLOT, MACHINE, RELATIVE, RESULT_REGISTER, STUB_BYTES, parse_operand,
    word_jumped_through,
};
