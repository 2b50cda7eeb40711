//! x86-64. Source: System V ABI for AMD64, "Procedure Linkage Table".

mod listing;
mod operand;

pub(crate) use listing::disassemble;
pub(crate) use operand::parse_operand;

pub(crate) use object::elf::{
    EM_X86_64 as MACHINE, R_X86_64_GLOB_DAT as GLOB_DAT, R_X86_64_JUMP_SLOT as JUMP_SLOT,
    R_X86_64_RELATIVE as RELATIVE,
};

use super::Stub;

/// The registers of the first arguments of a C function, by DWARF number: rdi, rsi, rdx, rcx, r8, r9 (section 3.2.3).
pub(crate) const ARGUMENT_REGISTERS: [u8; 6] = [5, 4, 1, 2, 8, 9];
/// rax, which holds a C function's result.
pub(crate) const RESULT_REGISTER: u8 = 0;

/// Bytes of a stub, if the section doesn't state it.
const STUB_BYTES: u64 = 16;
/// `jmp *displacement(%rip)`.
const JUMP: [u8; 2] = [0xff, 0x25];

/// The stubs in a part of a section that begins at `svma`, and whose entries have a stated size.
pub(crate) fn stubs(code: &[u8], svma: u64, entry_bytes: u64) -> impl Iterator<Item = Stub> {
    let bytes = if entry_bytes == 8 { 8 } else { STUB_BYTES };
    code.chunks_exact(bytes as usize).zip((0..).step_by(bytes as usize)).filter_map(move |(stub, at)| {
        let svma = svma.wrapping_add(at);
        Some(Stub { word: word_jumped_through(stub, svma)?, svma, bytes: bytes as u32 })
    })
}

/// The stated address of the word that a stub jumps through.
fn word_jumped_through(stub: &[u8], svma: u64) -> Option<u64> {
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
