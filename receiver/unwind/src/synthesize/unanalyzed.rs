//! Rows of an architecture whose machine code isn't analyzed as a whole: linkage tables have some, and functions that are
//! understood one by one: those with symbols, and those that they call. The rest is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use object::File;
use sidewinder_unwind_table::{Entry, EntryInterner, RowBuffer, RowSource, Rule, Summary, UnresolvedReason};

use super::named_functions::is_begin_of_function;
use super::sections::{SectionKind, sections};
use crate::arch;
use crate::code::flow::StepBudget;
use crate::code::piece::{CodeSlice, piece_at};
use crate::code::span::RuleSpan;
use crate::read::ReadFile;
use crate::segments::CodeRanges;
use crate::symbols::for_each_code_symbol;

/// What is followed of a function whose end isn't known.
const UNSIZED_BYTES_MAX: u32 = 64 << 10;

/// The rows of pieces of code, which are in order.
pub(super) fn rows<'data, R: ReadFile<'data>>(
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
    spans.extend(functions(file, code, pieces, entries));
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    if !spans.is_empty() {
        Summary::count(&mut summary.functions, RowSource::MachineCode);
    }
    let mut spans = spans.into_iter().peekable();
    let mut out = RowBuffer::default();
    for piece in pieces {
        let mut at = piece.start;
        while let Some(span) = spans.next_if(|span| span.start < piece.end()) {
            // Of functions that share code, the first counts.
            if span.start < at {
                continue;
            }
            put_gap(at, span.start, &mut out, summary);
            out.push((span.start, span.rule.unwrap_or(EntryInterner::NO_INFORMATION)));
            at = span.end;
        }
        put_gap(at, piece.end(), &mut out, summary);
        out.push((piece.end(), EntryInterner::NO_INFORMATION));
    }
    out
}

/// The rules of functions with symbols, and of those that they call directly, and so on, from their code.
fn functions<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    pieces: &[CodeSlice<'data>],
    entries: &mut EntryInterner,
) -> Vec<RuleSpan> {
    let architecture = code.architecture();
    let mut budget = StepBudget::for_bytes(pieces.iter().map(|piece| piece.bytes.len() as u64).sum());
    // Several names of one function.
    let mut symbols = BTreeMap::new();
    for_each_code_symbol(file, |symbol| {
        let Some((start, end)) = code.clip(symbol.address, symbol.address.saturating_add(symbol.size)) else {
            return;
        };
        let is_whole = u64::from(end - start) == symbol.size;
        if symbol.is_function && is_whole && is_begin_of_function(symbol.name) {
            symbols.insert(start, end);
        }
    });
    let mut spans = Vec::new();
    // Those without symbols.
    let (mut known, mut called) = (BTreeSet::new(), Vec::new());
    let mut add = |start: u32, bytes: &[u8], rules: Vec<(Range<u32>, Rule)>, called: &mut Vec<u32>| {
        for (range, rule) in rules {
            let part = bytes.get(range.start as usize..range.end as usize).unwrap_or_default();
            let calls = arch::calls(architecture, part);
            called.extend(calls.filter_map(|to| start.checked_add(range.start)?.checked_add_signed(to)));
            let (start, end) = (start + range.start, start + range.end);
            spans.push(RuleSpan { start, end, rule: Ok(entries.intern(Entry::Rule(rule))) });
        }
    };
    for (start, end) in &symbols {
        let Some(piece) = piece_at(pieces, *start).filter(|piece| *end <= piece.end()) else { continue };
        let bytes = piece.part(*start, *end).bytes;
        add(*start, bytes, arch::function_rules(architecture, bytes, || budget.consume()), &mut called);
    }
    while let Some(start) = called.pop() {
        let has_symbol = symbols.range(..=start).next_back().is_some_and(|(_, end)| start < *end);
        let Some(piece) = piece_at(pieces, start).filter(|_| !has_symbol) else { continue };
        if !known.insert(start) {
            continue;
        }
        let next = symbols.range(start..).next().map_or(u32::MAX, |(next, _)| *next);
        let end = piece.end().min(next).min(start.saturating_add(UNSIZED_BYTES_MAX));
        let bytes = piece.part(start, end).bytes;
        add(start, bytes, arch::reached_rules(architecture, bytes, || budget.consume()), &mut called);
    }
    spans
}

fn put_gap(start: u32, end: u32, out: &mut RowBuffer, summary: &mut Summary) {
    if start < end {
        summary.count_unresolved(Some(UnresolvedReason::NotAnalyzed), end - start);
        out.push((start, EntryInterner::NO_INFORMATION));
    }
}
