//! Procedure linkage tables.
//!
//! An entry loads an address and branches to it, without touching the stack or the link register. The first entry of a
//! lazily bound table, and the one that resolves TLS descriptors, push two registers before they branch. None of them
//! calls anything, so wherever one is interrupted, the link register has the return address.

use sidewinder_address::Svma;
use sidewinder_unwind_table::{
    Architecture, Cfa, Entry, EntryInterner, Register, ReturnAddress, Rule, SavedRegister,
};

use super::branch::is_branch_to_register;
use super::fields::{first, page_distance};
use super::pages::page_of;
use super::{NOP, instructions};
use crate::code::piece::CodeSlice;
use crate::code::span::RuleSpan;

pub(super) const LEAF: Rule = Architecture::Aarch64.leaf();

/// `bti c`.
const BTI_C: u32 = 0xd503_245f;

/// Two registers are on the stack.
const PUSHED: Rule = Rule { cfa: Cfa::Register { register: Register::Sp, offset: PUSHED_BYTES }, ..LEAF };

/// Bytes of these.
const PUSHED_BYTES: i32 = 16;

/// glibc's `_dl_runtime_resolve`, to which the first entry of a lazily bound table branches, states where that has saved x30,
/// but doesn't count the pushed words: by its rows, the return address is above the frame (sysdeps/aarch64/dl-trampoline.S,
/// up to 2.42). The frame ends behind it.
pub(crate) fn with_pushed_words(stated: Rule) -> Rule {
    let Rule { cfa: Cfa::Register { register, offset }, return_address: ReturnAddress::AtCfa(8), .. } =
        stated
    else {
        return stated;
    };
    let frame_pointer = match stated.frame_pointer {
        SavedRegister::AtCfa(at) => SavedRegister::AtCfa(at.saturating_sub(PUSHED_BYTES)),
        other => other,
    };
    Rule {
        cfa: Cfa::Register { register, offset: offset.saturating_add(PUSHED_BYTES) },
        return_address: ReturnAddress::AtCfa(8 - PUSHED_BYTES),
        frame_pointer,
        ..stated
    }
}

/// The effect of an instruction of linkage code.
enum Effect {
    None,
    /// `stp xA, xB, [sp, #-16]!`.
    Push,
    /// `br`.
    Branch,
}

impl Effect {
    /// Returns `None` for an instruction that linkage tables don't have.
    fn of(word: u32) -> Option<Self> {
        /// The last is `autia1716`, before a branch.
        const HINTS: [u32; 3] = [NOP, BTI_C, 0xd503_219f];
        let is_adrp = word & 0x9f00_0000 == 0x9000_0000;
        let is_load = word & 0xffc0_0000 == 0xf940_0000; // `ldr xA, [xB, #n]`
        let is_add = word & 0xff80_0000 == 0x9100_0000 && word & 31 != u32::from(Register::Sp.dwarf());
        if word & 0xffff_83e0 == 0xa9bf_03e0 {
            Some(Self::Push)
        } else if is_branch_to_register(word) {
            Some(Self::Branch)
        } else {
            (is_adrp || is_load || is_add || HINTS.contains(&word)).then_some(Self::None)
        }
    }
}

/// The rules of a section of linkage code, up to the first instruction that no such section has.
pub(crate) fn spans(section: &CodeSlice<'_>, entries: &mut EntryInterner) -> Vec<RuleSpan> {
    let mut spans: Vec<RuleSpan> = Vec::new();
    let mut rule = LEAF;
    for (start, word) in (section.start..).step_by(4).zip(instructions(section.bytes)) {
        let Some(effect) = Effect::of(word) else { break };
        let (id, end) = (Ok(entries.intern(Entry::Rule(rule))), start.saturating_add(4));
        match spans.last_mut() {
            Some(last) if last.rule == id => last.end = end,
            _ => spans.push(RuleSpan { start, end, rule: id }),
        }
        match effect {
            Effect::None => {}
            Effect::Push => rule = PUSHED,
            Effect::Branch => rule = LEAF,
        }
    }
    spans
}

/// `[bti c;] adrp x16, PAGE; ldr x17, [x16, #OFFSET]`, with which an entry begins.
pub(crate) fn word_jumped_through(table: &CodeSlice<'_>, start: u32, base: Svma) -> Option<u64> {
    let mut words = (start..).step_by(4).zip(instructions(table.part(start, table.end()).bytes));
    let (at, adrp) = words.find(|(_, word)| *word != BTI_C)?;
    let (_, load) = words.next()?;
    let is_entry = first(adrp) == 16 && load & 0xffc0_03ff == 0xf940_0211;
    let page = page_of(base, at)?.checked_add_signed(page_distance(adrp).filter(|_| is_entry)?)?;
    page.checked_add(u64::from(load >> 10 & 0xfff) * 8)?.checked_sub(base.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_pushed_two_registers_in_its_first_entry_only() {
        // As GNU ld links with `-z force-bti`: the first entry, and one more.
        let words: [u32; 14] = [
            0xd503_245f,
            0xa9bf_7bf0,
            0xf000_0090,
            0xf947_fe11,
            0x913f_e210,
            0xd61f_0220,
            NOP,
            NOP,
            0xd503_245f,
            0x9000_00b0,
            0xf940_0211,
            0x9100_0210,
            0xd61f_0220,
            NOP,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut entries = EntryInterner::new();
        let section = CodeSlice { architecture: Architecture::Aarch64, start: 0x40, bytes: &bytes };
        let spans: Vec<_> = spans(&section, &mut entries)
            .into_iter()
            .map(|span| (span.start, span.end, entries.get(span.rule.unwrap())))
            .collect();
        let (leaf, pushed) = (Entry::Rule(LEAF), Entry::Rule(PUSHED));
        assert_eq!(spans, [(0x40, 0x48, leaf), (0x48, 0x58, pushed), (0x58, 0x78, leaf)]);
    }

    #[test]
    fn a_frame_ends_behind_what_the_first_entry_has_pushed() {
        let of = |offset, frame_pointer, return_address| Rule {
            cfa: Cfa::Register { register: Register::Sp, offset },
            frame_pointer,
            return_address: ReturnAddress::AtCfa(return_address),
            ..LEAF
        };
        let (same, saved) = (SavedRegister::Same, SavedRegister::AtCfa);
        assert_eq!(with_pushed_words(of(208, same, 8)), of(224, same, -8));
        assert_eq!(with_pushed_words(of(-16, saved(-208), 8)), of(0, saved(-224), -8));
        for counted in [of(224, saved(-224), -216), LEAF] {
            assert_eq!(with_pushed_words(counted), counted);
        }
    }

    #[test]
    fn other_code_has_no_rule() {
        let stores_elsewhere = 0xa9bf_7bfd_u32 ^ 0x0000_0020;
        let bytes = stores_elsewhere.to_le_bytes();
        assert!(
            spans(
                &CodeSlice { architecture: Architecture::Aarch64, start: 0, bytes: &bytes },
                &mut EntryInterner::new()
            )
            .is_empty()
        );
        let moves_stack_pointer = 0x9100_43ff_u32.to_le_bytes();
        let section =
            CodeSlice { architecture: Architecture::Aarch64, start: 0, bytes: &moves_stack_pointer };
        assert!(spans(&section, &mut EntryInterner::new()).is_empty());
    }
}
