//! Turns spans into rows.

use sidewinder_unwind_table::{EntryId, EntryInterner, RowBuffer, Summary, UnresolvedReason};

use crate::arch::haskell;
use crate::code::piece::CodeSlice;
use crate::code::span::RuleSpan;

/// Appends one row wherever the rule changes. Where two functions share code and disagree, neither is trusted, but one
/// that is already distrusted yields to any other, and all yield to the beginning of a stack; padding belongs to the
/// code before it. Code that was not reached is Haskell code in a file that has any.
pub(super) fn emit_rows(
    pieces: &[CodeSlice<'_>],
    mut spans: Vec<RuleSpan>,
    root: EntryId,
    haskell: Option<&haskell::Frames>,
    summary: &mut Summary,
    out: &mut RowBuffer,
) {
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut spans = spans.into_iter().peekable();
    for piece in pieces {
        let mut at = piece.start;
        let mut open: Vec<RuleSpan> = Vec::new();
        while at < piece.end() {
            open.retain(|span| span.end > at);
            while let Some(span) = spans.next_if(|span| span.start <= at) {
                open.extend((span.end > at).then_some(span));
            }
            let next_start = spans.peek().map_or(piece.end(), |span| span.start.min(piece.end()));
            let end = open.iter().map(|span| span.end).fold(next_start, u32::min);
            match open.iter().map(|span| span.rule).reduce(|one, other| merge_results(one, other, root)) {
                Some(rule) => {
                    summary.count_unresolved(rule.err(), end - at);
                    out.push((at, rule.unwrap_or(EntryInterner::NO_INFORMATION)));
                }
                None => match haskell {
                    Some(haskell) => haskell.put(piece, at, end, out),
                    None => put_gap(piece, at, end, out, summary),
                },
            }
            at = end;
        }
        out.push((piece.end(), EntryInterner::NO_INFORMATION));
    }
}

fn merge_results(
    one: Result<EntryId, UnresolvedReason>,
    other: Result<EntryId, UnresolvedReason>,
    root: EntryId,
) -> Result<EntryId, UnresolvedReason> {
    let is_distrusted =
        |rule| matches!(rule, Err(UnresolvedReason::OtherReturn | UnresolvedReason::TooManySteps));
    if one == Ok(root) || other == Ok(root) {
        Ok(root)
    } else if one == other || is_distrusted(other) {
        one
    } else if is_distrusted(one) {
        other
    } else {
        Err(UnresolvedReason::Disagreement)
    }
}

fn put_gap(piece: &CodeSlice<'_>, start: u32, end: u32, out: &mut RowBuffer, summary: &mut Summary) {
    if !piece.is_padding(start, end) {
        summary.count_unresolved(Some(UnresolvedReason::NotReached), end - start);
        out.push((start, EntryInterner::NO_INFORMATION));
    }
}
