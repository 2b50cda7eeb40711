//! Procedure linkage tables, and the imported functions that never return.

use std::collections::BTreeSet;

use iced_x86::{Instruction, Mnemonic};
use object::{File, Object as _, ObjectSection as _, ReadRef, RelocationTarget};

use super::Span;
use crate::code::flow::Piece;
use crate::elf::CodeRanges;
use crate::entries::Entries;
use crate::read::ReadFile;
use crate::rule::{Cfa, Entry, Rule};
use crate::symbols::for_each_dynamic_name;

/// Bytes of an entry of a table that is bound lazily (System V ABI for AMD64, section 5.2).
const ENTRY_BYTES: u32 = 16;

/// Functions of C and C++ runtimes that never return.
const NEVER_RETURN: [&[u8]; 31] = [
    b"abort",
    b"exit",
    b"_exit",
    b"_Exit",
    b"quick_exit",
    b"pthread_exit",
    b"longjmp",
    b"_longjmp",
    b"siglongjmp",
    b"__longjmp_chk",
    b"err",
    b"errx",
    b"verr",
    b"verrx",
    b"__assert",
    b"__assert_fail",
    b"__assert_perror_fail",
    b"__stack_chk_fail",
    b"__chk_fail",
    b"__fortify_fail",
    b"__libc_fatal",
    b"__libc_start_main",
    b"_Unwind_Resume",
    b"__cxa_throw",
    b"__cxa_rethrow",
    b"__cxa_bad_cast",
    b"__cxa_bad_typeid",
    b"__cxa_throw_bad_array_new_length",
    b"__cxa_throw_bad_array_length",
    b"__cxa_pure_virtual",
    b"__cxa_call_terminate",
];

/// `std::terminate()`, and what the names of `std::__throw_bad_alloc()` and its kin contain.
const TERMINATE: &[u8] = b"_ZSt9terminatev";
const THROW: &[u8] = b"__throw_";

/// The rules of a section of linkage code.
///
/// An entry pushes its index and jumps to the first entry, which pushes one word more; the entries of tables
/// that are bound at start only jump.
pub(super) fn spans(section: &Piece<'_>, entries: &mut Entries) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut put = |start: u32, end: u32, rule: Rule| {
        if start < end {
            spans.push(Span { start, end, rule: Ok(entries.intern(Entry::Rule(rule))) });
        }
    };
    let mut at = section.start;
    if let Some(pushed) = resolver_entry(section, at) {
        put(at, pushed, Rule::above_stack_pointer(16));
        put(pushed, at + ENTRY_BYTES, Rule::above_stack_pointer(24));
        at += ENTRY_BYTES;
    }
    while at < section.end() {
        if let Some(threshold) = lazy_entry(section, at) {
            let entry = Rule { cfa: Cfa::Plt { threshold }, ..Rule::LEAF };
            put(at, at + ENTRY_BYTES, entry);
            at += ENTRY_BYTES;
        } else if let Some(end) = bound_entry(section, at) {
            put(at, end, Rule::LEAF);
            at = end;
        } else {
            break;
        }
    }
    spans
}

/// `push; jmp *` at the beginning of a lazy table: where the push ends.
fn resolver_entry(section: &Piece<'_>, at: u32) -> Option<u32> {
    let push = section.decode(at).filter(|push| push.mnemonic() == Mnemonic::Push)?;
    let jump = section.decode(push.next_ip() as u32)?;
    jump.is_jmp_near_indirect().then_some(push.next_ip() as u32)
}

/// `[endbr64;] [jmp *;] push; jmp`: the byte of the entry at which the push has ended.
fn lazy_entry(section: &Piece<'_>, start: u32) -> Option<u8> {
    let mut at = start;
    let mut pushed = None;
    while at < start + ENTRY_BYTES {
        let instruction = section.decode(at)?;
        at = instruction.next_ip() as u32;
        match instruction.mnemonic() {
            Mnemonic::Push if pushed.is_none() => pushed = Some(at - start),
            Mnemonic::Endbr64 => {}
            Mnemonic::Jmp if pushed.is_none() && instruction.is_jmp_near_indirect() => {}
            Mnemonic::Jmp if at <= start + ENTRY_BYTES => return u8::try_from(pushed?).ok(),
            _ => return None,
        }
    }
    None
}

/// `[endbr64;] jmp *` and padding: where it ends.
fn bound_entry(section: &Piece<'_>, start: u32) -> Option<u32> {
    let jump = jump_through_word(section, start)?;
    Some(section.after_padding(jump.next_ip() as u32))
}

/// `[endbr64;] jmp *`: the jump.
fn jump_through_word(section: &Piece<'_>, start: u32) -> Option<Instruction> {
    let first = section.decode(start)?;
    let jump = match first.mnemonic() {
        Mnemonic::Endbr64 => section.decode(first.next_ip() as u32)?,
        _ => first,
    };
    jump.is_jmp_near_indirect().then_some(jump)
}

/// The imported functions that never return, as calls name them, and what else imports tell.
#[derive(Default)]
pub(super) struct Imports {
    /// Words of memory that hold their addresses.
    words: BTreeSet<u32>,
    /// Entries of linkage tables that jump there.
    entries: BTreeSet<u32>,
    /// Whether the file uses the runtime system of Haskell: no compiled code does without these functions.
    pub(super) have_haskell: bool,
}

impl Imports {
    pub(super) fn of<'data, R: ReadFile<'data>>(file: &File<'data, R>, code: &CodeRanges) -> Self {
        let mut imports = Self::default();
        let mut meant = BTreeSet::new();
        for_each_dynamic_name(file, |index, name| {
            if never_returns(name) {
                meant.insert(index);
            }
            imports.have_haskell |= name.starts_with(b"stg_ap_");
        });
        for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
            if let RelocationTarget::Symbol(index) = relocation.target()
                && meant.contains(&index.0)
            {
                imports.words.extend(code.offset(at));
            }
        }
        for section in [".plt", ".plt.sec", ".plt.got"] {
            imports.add_entries(file, code, section);
        }
        imports
    }

    fn add_entries<'data, R: ReadRef<'data>>(
        &mut self,
        file: &File<'data, R>,
        code: &CodeRanges,
        section: &str,
    ) {
        let Some(section) = file.section_by_name(section) else { return };
        let Some((start, bytes)) = code.offset(section.address()).zip(section.data().ok()) else { return };
        let piece = Piece { start, bytes };
        for entry in (start..piece.end()).step_by(8) {
            if jump_through_word(&piece, entry).is_some_and(|jump| self.reads_word(&jump)) {
                self.entries.insert(entry);
            }
        }
    }

    /// Whether a call is of one of them.
    pub(super) fn never_return(&self, call: &Instruction, target: Option<u32>) -> bool {
        target.map_or_else(|| self.reads_word(call), |target| self.entries.contains(&target))
    }

    fn reads_word(&self, instruction: &Instruction) -> bool {
        instruction.is_ip_rel_memory_operand()
            && u32::try_from(instruction.ip_rel_memory_address()).is_ok_and(|at| self.words.contains(&at))
    }
}

pub(super) fn never_returns(name: &[u8]) -> bool {
    NEVER_RETURN.contains(&name)
        || name == TERMINATE
        || (name.starts_with(b"_ZSt") && name.windows(THROW.len()).any(|part| part == THROW))
}
