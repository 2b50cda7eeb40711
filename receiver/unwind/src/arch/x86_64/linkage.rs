//! Procedure linkage tables: System V ABI for AMD64, section 5.2.

use gimli::constants as dw;
use iced_x86::Mnemonic;
use sidewinder_unwind_table::{Architecture, Cfa, Entry, EntryInterner, PLT_ENTRY_BYTES, Rule};

use super::Instruction;
use crate::code::piece::CodeSlice;
use crate::code::span::RuleSpan;

/// The threshold in the expression that linkers write for the entries of `.plt`, `breg7 (rsp)+8; breg16 (rip)+0; lit15;
/// and; litN; ge; lit3; shl; plus`: these expressions differ only in the threshold.
pub(crate) fn threshold(expression: &[u8]) -> Option<u8> {
    const BEFORE: [u8; 6] = [dw::DW_OP_breg7.0, 8, dw::DW_OP_breg16.0, 0, dw::DW_OP_lit15.0, dw::DW_OP_and.0];
    const AFTER: [u8; 4] = [dw::DW_OP_ge.0, dw::DW_OP_lit3.0, dw::DW_OP_shl.0, dw::DW_OP_plus.0];
    let [threshold] = expression.strip_prefix(&BEFORE)?.strip_suffix(&AFTER)? else {
        return None;
    };
    (dw::DW_OP_lit0.0..=dw::DW_OP_lit15.0).contains(threshold).then(|| threshold - dw::DW_OP_lit0.0)
}

/// The rules of a section of linkage code.
///
/// An entry pushes its index and jumps to the first entry, which pushes one more word; the entries of tables that are
/// bound at start only jump.
pub(crate) fn spans(section: &CodeSlice<'_>, entries: &mut EntryInterner) -> Vec<RuleSpan> {
    let mut spans = Vec::new();
    let mut put = |start: u32, end: u32, rule: Rule| {
        if start < end {
            spans.push(RuleSpan { start, end, rule: Ok(entries.intern(Entry::Rule(rule))) });
        }
    };
    let mut at = section.start;
    if let Some(pushed) = resolver_entry(section, at) {
        put(at, pushed, Rule::above_stack_pointer(16));
        put(pushed, at + PLT_ENTRY_BYTES, Rule::above_stack_pointer(24));
        at += PLT_ENTRY_BYTES;
    }
    while at < section.end() {
        if let Some(threshold) = lazy_entry(section, at) {
            let entry = Rule { cfa: Cfa::Plt { threshold }, ..Architecture::X86_64.leaf() };
            put(at, at + PLT_ENTRY_BYTES, entry);
            at += PLT_ENTRY_BYTES;
        } else if let Some(end) = bound_entry(section, at) {
            put(at, end, Architecture::X86_64.leaf());
            at = end;
        } else {
            break;
        }
    }
    spans
}

fn decode(section: &CodeSlice<'_>, at: u32) -> Option<Instruction> {
    Instruction::decode(section.part(at, section.end()).bytes, at)
}

/// `push; jmp *` at the beginning of a lazy table: the end of the push.
fn resolver_entry(section: &CodeSlice<'_>, at: u32) -> Option<u32> {
    let push = decode(section, at).filter(|push| push.decoded.mnemonic() == Mnemonic::Push)?;
    let jump = decode(section, push.end())?;
    jump.decoded.is_jmp_near_indirect().then_some(push.end())
}

/// `[endbr64;] [jmp *;] push; jmp`: the offset within the entry at which the push ends.
fn lazy_entry(section: &CodeSlice<'_>, start: u32) -> Option<u8> {
    let mut at = start;
    let mut pushed = None;
    while at < start + PLT_ENTRY_BYTES {
        let instruction = decode(section, at)?;
        at = instruction.end();
        match instruction.decoded.mnemonic() {
            Mnemonic::Push if pushed.is_none() => pushed = Some(at - start),
            Mnemonic::Endbr64 => {}
            Mnemonic::Jmp if pushed.is_none() && instruction.decoded.is_jmp_near_indirect() => {}
            Mnemonic::Jmp if at <= start + PLT_ENTRY_BYTES => return u8::try_from(pushed?).ok(),
            _ => return None,
        }
    }
    None
}

/// `[endbr64;] jmp *` and padding: the end of the entry.
fn bound_entry(section: &CodeSlice<'_>, start: u32) -> Option<u32> {
    let jump = jump_through_word(section, start)?;
    Some(section.after_padding(jump.end()))
}

/// The address of the word through which the code at `start` jumps, if that code is `[endbr64;] jmp *`.
pub(crate) fn word_jumped_through(section: &CodeSlice<'_>, start: u32) -> Option<u64> {
    jump_through_word(section, start)?.stated_word()
}

/// The jump of `[endbr64;] jmp *`.
fn jump_through_word(section: &CodeSlice<'_>, start: u32) -> Option<Instruction> {
    let first = decode(section, start)?;
    let jump = match first.decoded.mnemonic() {
        Mnemonic::Endbr64 => decode(section, first.end())?,
        _ => first,
    };
    jump.decoded.is_jmp_near_indirect().then_some(jump)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_linkage_table_are_recognised_by_their_threshold() {
        let plt = |literal| [0x77, 8, 0x80, 0, 0x3f, 0x1a, literal, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(threshold(&plt(0x3b)), Some(11));
        assert_eq!(threshold(&plt(0x3a)), Some(10));
        assert_eq!(threshold(&plt(0x22)), None, "not a literal");
        let mut longer = plt(0x3b).to_vec();
        longer.push(0x06);
        assert_eq!(threshold(&longer), None, "one more operation is another expression");
    }
}
