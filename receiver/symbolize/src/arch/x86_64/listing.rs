//! Machine code as text, in Intel's notation.

use iced_x86::{Decoder, DecoderOptions, Formatter as _, IntelFormatter};
use sidewinder_address::Svma;

use crate::arch::listed_instruction::ListedInstruction;

/// The instructions of code that begins at `start`. Bytes that are no instruction are `(bad)`, each on its own.
pub(crate) fn disassemble(code: &[u8], start: Svma) -> Vec<ListedInstruction> {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    options.set_rip_relative_addresses(true);
    let decoder = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
    let list = |instruction: iced_x86::Instruction| {
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        let target = match instruction.near_branch_target() {
            0 if instruction.is_ip_rel_memory_operand() => instruction.ip_rel_memory_address(),
            target => target,
        };
        ListedInstruction {
            start: Svma(instruction.ip()),
            end: Svma(instruction.next_ip()),
            target: (target != 0).then_some(Svma(target)),
            text,
        }
    };
    decoder.into_iter().map(list).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_their_text_their_range_and_what_they_refer_to() {
        // A call 16 bytes back, a load beside the code, one of an array, and the beginning of something.
        let code =
            [0xe8, 0xf0, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x05, 0x10, 0, 0, 0, 0x8b, 0x44, 0x8f, 0x08, 0x0f];
        let listed = disassemble(&code, Svma(0x1010));
        let shown: Vec<_> =
            listed.iter().map(|one| (one.start.0, &*one.text, one.target.map(|target| target.0))).collect();
        assert_eq!(
            shown,
            [
                (0x1010, "call 0x1005", Some(0x1005)),
                (0x1015, "mov rax, [rip+0x10]", Some(0x102c)),
                (0x101c, "mov eax, [rdi+rcx*4+8]", None),
                (0x1020, "(bad)", None),
            ]
        );
        assert!(listed.windows(2).all(|pair| pair[0].end == pair[1].start), "one after the other");
    }
}
