//! The architecture-specific parts: constants of ELF files, and the stubs of procedure linkage tables.

mod x86_64;

pub(crate) use self::x86_64::{GLOB_DAT, JUMP_SLOT, MACHINE, RELATIVE, STUB_BYTES, word_jumped_through};
