//! The code in which a program begins: it has no caller, whatever its name and however long it is.
//!
//! C libraries describe their entry point, or keep it to a few instructions. Programs with their own, usually in
//! assembly, may do all of their work there. Code that is reached from it by jumps alone runs in its frame.

use std::collections::BTreeSet;

use object::{File, Object as _, ReadRef};
use sidewinder_unwind_table::EntryId;

use super::imports::Imports;
use crate::code::piece::{CodeSlice, piece_at};
use crate::code::span::RuleSpan;
use crate::known_functions::KnownFunctions;
use crate::segments::CodeRanges;

/// The most instructions that are followed, more than any entry has.
const MAX_INSTRUCTIONS: usize = 1 << 14;
/// Bytes read of an entry that is described: C libraries keep it to a few instructions.
const MAX_DESCRIBED_BYTES: u64 = 4096;

/// Spans with the rule for the beginning of a stack: the code among `pieces`, which have no unwind information, that
/// jumps reach from the entry point, up to where functions begin, and to calls of `imports` that don't return.
pub(super) fn spans<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    known: &KnownFunctions,
    pieces: &[CodeSlice<'_>],
    functions: &BTreeSet<u32>,
    imports: &Imports<'_>,
    root: EntryId,
) -> Vec<RuleSpan> {
    let Some(entry) = code.offset(file.entry()).filter(|_| file.entry() != 0) else { return Vec::new() };
    let bytes = code.bytes(file, entry, MAX_DESCRIBED_BYTES).unwrap_or_default();
    let described = CodeSlice { architecture: code.architecture(), start: entry, bytes };
    let belongs = |at: u32| {
        let is_undescribed = piece_at(pieces, at).is_some() && !functions.contains(&at);
        at == entry || is_undescribed || known.is_root(at)
    };
    let mut spans: Vec<RuleSpan> = Vec::new();
    let mut reached = BTreeSet::new();
    let mut left = vec![entry];
    while let Some(mut at) = left.pop() {
        while belongs(at) && reached.len() < MAX_INSTRUCTIONS && reached.insert(at) {
            let Some(instruction) = piece_at(pieces, at).unwrap_or(&described).decode(at) else { break };
            let end = instruction.end();
            match spans.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => spans.push(RuleSpan { start: at, end, rule: Ok(root) }),
            }
            let (target, is_call) = (instruction.target(), instruction.is_call());
            left.extend(target.filter(|_| !is_call));
            if instruction.is_last() || is_call && imports.never_return(&instruction, target) {
                break;
            }
            at = end;
        }
    }
    spans
}
