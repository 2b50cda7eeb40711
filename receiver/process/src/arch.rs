//! What differs between architectures: the numbers in ELF files, and where thread-local variables are.

mod x86_64;

pub(crate) use self::x86_64::{
    DTPMOD, GO_G_ALONE, MACHINE, STATIC_OFFSETS, TLSDESC, TPOFF, offset_in_program,
};
