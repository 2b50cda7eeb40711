//! arm64. Source: "ELF for the Arm 64-bit Architecture", "Procedure Call Standard for the Arm 64-bit Architecture", and the
//! Arm Architecture Reference Manual for A-profile, section C4, for the instructions.

mod listing;
mod operand;

pub(crate) use listing::disassemble;
pub(crate) use operand::parse_operand;

pub(crate) use object::elf::{
    EM_AARCH64 as MACHINE, R_AARCH64_GLOB_DAT as GLOB_DAT, R_AARCH64_JUMP_SLOT as JUMP_SLOT,
    R_AARCH64_RELATIVE as RELATIVE,
};

use super::Stub;

/// The registers of the first arguments of a C function, by DWARF number: x0 to x7.
pub(crate) const ARGUMENT_REGISTERS: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
/// x0, which holds a C function's result.
pub(crate) const RESULT_REGISTER: u8 = 0;

const WORD_BYTES: usize = 4;
/// `bti c`, with which stubs start in programs whose branches the CPU checks.
const BTI_C: u32 = 0xd503_245f;
/// `br x17`.
const BRANCH: u32 = 0xd61f_0220;
/// Instructions of a stub, after `bti`: `adrp x16`, `ldr x17`, `add x16`, perhaps `autia1716`, and the branch.
const STUB_WORDS_MAX: usize = 5;

/// The stubs in a part of a section that begins at `svma`. A stub that crosses the part's end isn't found; without `bti`, stubs
/// have 16 bytes, and none does.
pub(crate) fn stubs(code: &[u8], svma: u64, _entry_bytes: u64) -> impl Iterator<Item = Stub> {
    let words: Vec<u32> = code.as_chunks().0.iter().copied().map(u32::from_le_bytes).collect();
    let stub_at = move |at: usize| {
        let address = |at: usize| svma.wrapping_add((at * WORD_BYTES) as u64);
        let page = adrp_target(*words.get(at)?, address(at), 16)?;
        let load = *words.get(at + 1)?;
        // `ldr x17, [x16, #n * 8]`.
        let offset = (load & 0xffc0_03ff == 0xf940_0211).then_some(u64::from(load >> 10 & 0xfff) * 8)?;
        let length = words.iter().skip(at).take(STUB_WORDS_MAX).position(|word| *word == BRANCH)? + 1;
        let has_bti = at.checked_sub(1).and_then(|before| words.get(before)) == Some(&BTI_C);
        let start = at - usize::from(has_bti);
        let bytes = (at + length - start) * WORD_BYTES;
        Some(Stub { word: page.wrapping_add(offset), svma: address(start), bytes: bytes as u32 })
    };
    (0..code.len() / WORD_BYTES).filter_map(stub_at)
}

/// The address that an `adrp` of this register computes.
fn adrp_target(word: u32, at: u64, register: u32) -> Option<u64> {
    (word & 0x9f00_001f == 0x9000_0000 | register).then(|| page_address(word, at))
}

/// The address of the page that an `adrp` at `at` refers to: units of 4 KiB, whatever the size of pages is.
fn page_address(word: u32, at: u64) -> u64 {
    (at >> 12 << 12).wrapping_add_signed(address_immediate(word) << 12)
}

/// The signed immediate of `adr` and `adrp`, of 21 bits.
fn address_immediate(word: u32) -> i64 {
    let immediate = word >> 3 & 0x1f_fffc | word >> 29 & 3;
    i64::from((immediate << 11).cast_signed() >> 11)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn each_form_of_stub_tells_its_word() {
        // The first entry of a table, which jumps through a word without a function, and one more (GNU ld 2.40).
        let plain = bytes(&[
            0xa9bf_7bf0,
            0xf000_00f0,
            0xf947_fe11,
            0x913f_e210,
            0xd61f_0220,
            0xd503_201f,
            0xd503_201f,
            0xd503_201f,
            0x9000_0110,
            0xf940_0211,
            0x9100_0210,
            0xd61f_0220,
        ]);
        let found: Vec<_> = stubs(&plain, 0x610, 16).collect();
        let first = Stub { word: 0x1_fff8, svma: 0x614, bytes: 16 };
        assert_eq!(found, [first, Stub { word: 0x2_0000, svma: 0x630, bytes: 16 }]);
        // With `-z force-bti`, and with authentication.
        let checked = bytes(&[
            BTI_C,
            0x9000_0110,
            0xf940_0611,
            0x9100_2210,
            0xd503_219f,
            0xd61f_0220,
            BTI_C,
            0x9000_0110,
            0xf940_0a11,
            0x9100_4210,
            0xd61f_0220,
            0xd503_201f,
        ]);
        let found: Vec<_> = stubs(&checked, 0x640, 24).collect();
        let second = Stub { word: 0x2_0010, svma: 0x658, bytes: 20 };
        assert_eq!(found, [Stub { word: 0x2_0008, svma: 0x640, bytes: 24 }, second]);
    }

    #[test]
    fn other_code_has_no_stubs() {
        let other_register = [0x9000_0111, 0xf940_0211, BRANCH];
        let no_branch = [0x9000_0110, 0xf940_0211, 0x9100_0210, 0xd65f_03c0, 0, 0, 0];
        for words in [&other_register[..], &no_branch, &[0x9000_0110], &[]] {
            assert_eq!(stubs(&bytes(words), 0x1000, 16).next(), None);
        }
    }
}
