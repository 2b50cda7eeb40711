//! Spans to rows.

use sidewinder_unwind_table::{Entries, EntryId, GivenUp, RowBuffer, Summary};

use crate::arch::haskell;
use crate::code::piece::Piece;
use crate::code::span::Span;

/// One row where the rule changes. Where two functions share code and disagree, neither is believed, but one
/// that is distrusted yields to any other, and all to where stacks begin; padding belongs to what comes before it.
/// What was not reached is Haskell, in a file that has any.
pub(super) fn lay_out(
    pieces: &[Piece<'_>],
    mut spans: Vec<Span>,
    root: EntryId,
    haskell: Option<&haskell::Frames>,
    summary: &mut Summary,
) -> RowBuffer {
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut out = RowBuffer::default();
    let mut spans = spans.into_iter().peekable();
    for piece in pieces {
        let mut at = piece.start;
        let mut open: Vec<Span> = Vec::new();
        while at < piece.end() {
            open.retain(|span| span.end > at);
            while let Some(span) = spans.next_if(|span| span.start <= at) {
                open.extend((span.end > at).then_some(span));
            }
            let next_start = spans.peek().map_or(piece.end(), |span| span.start.min(piece.end()));
            let end = open.iter().map(|span| span.end).fold(next_start, u32::min);
            match open.iter().map(|span| span.rule).reduce(|one, other| agree(one, other, root)) {
                Some(rule) => {
                    summary.count_given_up(rule.err(), end - at);
                    out.push((at, rule.unwrap_or(Entries::NO_INFORMATION)));
                }
                None => match haskell {
                    Some(haskell) => haskell.put(piece, at, end, &mut out),
                    None => put_gap(piece, at, end, &mut out, summary),
                },
            }
            at = end;
        }
        out.push((piece.end(), Entries::NO_INFORMATION));
    }
    out
}

fn agree(
    one: Result<EntryId, GivenUp>,
    other: Result<EntryId, GivenUp>,
    root: EntryId,
) -> Result<EntryId, GivenUp> {
    let is_distrusted = |rule| matches!(rule, Err(GivenUp::OtherReturn | GivenUp::TooManySteps));
    if one == Ok(root) || other == Ok(root) {
        Ok(root)
    } else if one == other || is_distrusted(other) {
        one
    } else if is_distrusted(one) {
        other
    } else {
        Err(GivenUp::Disagreement)
    }
}

fn put_gap(piece: &Piece<'_>, start: u32, end: u32, out: &mut RowBuffer, summary: &mut Summary) {
    if !piece.is_padding(start, end) {
        summary.count_given_up(Some(GivenUp::NotReached), end - start);
        out.push((start, Entries::NO_INFORMATION));
    }
}
