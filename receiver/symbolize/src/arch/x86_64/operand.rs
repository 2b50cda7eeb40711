//! Operands in the syntax of AT&T assembly, as compilers write them into USDT notes, and registers by name.

use crate::arch::parse_number;
use crate::sites::operand::OperandAt;

/// The 64-bit registers, by DWARF number (System V ABI for AMD64, figure 3.36).
const NAMES: [&str; 16] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];
/// The names of parts of the first eight that aren't made of their last two letters.
const LOW_BYTES: [(&str, u8); 8] =
    [("al", 0), ("dl", 1), ("cl", 2), ("bl", 3), ("sil", 4), ("dil", 5), ("bpl", 6), ("spl", 7)];

/// An operand of the form `%register`, `$constant` or `offset(%register)`. `None`: it has another form, which the programs
/// can't read.
pub(crate) fn parse_operand(text: &str) -> Option<OperandAt> {
    if let Some(number) = text.strip_prefix('$') {
        return Some(OperandAt::Constant(parse_number(number)?));
    }
    if text.starts_with('%') {
        return Some(OperandAt::Register(parse_register(text)?));
    }
    let (offset, base) = text.strip_suffix(')')?.split_once('(')?;
    let offset = if offset.is_empty() { 0 } else { parse_number(offset)? };
    Some(OperandAt::Memory { register: parse_register(base)?, offset })
}

/// The DWARF number of a register, of which the name may be that of its lower part: `%rdi`, `%edi`, `%di` or `%dil`.
fn parse_register(text: &str) -> Option<u8> {
    let name = text.strip_prefix('%')?;
    if let Some((_, number)) = LOW_BYTES.iter().find(|(known, _)| *known == name) {
        return Some(*number);
    }
    let is_same = |whole: &str| {
        let is_numbered = whole.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        name == whole
            || is_numbered && name.strip_prefix(whole).is_some_and(|part| matches!(part, "d" | "w" | "b"))
            || !is_numbered && (name.strip_prefix('e').unwrap_or(name) == &whole[1..])
    };
    NAMES.iter().position(|whole| is_same(whole)).and_then(|number| u8::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_read_as_assemblers_write_them() {
        let memory = |register, offset| Some(OperandAt::Memory { register, offset });
        for (text, operand) in [
            ("%rdi", Some(OperandAt::Register(5))),
            ("%edi", Some(OperandAt::Register(5))),
            ("%di", Some(OperandAt::Register(5))),
            ("%dil", Some(OperandAt::Register(5))),
            ("%al", Some(OperandAt::Register(0))),
            ("%r8", Some(OperandAt::Register(8))),
            ("%r15d", Some(OperandAt::Register(15))),
            ("%r9b", Some(OperandAt::Register(9))),
            ("$5", Some(OperandAt::Constant(5))),
            ("$-0x10", Some(OperandAt::Constant(-16))),
            ("-16(%rbp)", memory(6, -16)),
            ("(%rsp)", memory(7, 0)),
            ("0x18(%rax)", memory(0, 24)),
            ("8(%rax,%rcx,4)", None),
            ("counter(%rip)", None),
            ("%xmm0", None),
            ("%r16", None),
            ("%r1", None),
            ("%", None),
            ("$", None),
            ("$99999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(parse_operand(text), operand, "{text}");
        }
    }
}
