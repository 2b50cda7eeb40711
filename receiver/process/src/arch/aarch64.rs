//! arm64. Thread-local storage is variant I: static blocks are above the thread pointer, where first the thread control
//! block of two words is, and then the program's block.
//!
//! Source: "ELF for the Arm 64-bit Architecture", sections "Thread Local Storage" and "Dynamic relocations".

use std::ops::Range;

pub(crate) use object::elf::{
    EM_AARCH64 as MACHINE, R_AARCH64_TLS_DTPMOD as DTPMOD, R_AARCH64_TLS_TPREL as TPOFF,
    R_AARCH64_TLSDESC as TLSDESC,
};

use super::LEAST_POINTER;

/// The thread control block at the thread pointer.
const CONTROL_BLOCK_BYTES: u64 = 16;

/// Offsets of static blocks from the thread pointer. Variables that are farther away are not found: words with such offsets
/// could be pointers.
pub(crate) const STATIC_OFFSETS: Range<i64> = CONTROL_BLOCK_BYTES as i64..LEAST_POINTER as i64;

/// The thread-local variable that holds a thread's `g` (runtime/tls_arm64.s). It is set in programs with cgo alone.
pub(crate) const GO_G_SYMBOL: &[u8] = b"runtime.tls_g";
/// The offset of that variable in programs without the symbol: none is assumed, as the `g` is in a register, too.
pub(crate) const GO_G_OFFSET: Option<i64> = None;

/// The offset from the thread pointer of the byte at offset `value` in the program's block, whose initial image is given.
/// The block starts behind the control block, at the first address that is as far from a multiple of the alignment as the
/// image's address is. The thread pointer is such a multiple.
pub(crate) fn offset_in_program(address: u64, _bytes: u64, align: u64, value: u64) -> i64 {
    let padding = address.wrapping_sub(CONTROL_BLOCK_BYTES) & align.max(1).wrapping_sub(1);
    CONTROL_BLOCK_BYTES.wrapping_add(padding).wrapping_add(value) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_block_is_behind_the_control_block_where_its_alignment_allows() {
        assert_eq!(offset_in_program(0x41_fdc0, 8, 8, 0), 16);
        assert_eq!(offset_in_program(0x41_fdc0, 8, 8, 4), 20);
        assert_eq!(offset_in_program(0x41_fdc0, 128, 64, 8), 72, "aligned to more than the control block");
        assert_eq!(offset_in_program(0x41_fdc8, 128, 64, 8), 80, "an image that begins unaligned");
        assert_eq!(offset_in_program(0, 0, 0, 0), 16, "no alignment stated");
    }

    #[test]
    fn an_offset_is_never_taken_for_a_pointer() {
        assert!(STATIC_OFFSETS.contains(&16) && !STATIC_OFFSETS.contains(&8), "the control block");
        assert!(!STATIC_OFFSETS.contains(&(LEAST_POINTER as i64)) && !STATIC_OFFSETS.contains(&-8));
    }
}
