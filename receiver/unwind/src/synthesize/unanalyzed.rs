//! Rows of an architecture whose machine code isn't analyzed: linkage tables have some, and the rest is counted.

use object::{File, ReadRef};
use sidewinder_unwind_table::{EntryInterner, RowBuffer, RowSource, Summary, UnresolvedReason};

use super::sections::{SectionKind, sections};
use crate::arch;
use crate::code::piece::CodeSlice;
use crate::segments::CodeRanges;

/// The rows of pieces of code, which are in order.
pub(super) fn rows<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    pieces: &[CodeSlice<'data>],
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let sections = sections(file, code, pieces).into_iter();
    let linkage = sections.filter(|section| matches!(section.kind, SectionKind::Linkage));
    let mut spans: Vec<_> =
        linkage.flat_map(|table| arch::linkage_spans(code.architecture(), &table.piece, entries)).collect();
    spans.sort_unstable_by_key(|span| span.start);
    if !spans.is_empty() {
        Summary::count(&mut summary.functions, RowSource::MachineCode);
    }
    let mut spans = spans.into_iter().peekable();
    let mut out = RowBuffer::default();
    for piece in pieces {
        let mut at = piece.start;
        while let Some(span) = spans.next_if(|span| span.start < piece.end()) {
            put_gap(at, span.start, &mut out, summary);
            out.push((span.start, span.rule.unwrap_or(EntryInterner::NO_INFORMATION)));
            at = span.end;
        }
        put_gap(at, piece.end(), &mut out, summary);
        out.push((piece.end(), EntryInterner::NO_INFORMATION));
    }
    out
}

fn put_gap(start: u32, end: u32, out: &mut RowBuffer, summary: &mut Summary) {
    if start < end {
        summary.count_unresolved(Some(UnresolvedReason::NotAnalyzed), end - start);
        out.push((start, EntryInterner::NO_INFORMATION));
    }
}
