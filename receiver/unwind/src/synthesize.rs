//! Makes rows from the machine code, for code that no source covers.
//!
//! Functions begin at symbols and at the targets of calls, and their frames are tracked from there. What isn't known
//! for certain gets no row, and is counted by reason.

mod calls;
mod entry;
mod functions;
mod imports;
mod layout;
mod named_functions;
mod sections;
mod unanalyzed;

use object::{File, Object as _, ObjectSection as _};
use sidewinder_unwind_table::{Entry, EntryInterner, RowBuffer, RowSource, Summary};

use self::calls::CallSweep;
use self::functions::FunctionAnalyzer;
use self::imports::Imports;
use self::layout::emit_rows;
use self::named_functions::NamedFunctions;
pub(crate) use self::sections::uncovered_code;
use self::sections::{AddressRanges, SectionKind, regions, sections};
use crate::arch::{self, Stepper, clone, haskell};
use crate::code::flow::StepBudget;
use crate::code::piece::{CodeSlice, piece_at};
use crate::code::span::RuleSpan;
use crate::known_functions::KnownFunctions;
use crate::read::ReadFile;
use crate::segments::CodeRanges;

/// The rows of the code that `rows` doesn't cover.
pub(crate) fn rows<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    known: &KnownFunctions,
    rows: &RowBuffer,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let undescribed = uncovered_code(file, code, known.have_clone(), rows, entries);
    if undescribed.is_empty() {
        return RowBuffer::default();
    }
    if !arch::is_analyzed(code.architecture()) {
        return unanalyzed::rows(file, code, &undescribed, entries, summary);
    }
    let (mut pieces, mut spans) = (Vec::new(), Vec::new());
    for piece in &undescribed {
        match clone::span(piece, entries) {
            Some(span) => spans.push(span),
            None => pieces.push(*piece),
        }
    }
    let sections = sections(file, code, &pieces);
    let mut linkage = AddressRanges::default();
    let mut understood = AddressRanges::default();
    let imports = Imports::from_file(file, code);
    let haskell = known.haskell_cfa_offset().or(imports.have_haskell.then_some(haskell::CFA_OFFSET));
    let haskell = haskell.map(|cfa_offset| haskell::Frames::new(cfa_offset, entries));
    let NamedFunctions { mut starts, never_return } =
        NamedFunctions::from_file(file, code, haskell.is_some());
    for section in &sections {
        match section.kind {
            SectionKind::Linkage => {
                linkage.ranges.push((section.piece.start, section.piece.end()));
                let of_entries = arch::linkage_spans(code.architecture(), &section.piece, entries);
                understood.ranges.extend(of_entries.last().map(|last| (section.piece.start, last.end)));
                spans.extend(of_entries);
            }
            SectionKind::OneFunction => {
                starts.insert(section.piece.start);
            }
        }
    }
    if !spans.is_empty() {
        Summary::count(&mut summary.functions, RowSource::MachineCode);
    }
    let sweep = CallSweep::new(&pieces);
    starts.extend(sweep.functions());
    starts.retain(|start| !linkage.contains(*start) && piece_at(&pieces, *start).is_some());

    let root = entries.intern(Entry::Rule(code.architecture().root()));
    spans.extend(entry::spans(file, code, known, &pieces, &starts, root));

    let mut functions = FunctionAnalyzer {
        pieces: &pieces,
        regions: &regions(file, code, &pieces),
        starts: &starts,
        linkage: &linkage,
        sweep: &sweep,
        imports: &imports,
        do_not_return: never_return,
        stepper: Stepper::new(),
        budget: StepBudget::for_bytes(pieces.iter().map(|piece| piece.bytes.len() as u64).sum()),
    };
    let found = functions.analyze_all(haskell.is_none(), entries);
    for function in found.values().filter(|function| !function.spans.is_empty()) {
        Summary::count(&mut summary.functions, RowSource::MachineCode);
        // A linkage entry that was also followed as a function has rows up to its jump, whose rule differs only in
        // form.
        spans.extend(function.spans.iter().filter(|span| !understood.contains(span.start)));
    }
    emit_rows(&undescribed, spans, root, haskell.as_ref(), summary)
}

/// The rows of all linkage tables.
pub(crate) fn linkage_rows<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let root = entries.intern(Entry::Rule(code.architecture().root()));
    let mut tables: Vec<CodeSlice<'_>> = file
        .sections()
        .filter(|section| {
            matches!(section.name_bytes().map(SectionKind::by_name), Ok(Some(SectionKind::Linkage)))
        })
        .filter_map(|section| {
            let end = section.address().saturating_add(section.size());
            let (start, end) = code.clip(section.address(), end)?;
            Some(CodeSlice { start, bytes: code.bytes(file, start, u64::from(end - start))? })
        })
        .collect();
    tables.sort_unstable_by_key(|table| table.start);
    if !arch::is_analyzed(code.architecture()) {
        return unanalyzed::rows(file, code, &tables, entries, summary);
    }
    let spans: Vec<RuleSpan> =
        tables.iter().flat_map(|table| arch::linkage_spans(code.architecture(), table, entries)).collect();
    if !spans.is_empty() {
        Summary::count(&mut summary.functions, RowSource::MachineCode);
    }
    emit_rows(&tables, spans, root, None, summary)
}
