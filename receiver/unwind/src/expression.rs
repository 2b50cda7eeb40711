//! Recognises, by their bytes, the DWARF expressions that unwind information is known to use.
//!
//! Compilers, the C library and hand-written assembly use very few forms, so recognising them is exact and there is no
//! stack machine here.

use gimli::constants as dw;
use gimli::{EndianSlice, LittleEndian, Reader as _};
use sidewinder_unwind_table::{Architecture, Cfa, Register};

use crate::arch;

type ExpressionBytes<'data> = EndianSlice<'data, LittleEndian>;

/// The CFA that an expression computes, if it has one of the known forms:
///
/// - the expression that linkers write for entries of linkage tables: [`Cfa::Plt`];
/// - `bregR+offset; deref`, and the same plus a constant: [`Cfa::Deref`];
/// - `bregR+offset; bregI+0; lit8; mul; plus; deref`, and the same plus a constant: [`Cfa::DerefIndexed`];
/// - `bregR+offset`, and the same plus a constant: [`Cfa::Register`].
pub(crate) fn cfa(expression: ExpressionBytes<'_>, architecture: Architecture) -> Option<Cfa> {
    if let Some(threshold) = arch::linkage_threshold(architecture, expression.slice()) {
        return Some(Cfa::Plt { threshold });
    }
    let mut rest = expression;
    let (register, offset) = register_plus_offset(&mut rest, architecture)?;
    if rest.is_empty() {
        return Some(Cfa::Register { register, offset });
    }
    if rest.slice().first() == Some(&dw::DW_OP_plus_uconst.0) {
        let offset = offset.checked_add(constant_addend(&mut rest)?)?;
        return rest.is_empty().then_some(Cfa::Register { register, offset });
    }
    let index = index_of_words(&mut rest, architecture);
    if rest.read_u8().ok()? != dw::DW_OP_deref.0 {
        return None;
    }
    let addend = if rest.is_empty() { 0 } else { constant_addend(&mut rest)? };
    rest.is_empty().then_some(match index {
        Some(index) => Cfa::DerefIndexed { register, index, offset, addend },
        None => Cfa::Deref { register, offset, addend },
    })
}

/// The memory location `register + offset` that an expression computes, if it has that form.
pub(crate) fn place(expression: ExpressionBytes<'_>, architecture: Architecture) -> Option<(Register, i32)> {
    let mut rest = expression;
    let place = register_plus_offset(&mut rest, architecture)?;
    rest.is_empty().then_some(place)
}

/// `bregI+0; lit8; mul; plus`. Leaves `rest` unchanged if it begins with anything else.
fn index_of_words(rest: &mut ExpressionBytes<'_>, architecture: Architecture) -> Option<Register> {
    const TIMES_8: [u8; 3] = [dw::DW_OP_lit8.0, dw::DW_OP_mul.0, dw::DW_OP_plus.0];
    let mut after = *rest;
    let (index, 0) = register_plus_offset(&mut after, architecture)? else { return None };
    let behind = after.slice().strip_prefix(&TIMES_8)?;
    *rest = EndianSlice::new(behind, LittleEndian);
    Some(index)
}

fn register_plus_offset(
    rest: &mut ExpressionBytes<'_>,
    architecture: Architecture,
) -> Option<(Register, i32)> {
    let operation = rest.read_u8().ok()?;
    let number = match operation {
        _ if operation == dw::DW_OP_bregx.0 => u16::try_from(rest.read_uleb128().ok()?).ok()?,
        _ => u16::from(operation.checked_sub(dw::DW_OP_breg0.0).filter(|number| *number < 32)?),
    };
    let offset = i32::try_from(rest.read_sleb128().ok()?).ok()?;
    Some((architecture.register(number)?, offset))
}

/// `plus_uconst N`, or `litN; plus`.
fn constant_addend(rest: &mut ExpressionBytes<'_>) -> Option<i32> {
    let operation = rest.read_u8().ok()?;
    if operation == dw::DW_OP_plus_uconst.0 {
        return i32::try_from(rest.read_uleb128().ok()?).ok();
    }
    let literal = operation.checked_sub(dw::DW_OP_lit0.0).filter(|literal| *literal < 32)?;
    (rest.read_u8().ok()? == dw::DW_OP_plus.0).then_some(i32::from(literal))
}

#[cfg(test)]
mod tests {
    use super::{Architecture, Cfa, EndianSlice, ExpressionBytes, LittleEndian, Register};

    fn bytes(expression: &[u8]) -> ExpressionBytes<'_> {
        EndianSlice::new(expression, LittleEndian)
    }

    fn register(number: u16) -> Register {
        Architecture::X86_64.register(number).unwrap()
    }

    fn cfa(expression: ExpressionBytes<'_>) -> Option<Cfa> {
        super::cfa(expression, Architecture::X86_64)
    }

    fn place(expression: ExpressionBytes<'_>) -> Option<(Register, i32)> {
        super::place(expression, Architecture::X86_64)
    }

    #[test]
    fn a_saved_cfa_is_read_from_its_place() {
        let saved = Cfa::Deref { register: register(7), offset: 160, addend: 0 };
        assert_eq!(cfa(bytes(&[0x77, 0xa0, 0x01, 0x06])), Some(saved));
        let below = Cfa::Deref { register: register(6), offset: -8, addend: 0 };
        assert_eq!(cfa(bytes(&[0x76, 0x78, 0x06])), Some(below));
        let openssl = Cfa::Deref { register: register(7), offset: 152, addend: 8 };
        assert_eq!(cfa(bytes(&[0x77, 0x98, 0x01, 0x06, 0x23, 0x08])), Some(openssl));
        assert_eq!(cfa(bytes(&[0x77, 0x98, 0x01, 0x06, 0x38, 0x22])), Some(openssl));
    }

    #[test]
    fn a_saved_cfa_may_lie_above_an_array() {
        let openssl = [0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 0x06, 0x23, 8];
        let indexed = Cfa::DerefIndexed { register: register(7), index: register(9), offset: 8, addend: 8 };
        assert_eq!(cfa(bytes(&openssl)), Some(indexed));
        for (at, other) in [(3, 1), (4, 0x37), (5, 0x1c), (6, 0x1c)] {
            let mut expression = openssl;
            expression[at] = other;
            assert_eq!(cfa(bytes(&expression)), None, "byte {at}");
        }
    }

    #[test]
    fn a_sum_is_the_register_form_even_as_an_expression() {
        let sum = Some(Cfa::Register { register: register(10), offset: 24 });
        assert_eq!(cfa(bytes(&[0x7a, 24])), sum);
        assert_eq!(cfa(bytes(&[0x7a, 8, 0x23, 16])), sum);
        assert_eq!(cfa(bytes(&[0x92, 10, 24])), sum, "bregx");
    }

    #[test]
    fn what_has_no_known_form_is_nothing() {
        for unknown in [&[][..], &[0x06], &[0x77], &[0x77, 8, 0x06, 0x06], &[0x80, 0], &[0x77, 8, 0x23]] {
            assert_eq!(cfa(bytes(unknown)), None, "{unknown:x?}");
        }
        let over_32_bits = [0x77, 0x80, 0x80, 0x80, 0x80, 0x10];
        assert_eq!(cfa(bytes(&over_32_bits)), None);
        assert_eq!(place(bytes(&[0x77, 0x78])), Some((register(7), -8)));
        assert_eq!(place(bytes(&[0x77, 0x78, 0x06])), None);
    }
}
