//! Calls of `clone` that the C library leaves without unwind information.
//!
//! glibc ends the unwind information of `clone` and `clone3` at the system call, "because in the child the unwind info
//! will be wrong", and resumes it where the child begins. The parent, which spends the whole call there, has a frame
//! like any leaf; the child, which is there on its way out of the kernel, is distinguished from it by the return value
//! of the system call.

use object::{File, ReadRef};
use sidewinder_unwind_table::{Architecture, Entry, EntryId, EntryInterner, Rule};

use super::known::CloneParts;
use crate::code::piece::CodeSlice;
use crate::code::span::{MIN_GAP_BYTES, RuleSpan};
use crate::segments::CodeRanges;

/// `mov $56,%eax` and `mov $435,%eax`: the system call numbers of `clone` and `clone3`.
const NUMBERS: [[u8; 5]; 2] = [[0xb8, 56, 0, 0, 0], [0xb8, 0xb3, 1, 0, 0]];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `xor %eax,%eax; mov $56,%al`: the beginning of musl's `__clone`.
const MUSL_CLONE: [u8; 4] = [0x31, 0xc0, 0xb0, 56];
/// It is shorter.
const MUSL_CLONE_BYTES_MAX: u32 = 128;

/// Whether the system call is at this offset.
pub(crate) fn is_call<'data, R: ReadRef<'data>>(file: &File<'data, R>, code: &CodeRanges, at: u32) -> bool {
    if code.architecture() != Architecture::X86_64 {
        return false;
    }
    let number_bytes = NUMBERS[0].len();
    let from = at.saturating_sub(number_bytes as u32);
    let bytes = code.bytes(file, from, (number_bytes + SYSCALL.len()) as u64);
    let parts = bytes.and_then(|bytes| bytes.split_at_checked(number_bytes));
    parts.is_some_and(|(before, call)| call == SYSCALL && NUMBERS.iter().any(|number| before == number))
}

/// The rule of code without unwind information that begins with a system call. [`is_call`] has found the call to be
/// `clone`, unless the code is long enough to be understood in other ways.
pub(crate) fn span(piece: &CodeSlice<'_>, entries: &mut EntryInterner) -> Option<RuleSpan> {
    let is_rest_of_call = piece.architecture == Architecture::X86_64
        && piece.bytes.starts_with(&SYSCALL)
        && piece.bytes.len() < MIN_GAP_BYTES as usize;
    let rule = || entries.intern(Entry::Rule(Rule::AFTER_CLONE));
    is_rest_of_call.then(rule).map(|rule| RuleSpan { start: piece.start, end: piece.end(), rule: Ok(rule) })
}

/// The spans of musl's `__clone`, if it is at an address: it has no unwind information, and in a stripped file no name either.
pub(crate) fn musl_spans(
    piece: &CodeSlice<'_>,
    start: u32,
    root: EntryId,
    entries: &mut EntryInterner,
) -> Option<[RuleSpan; 4]> {
    let function = piece.part(start, start.saturating_add(MUSL_CLONE_BYTES_MAX).min(piece.end()));
    let is_clone = piece.architecture == Architecture::X86_64 && function.bytes.starts_with(&MUSL_CLONE);
    let parts = is_clone.then(|| CloneParts::find(function.bytes))??;
    let [returns, child, parent] = [parts.returns, parts.child, parts.parent].map(|offset| start + offset);
    let leaf = entries.intern(Entry::Rule(Architecture::X86_64.leaf()));
    let after_clone = entries.intern(Entry::Rule(Rule::AFTER_CLONE));
    // The parent returns at once.
    let end = piece.decode(parent)?.end();
    let span = |start, end, rule| RuleSpan { start, end, rule: Ok(rule) };
    Some([
        span(start, returns, leaf),
        span(returns, child, after_clone),
        span(child, parent, root),
        span(parent, end, leaf),
    ])
}
