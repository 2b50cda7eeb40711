//! Which registers an instruction may write.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.1, "A64 instruction set encoding".

use super::fields::{LINK, STACK_POINTER, base, first, second};

/// Whether an instruction may write this register, or the stack pointer. What isn't known counts as a write. Signing and authenticating
/// the return address changes its signature only.
pub(super) fn may_write(word: u32, register: u32) -> bool {
    // op0, which tells the groups apart.
    match word >> 25 & 0b1111 {
        0b1000 | 0b1001 => immediate_may_write(word, register),
        0b1010 | 0b1011 => branch_may_write(word, register),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory_may_write(word, register),
        0b0101 | 0b1101 => register_may_write(word, register),
        0b0111 | 0b1111 => {
            register != STACK_POINTER && first(word) == register && is_of_vector_to_general(word)
        }
        // SVE: `addvl`, `addpl` and `rdvl`, counts, and elements. Vectors and predicates have numbers of their own there.
        0b0010 => first(word) == register && (register != STACK_POINTER || word & 0xffa0_f000 == 0x0420_5000),
        // Reserved, and SME.
        _ => true,
    }
}

/// `bl`, and `blr`, also with authentication.
pub(super) fn is_call(word: u32) -> bool {
    word >> 26 == 0b10_0101 || word & 0xfeff_f000 == 0xd63f_0000
}

/// Data processing with an immediate.
fn immediate_may_write(word: u32, register: u32) -> bool {
    let sets_flags = match word >> 23 & 0b11_1111 {
        0b10_0010 | 0b10_0011 => word >> 29 & 1 == 1, // add, sub, addg, subg
        0b10_0100 => word >> 29 & 0b11 == 0b11,       // and, orr, eor, ands
        _ => true,                                    // 31 is zero in the others
    };
    first(word) == register && !(register == STACK_POINTER && sets_flags)
}

/// Branches, exceptions and system instructions.
fn branch_may_write(word: u32, register: u32) -> bool {
    // `mrs` and `sysl`, and those that read a pair of registers.
    let is_read = word & 0xffe0_0000 == 0xd520_0000 && first(word) == register && register != STACK_POINTER;
    is_call(word) && register == LINK || is_read || word & 0xffe0_0000 == 0xd560_0000
}

/// Loads and stores.
fn memory_may_write(word: u32, register: u32) -> bool {
    let is_pair = word & 0x3a00_0000 == 0x2800_0000;
    let is_exclusive = word & 0x3f00_0000 == 0x0800_0000;
    let is_literal = word & 0x3b00_0000 == 0x1800_0000;
    // Tags, copies of memory, and pairs that are changed at once.
    let is_other = word & 0x3b00_0000 == 0x1900_0000;
    let has_unsigned_offset = word & 0x3b00_0000 == 0x3900_0000;
    let has_offset = word & 0x3b20_0000 == 0x3800_0000;
    let has_unscaled_offset = has_offset && word & 0xc00 == 0;
    let has_register_offset = word & 0x3b20_0c00 == 0x3820_0800;
    let is_atomic = word & 0x3b20_0c00 == 0x3820_0000;
    let is_store = match is_pair {
        true => word >> 22 & 1 == 0,
        false => (has_unsigned_offset || has_offset || has_register_offset) && word >> 22 & 0b11 == 0,
    };
    // Compare and swap returns the old value in Rs, or a pair from it on.
    let status = word >> 16 & 0b1_1111;
    let loads = first(word) == register
        || (is_pair || is_exclusive) && second(word) == register
        || is_exclusive && (status == register || status + 1 == register);
    let keeps_base = is_literal
        || is_exclusive
        || is_pair && word >> 23 & 1 == 0
        || has_unsigned_offset
        || has_unscaled_offset
        || has_register_offset
        || is_atomic;
    is_other || loads && !is_store && register != STACK_POINTER || base(word) == register && !keeps_base
}

/// Whether an instruction of SIMD and floating point writes a general register.
fn is_of_vector_to_general(word: u32) -> bool {
    let is_conversion = word & 0x5f20_fc00 == 0x1e20_0000 || word & 0x5f20_0000 == 0x1e00_0000;
    // `scvtf`, `ucvtf` and `fmov` from a general register.
    let is_from_general = matches!(word >> 16 & 0b111, 0b010 | 0b011 | 0b111);
    // `smov` and `umov`.
    let is_element = word & 0xbfe0_8400 == 0x0e00_0400 && matches!(word >> 11 & 0b1111, 0b0101 | 0b0111);
    is_conversion && !is_from_general || is_element
}

