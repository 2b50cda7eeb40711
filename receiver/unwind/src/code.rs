//! Analysis of what machine code does to its frame.
//!
//! `piece` is contiguous code, and `span` a part of it with one rule. `state` is the abstract state of a frame, made of
//! symbolic values (`value`), `rule` compares it with rules, and `flow` follows the paths through a function, keeping one
//! state for each block (`compact_state`); the effect of an instruction on a frame is architecture-specific
//! ([`Stepper`](crate::arch::Stepper)). After Bastian, Kell and Zappa Nardelli, "Reliable and fast DWARF-based stack
//! unwinding" (OOPSLA 2019).

mod compact_state;
pub(crate) mod flow;
pub(crate) mod piece;
pub(crate) mod rule;
pub(crate) mod span;
pub(crate) mod state;
pub(crate) mod value;

use sidewinder_unwind_table::Architecture;

use crate::arch::Instruction;

/// Whether an instruction begins at an index of an architecture's code, of which the first begins at its start.
#[must_use]
pub fn begins_instruction(architecture: Architecture, code: &[u8], index: usize) -> bool {
    let mut at = 0;
    while at < index {
        let decoded = code.get(at..).and_then(|rest| Instruction::decode(architecture, rest, 0));
        let Some(instruction) = decoded else { return false };
        at += instruction.len() as usize;
    }
    at == index && index < code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_begin_where_others_end() {
        // A prologue: instructions of one, three and four bytes.
        let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10];
        let begins: Vec<_> =
            (0..=8).filter(|index| begins_instruction(Architecture::X86_64, &code, *index)).collect();
        assert_eq!(begins, [0, 1, 4]);
    }
}
