//! Code of Go's compiler and of its runtime's assembly, recognised by its bytes.

use sidewinder_unwind_table::Register;

/// Names of the functions where programs begin.
pub(crate) const PROGRAM_STARTS: [&[u8]; 2] = [b"_rt0_amd64", b"_rt0_amd64_linux"];

/// `push %rbp; mov %rsp,%rbp`.
pub(crate) const PROLOGUE: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];

/// `push %rbp`.
pub(crate) const PUSH_FRAME_POINTER: u8 = 0x55;

/// Whether code ends with [`PUSH_FRAME_POINTER`], and not with `push %r13`, which is the same byte after a prefix.
pub(crate) fn ends_with_push_of_frame_pointer(code: &[u8]) -> bool {
    code.ends_with(&[PUSH_FRAME_POINTER]) && !code.ends_with(&[0x41, PUSH_FRAME_POINTER])
}

/// The length of `mov %rbp,offset(%rsp)`.
pub(crate) fn frame_pointer_store_bytes(offset: i32) -> u32 {
    match offset {
        0 => 4,
        1..=127 => 5,
        _ => 8,
    }
}

/// The register of `pop %r8` to `pop %r15`, if code ends with such an instruction.
pub(crate) fn popped_register(code: &[u8]) -> Option<Register> {
    match *code {
        [.., 0x41, pop @ 0x58..=0x5f] => Register::from_dwarf(u16::from(pop - 0x50)),
        _ => None,
    }
}

/// The offset of `mov %rbp,offset(%rsp)` and its length, if the code starts with that.
pub(crate) fn stored_frame_pointer(code: &[u8]) -> Option<(i32, u32)> {
    match *code {
        [0x48, 0x89, 0x2c, 0x24, ..] => Some((0, 4)),
        [0x48, 0x89, 0x6c, 0x24, offset, ..] => Some((i32::from(offset.cast_signed()), 5)),
        [0x48, 0x89, 0xac, 0x24, a, b, c, d, ..] => Some((i32::from_le_bytes([a, b, c, d]), 8)),
        _ => None,
    }
}

/// The end, within `code`, of the first instruction that sets the stack pointer to something other than a sum.
pub(crate) fn first_switch(code: &[u8]) -> Option<u32> {
    (0..code.len()).find_map(|at| {
        let length = match *code.get(at..)? {
            // `mov offset(register),%rsp`, without an index.
            [0x48 | 0x49, 0x8b, 0x20..=0x23 | 0x26..=0x27, ..] => 3,
            [0x48 | 0x49, 0x8b, 0x60..=0x63 | 0x65..=0x67, ..] => 4,
            [0x48 | 0x49, 0x8b, 0xa0..=0xa3 | 0xa5..=0xa7, ..] => 7,
            // `mov register,%rsp`, in both encodings.
            [0x48 | 0x49, 0x8b, 0xe0..=0xe7, ..] => 3,
            [0x48 | 0x4c, 0x89, modrm, ..] if modrm & 0xc7 == 0xc4 => 3,
            // `and $mask,%rsp`.
            [0x48, 0x83, 0xe4, ..] => 4,
            _ => return None,
        };
        u32::try_from(at + length).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_storing_the_frame_pointer_is_read_with_its_length() {
        assert_eq!(stored_frame_pointer(&[0x48, 0x89, 0x2c, 0x24, 0x90]), Some((0, 4)));
        assert_eq!(stored_frame_pointer(&[0x48, 0x89, 0x6c, 0x24, 0x18]), Some((24, 5)));
        assert_eq!(stored_frame_pointer(&[0x48, 0x89, 0xac, 0x24, 0, 1, 0, 0]), Some((256, 8)));
        assert_eq!(stored_frame_pointer(&[0x48, 0x89, 0x6c, 0x24]), None, "cut off");
        assert_eq!(stored_frame_pointer(&[0x48, 0x89, 0x5c, 0x24, 0x18]), None, "mov %rbx");
    }

    #[test]
    fn a_switch_of_stacks_is_found_where_its_instruction_ends() {
        assert_eq!(first_switch(&[0x90, 0x49, 0x8b, 0x66, 0x38]), Some(5), "mov 0x38(%r14),%rsp");
        assert_eq!(first_switch(&[0x48, 0x8b, 0x23]), Some(3), "mov (%rbx),%rsp");
        assert_eq!(first_switch(&[0x48, 0x89, 0xf4]), Some(3), "mov %rsi,%rsp");
        assert_eq!(first_switch(&[0x48, 0x83, 0xe4, 0xf0]), Some(4), "and $-16,%rsp");
        assert_eq!(first_switch(&[0x48, 0x8b, 0x5c, 0x24, 0x08]), None, "mov 8(%rsp),%rbx");
        assert_eq!(first_switch(&[0x48, 0x89, 0xe5]), None, "mov %rsp,%rbp");
        assert_eq!(first_switch(&[0x48, 0x83, 0xec, 0x10]), None, "sub $16,%rsp");
    }
}