/// Data processing with registers.
fn register_may_write(word: u32, register: u32) -> bool {
    let is_extended_sum = word & 0x1f20_0000 == 0x0b20_0000 && word >> 29 & 1 == 0;
    let is_checked_sum = word & 0xbfe0_e000 == 0x9a00_2000;
    let is_random_tag = word & 0xffe0_fc00 == 0x9ac0_1000;
    let may_be_stack_pointer = is_extended_sum || is_checked_sum || is_random_tag;
    first(word) == register && (register != STACK_POINTER || may_be_stack_pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes_stack_pointer_or_link(word: u32) -> bool {
        may_write(word, STACK_POINTER) || may_write(word, LINK)
    }

    #[test]
    fn instructions_that_only_read_a_register_leave_it() {
        let words = [
            0x8b25_63e5, // add x5, sp, x5
            0xf940_07e0, // ldr x0, [sp, #8]
            0xa941_0be1, // ldp x1, x2, [sp, #16]
            0xb863_6be0, // ldr w0, [sp, x3]
            0xf85f_83e0, // ldur x0, [sp, #-8]
            0xf820_03e1, // ldadd x0, x1, [sp]
            0xd53b_d040, // mrs x0, tpidr_el0
            0xaa1e_03e1, // mov x1, x30
            0xf100_43ff, // cmp sp, #0x10
            0xf240_0c1f, // tst x0, #0xf
            0xd400_0001, // svc #0
            0x1400_001e, // b
            0x5400_0000, // b.eq
            0xb400_0000, // cbz x0
            0xad00_0400, // stp q0, q1, [x0]
            0xd503_23bf, // autiasp
            0xd503_245f, // bti c
            0x1e27_001e, // fmov s30, w0
            0x9e62_001e, // scvtf d30, x0
            0x9eaf_001e, // fmov v30.d[1], x0
            0x0421_00a5, // add z5.b, z5.b, z1.b
        ];
        for word in words {
            assert!(!writes_stack_pointer_or_link(word), "{word:#x}");
        }
    }

    #[test]
    fn what_may_write_a_register_is_found() {
        let words = [
            0x0000_0000, // udf
            0xd100_43ff, // sub sp, sp, #0x10
            0x9100_03bf, // mov sp, x29
            0x927c_ec3f, // and sp, x1, #-16
            0xcb21_73ff, // sub sp, sp, x1, lsl #4
            0xf81f_0fe0, // str x0, [sp, #-16]!
            0xf841_07e0, // ldr x0, [sp], #16
            0xa9bf_7bfd, // stp x29, x30, [sp, #-16]!
            0xa8c1_07e0, // ldp x0, x1, [sp], #16
            0xa940_781d, // ldp x29, x30, [x0]
            0xf940_001e, // ldr x30, [x0]
            0xaa00_03fe, // mov x30, x0
            0xd280_003e, // mov x30, #1
            0x8b01_03de, // add x30, x30, x1
            0x9400_0000, // bl
            0xd63f_0060, // blr x3
            0xd73f_0864, // blraa x3, x4
            0xd53b_d05e, // mrs x30, tpidr_el0
            0xc8fe_7c01, // casa x30, x1, [x0]
            0x9e66_001e, // fmov x30, d0
            0x4c9f_73e0, // st1 {v0.16b}, [sp], #16
            0x4cc1_73e0, // ld1 {v0.16b}, [sp], x1
            0x9e58_f41e, // fcvtzs x30, d0, #3
            0x0e0c_3c1e, // mov w30, v0.s[1]
            0x4e18_3c1e, // mov x30, v0.d[1]
            0x043f_57ff, // addvl sp, sp, #-1
            0x04e0_e3fe, // cntd x30
            0x04bf_503e, // rdvl x30, #1
            0xd920_17ff, // stg sp, [sp], #16
            0xc080_0000, // of SME
        ];
        for word in words {
            assert!(writes_stack_pointer_or_link(word), "{word:#x}");
        }
    }
}
