//! x86-64. Source: System V ABI for AMD64, "Procedure Linkage Table".

mod listing;
mod operand;

pub(crate) use listing::disassemble;
pub(crate) use operand::parse_operand;

pub(crate) use object::elf::{
    EM_X86_64 as MACHINE, R_X86_64_GLOB_DAT as GLOB_DAT, R_X86_64_JUMP_SLOT as JUMP_SLOT,
    R_X86_64_RELATIVE as RELATIVE,
};

/// The registers of the first arguments of a C function, by DWARF number: rdi, rsi, rdx, rcx, r8, r9 (section 3.2.3).
pub(crate) const ARGUMENT_REGISTERS: [u8; 6] = [5, 4, 1, 2, 8, 9];
/// rax: that of what a C function returns.
pub(crate) const RESULT_REGISTER: u8 = 0;

/// Bytes of a stub, if the section doesn't state it.
pub(crate) const STUB_BYTES: u64 = 16;
/// `jmp *displacement(%rip)`.
const JUMP: [u8; 2] = [0xff, 0x25];

/// The stated address of the word that a stub jumps through.
pub(crate) fn word_jumped_through(stub: &[u8], svma: u64) -> Option<u64> {
    let jump = stub.windows(JUMP.len()).position(|bytes| bytes == JUMP)?;
    let end = jump + JUMP.len() + 4;
    let displacement = stub.get(end - 4..end)?.first_chunk().copied().map(i32::from_le_bytes)?;
    svma.checked_add(end as u64)?.checked_add_signed(displacement.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_stub_tells_its_word() {
        let word = |stub: &[u8]| word_jumped_through(stub, 0x1000);
        assert_eq!(word(&[0xff, 0x25, 0x10, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9]), Some(0x1016), "lazy");
        assert_eq!(word(&[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x10, 0, 0, 0]), Some(0x101a), "endbr64");
        assert_eq!(word(&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xf0, 0xff, 0xff, 0xff]), Some(0xffb));
        assert_eq!(word(&[0xff, 0x25, 0x10, 0, 0]), None, "cut off");
        assert_eq!(word(&[0xff, 0x35, 0x10, 0, 0, 0]), None, "the resolver\'s push");
    }
}
