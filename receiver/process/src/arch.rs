//! Differences between architectures: ELF constants, and the layout of thread-local storage.

mod x86_64;

pub(crate) use self::x86_64::{
    DTPMOD, GO_G_ALONE, MACHINE, STATIC_OFFSETS, TLSDESC, TPOFF, offset_in_program,
};
