//! x86-64. Thread-local storage is variant II: static blocks are below the thread pointer, and the program's block ends
//! there.
//!
//! Source: Drepper, "ELF Handling For Thread-Local Storage", and Oliva, "RFC TLSDESC x86-64".

use std::ops::Range;

pub(crate) use object::elf::{
    EM_X86_64 as MACHINE, R_X86_64_DTPMOD64 as DTPMOD, R_X86_64_TLSDESC as TLSDESC, R_X86_64_TPOFF64 as TPOFF,
};

/// Offsets of static blocks from the thread pointer: less than 2 GiB below it.
pub(crate) const STATIC_OFFSETS: Range<i64> = i32::MIN as i64..0;

/// The thread-local variable that holds a thread's `g`.
pub(crate) const GO_G_SYMBOL: &[u8] = b"runtime.tlsg";
/// The offset of that variable in programs without the symbol, whose thread-local storage Go's linker alone has laid out: the
/// last word before the thread pointer (cmd/link, "TLS offset").
pub(crate) const GO_G_OFFSET: Option<i64> = Some(-8);

/// The offset from the thread pointer of the byte at offset `value` in the program's block, whose initial image is given.
/// The block ends at the thread pointer, and starts where its alignment allows.
pub(crate) fn offset_in_program(address: u64, bytes: u64, align: u64, value: u64) -> i64 {
    let align = align.max(1);
    let end = address.wrapping_add(bytes);
    let padding = end.wrapping_neg() & (align.wrapping_sub(1));
    value.wrapping_sub(bytes).wrapping_sub(padding) as i64
}
