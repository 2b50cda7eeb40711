//! arm64: instructions are words of 4 bytes, of which the few that matter here are recognised by their bits (Arm
//! Architecture Reference Manual for A-profile, section C4).

mod access;
mod branch;
#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(not(target_arch = "aarch64"), expect(unreachable_pub, reason = "only its tests use it here"))]
pub(crate) mod call;
mod fields;
pub(crate) mod go;
pub(crate) mod hand_over;
mod instruction;
pub(crate) mod linkage;
mod pages;
mod step;
mod writes;

use self::branch::Next;
pub(crate) use self::instruction::Instruction;
pub(crate) use self::pages::Pages;
pub(crate) use self::step::at_entry;

/// `DW_CFA_AARCH64_negate_ra_state_with_pc` (DWARF for the Arm 64-bit Architecture, 2024Q3). The older instruction without
/// `_with_pc` changes no rule: a signature is stripped from every return address.
pub(super) const NEGATE_RA_STATE_WITH_PC: gimli::DwCfa = gimli::DwCfa(0x2c);

/// That of instructions: in code for size, or that is rarely executed.
pub(super) const FUNCTION_ALIGNMENT_BYTES: u32 = 4;

pub(super) const INSTRUCTION_BYTES: u32 = 4;

/// `nop`.
const NOP: u32 = 0xd503_201f;

/// `mov x8, #139; svc #0`.
pub(super) const RT_SIGRETURN: [&[u8]; 1] = [&[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4]];

/// Whether a symbol is `$x` or `$d`, perhaps with a suffix: there code or data begins (ELF for the Arm 64-bit
/// Architecture, section 5.5.7).
pub(super) fn is_mapping_symbol(name: &[u8]) -> bool {
    matches!(name, [b'$', b'x' | b'd'] | [b'$', b'x' | b'd', b'.', ..])
}

/// The instructions of code, as far as it has whole ones.
fn instructions(code: &[u8]) -> impl Iterator<Item = u32> {
    code.as_chunks::<4>().0.iter().copied().map(u32::from_le_bytes)
}

/// Bytes up to the first instruction, inclusive, after which execution never continues.
pub(super) fn straight_length(code: &[u8]) -> Option<u32> {
    let last = instructions(code).position(|word| !Next::of(word).falls_through)?;
    u32::try_from(last + 1).ok()?.checked_mul(INSTRUCTION_BYTES)
}

/// Whether code does nothing, like what is used to align it, or is zeros.
pub(super) fn is_padding(code: &[u8]) -> bool {
    instructions(code).all(|word| word == NOP || word == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn code_ends_where_it_never_continues() {
        const BL: u32 = 0x9400_0010;
        for last in [0x1400_0001, 0xd61f_0220, 0xd71f_0a11, 0xd65f_03c0, 0xd65f_0bff, 0xd420_0020, 0] {
            assert_eq!(straight_length(&bytes(&[NOP, BL, last, NOP])), Some(12), "{last:#x}");
        }
        let blr_cbz_and_svc = [0xd63f_0020, 0xb400_0040, 0xd400_0001];
        assert_eq!(straight_length(&bytes(&blr_cbz_and_svc)), None);
    }

    #[test]
    fn mapping_symbols_are_no_names() {
        let names: [&[u8]; 6] = [b"$x", b"$d", b"$d.12", b"$dollar", b"$", b"main"];
        assert_eq!(names.map(is_mapping_symbol), [true, true, true, false, false, false]);
    }
}
