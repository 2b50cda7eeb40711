//! The analysis of machine code: what is known of a whole file, and the rows of each part.

use object::File;
use sidewinder_unwind_table::{Entry, EntryId, EntryInterner, RowBuffer, RowSource, Summary};

use super::calls::CallSweep;
use super::entry;
use super::functions::{AnalyzedCode, FunctionAnalyzer};
use super::imports::Imports;
use super::layout::emit_rows;
use super::named_functions::NamedFunctions;
use super::sections::{AddressRanges, SectionKind, regions, sections};
use crate::arch::{self, clone, haskell};
use crate::code::flow::AnalysisBudget;
use crate::code::piece::{CodeSlice, piece_at};
use crate::code::span::RuleSpan;
use crate::elf::memory_of;
use crate::known_functions::KnownFunctions;
use crate::read::ReadFile;
use crate::segments::CodeRanges;

/// The machine code that no source describes, analyzed piece by piece as rows are asked for. The rows of a piece are the
/// same in whatever order.
pub(super) struct CodeAnalysis<'data> {
    /// In order.
    undescribed: Vec<CodeSlice<'data>>,
    /// Spans that need no analysis: of linkage tables, calls of `clone`, and the entry point. In order.
    known_spans: Vec<RuleSpan>,
    /// The entries of linkage tables, and musl's `__clone`, that have spans. Some are also followed as functions.
    understood: AddressRanges,
    functions: FunctionAnalyzer<'data>,
    has_haskell: bool,
    /// The rules of its code, if they are known.
    haskell: Option<haskell::Frames>,
    root: EntryId,
}

impl<'data> CodeAnalysis<'data> {
    /// `undescribed` is in order. Its instructions are decoded once here, to find the functions that are called.
    pub(super) fn new<R: ReadFile<'data>>(
        file: &File<'data, R>,
        code: &CodeRanges,
        known: &KnownFunctions,
        undescribed: Vec<CodeSlice<'data>>,
        entries: &mut EntryInterner,
        summary: &mut Summary,
    ) -> Self {
        let (mut pieces, mut known_spans) = (Vec::new(), Vec::new());
        for piece in &undescribed {
            match clone::span(piece, entries) {
                Some(span) => known_spans.push(span),
                None => pieces.push(*piece),
            }
        }
        let sections = sections(file, code, &pieces);
        let mut linkage = AddressRanges::default();
        let mut understood = AddressRanges::default();
        let imports = Imports::from_file(file, code);
        let haskell = known.haskell_cfa_offset().or(imports.have_haskell.then_some(haskell::CFA_OFFSET));
        // No function of its code returns to a caller.
        let has_haskell = haskell.is_some();
        let haskell =
            haskell.and_then(|cfa_offset| arch::haskell_frames(code.architecture(), cfa_offset, entries));
        let memory = memory_of(file);
        let NamedFunctions { mut starts, never_return, reserved } =
            NamedFunctions::from_file(file, code, &pieces, has_haskell);
        for section in &sections {
            match section.kind {
                SectionKind::Linkage => {
                    linkage.ranges.push((section.piece.start, section.piece.end()));
                    let of_entries = arch::linkage_spans(code.architecture(), &section.piece, entries);
                    understood.ranges.extend(of_entries.last().map(|last| (section.piece.start, last.end)));
                    known_spans.extend(of_entries);
                }
                SectionKind::OneFunction => {
                    starts.insert(section.piece.start);
                }
            }
        }
        if !known_spans.is_empty() {
            Summary::count(&mut summary.functions, RowSource::MachineCode);
        }
        let sweep = CallSweep::new(&pieces, code.base(), memory);
        starts.extend(sweep.functions());
        starts.retain(|start| !linkage.contains(*start) && piece_at(&pieces, *start).is_some());

        let root = entries.intern(Entry::Rule(code.architecture().root()));
        // What is before it does not return either, but doesn't look like the end of a function.
        for start in sweep.called() {
            let piece = piece_at(&pieces, start);
            if let Some(spans) = piece.and_then(|piece| clone::musl_spans(piece, start, root, entries)) {
                understood.ranges.extend(spans.map(|span| (span.start, span.end)));
                known_spans.extend(spans);
            }
        }
        // That of an entry point that is described may go on into a piece.
        for span in entry::spans(file, code, known, &pieces, &starts, &imports, root) {
            let from = undescribed.partition_point(|piece| piece.end() <= span.start);
            let within = undescribed.iter().skip(from).take_while(|piece| piece.start < span.end);
            known_spans.extend(within.map(|piece| RuleSpan {
                start: span.start.max(piece.start),
                end: span.end.min(piece.end()),
                ..span
            }));
        }
        known_spans.sort_unstable_by_key(|span| (span.start, span.end));
        let regions = regions(file, code, &pieces);
        let bytes = pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
        let budget = AnalysisBudget::for_bytes(bytes, memory);
        let code =
            AnalyzedCode { pieces, regions, starts, linkage, sweep, imports, _starts_memory: reserved };
        let functions = FunctionAnalyzer::new(code, never_return, budget);
        Self { undescribed, known_spans, understood, functions, has_haskell, haskell, root }
    }

    /// The parts of the code that can be analyzed by themselves, in order: frames are not followed from one to another.
    pub(super) fn units(&self) -> impl Iterator<Item = CodeUnit<'data>> {
        let region = |piece: &CodeSlice<'data>| {
            self.functions.region_at(piece.start).map_or(piece.start, |region| region.start)
        };
        let units = self.undescribed.chunk_by(move |one, next| region(one) == region(next));
        units.map(|pieces| CodeUnit { pieces: pieces.to_vec() })
    }

    /// Appends the rows of one unit. Each may be taken once.
    pub(super) fn take_rows(
        &mut self,
        unit: &CodeUnit<'_>,
        entries: &mut EntryInterner,
        summary: &mut Summary,
        out: &mut RowBuffer,
    ) {
        let (start, end) = unit.range();
        let before = |limit| self.known_spans.partition_point(|span| span.start < limit);
        let mut spans = self.known_spans.get(before(start)..before(end)).unwrap_or_default().to_vec();
        let functions = self.functions.take(start..end, !self.has_haskell, entries);
        for function in functions.iter().filter(|function| !function.spans.is_empty()) {
            Summary::count(&mut summary.functions, RowSource::MachineCode);
            // A linkage entry that was also followed as a function has rows up to its jump, whose rule differs only in
            // form.
            spans.extend(function.spans.iter().filter(|span| !self.understood.contains(span.start)));
        }
        emit_rows(&unit.pieces, spans, self.root, self.haskell.as_ref(), summary, out);
    }
}

/// Undescribed code that is analyzed separately.
pub(super) struct CodeUnit<'data> {
    /// At least one, in order.
    pieces: Vec<CodeSlice<'data>>,
}

impl CodeUnit<'_> {
    pub(super) fn range(&self) -> (u32, u32) {
        let start = self.pieces.first().map_or(0, |piece| piece.start);
        (start, self.pieces.last().map_or(start, CodeSlice::end))
    }
}
