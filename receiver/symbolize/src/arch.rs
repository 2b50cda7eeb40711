//! The architecture-specific parts: constants of ELF files, the stubs of procedure linkage tables, registers by name, and
//! machine code as text.

mod x86_64;

pub(crate) use self::x86_64::{
    ARGUMENT_REGISTERS, GLOB_DAT, JUMP_SLOT, MACHINE, RELATIVE, RESULT_REGISTER, STUB_BYTES, disassemble,
    parse_operand, word_jumped_through,
};
