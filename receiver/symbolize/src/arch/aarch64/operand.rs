//! Operands in the syntax of assembly for arm64, as compilers write them into USDT notes, and registers by name.

use crate::arch::parse_number;
use crate::sites::operand::OperandAt;

/// sp.
const STACK_POINTER: u8 = 31;

/// An operand of the form `register`, `constant`, `[register]` or `[register, offset]`. `None`: it has another form, which the
/// programs can't read.
pub(crate) fn parse_operand(text: &str) -> Option<OperandAt> {
    if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let (base, offset) = match inside.split_once(',') {
            Some((base, offset)) => (base.trim_end(), parse_immediate(offset.trim_start())?),
            None => (inside, 0),
        };
        let is_whole = base.starts_with(['x', 's']);
        return is_whole
            .then(|| parse_register(base))?
            .map(|register| OperandAt::Memory { register, offset });
    }
    parse_register(text).map(OperandAt::Register).or_else(|| parse_immediate(text).map(OperandAt::Constant))
}

/// The DWARF number of a register, of which the name may be that of its lower half: `x19` or `w19`.
fn parse_register(name: &str) -> Option<u8> {
    if name == "sp" {
        return Some(STACK_POINTER);
    }
    let digits = name.strip_prefix(['x', 'w'])?;
    let number: u8 = digits.parse().ok()?;
    (number < STACK_POINTER && number.to_string() == digits).then_some(number)
}

/// A number, which may have a `#` before it.
fn parse_immediate(text: &str) -> Option<i64> {
    parse_number(text.strip_prefix('#').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_read_as_assemblers_write_them() {
        let memory = |register, offset| Some(OperandAt::Memory { register, offset });
        for (text, operand) in [
            ("x0", Some(OperandAt::Register(0))),
            ("w19", Some(OperandAt::Register(19))),
            ("x30", Some(OperandAt::Register(30))),
            ("sp", Some(OperandAt::Register(31))),
            ("5", Some(OperandAt::Constant(5))),
            ("-0x10", Some(OperandAt::Constant(-16))),
            ("[sp, 60]", memory(31, 60)),
            ("[x29, -16]", memory(29, -16)),
            ("[x0]", memory(0, 0)),
            ("[sp,#8]", memory(31, 8)),
            ("[w0]", None),
            ("[x0, x1]", None),
            ("[x0", None),
            ("x31", None),
            ("x07", None),
            ("d0", None),
            ("xzr", None),
            ("99999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(parse_operand(text), operand, "{text}");
        }
    }
}
