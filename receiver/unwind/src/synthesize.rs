//! Makes rows from the machine code, for code that no source covers.
//!
//! Functions begin at symbols and at the targets of calls, and their frames are tracked from there. What isn't known
//! for certain gets no row, and is counted by reason.

mod analysis;
mod by_parts;
mod calls;
mod entry;
mod functions;
mod imports;
mod layout;
mod named_functions;
mod sections;

use object::{File, Object as _, ObjectSection as _};
use sidewinder_unwind_table::{Entry, EntryInterner, RowBuffer, RowSource, Summary};

use self::analysis::CodeAnalysis;
pub(crate) use self::by_parts::MachineCode;
use self::layout::emit_rows;
use self::sections::SectionKind;
pub(crate) use self::sections::uncovered_code;
use crate::arch;
use crate::code::piece::CodeSlice;
use crate::code::span::RuleSpan;
use crate::known_functions::KnownFunctions;
use crate::read::ReadFile;
use crate::segments::CodeRanges;

/// The rows of all of this code, which no source describes. `undescribed` is in order.
pub(crate) fn rows<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    known: &KnownFunctions,
    undescribed: Vec<CodeSlice<'data>>,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let mut out = RowBuffer::default();
    if undescribed.is_empty() {
        return out;
    }
    let mut analysis = CodeAnalysis::new(file, code, known, undescribed, entries, summary);
    let units: Vec<_> = analysis.units().collect();
    for unit in units {
        analysis.take_rows(&unit, entries, summary, &mut out);
    }
    out
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
            let bytes = code.bytes(file, start, u64::from(end - start))?;
            Some(CodeSlice { architecture: code.architecture(), start, bytes })
        })
        .collect();
    tables.sort_unstable_by_key(|table| table.start);
    let spans: Vec<RuleSpan> =
        tables.iter().flat_map(|table| arch::linkage_spans(code.architecture(), table, entries)).collect();
    if !spans.is_empty() {
        Summary::count(&mut summary.functions, RowSource::MachineCode);
    }
    let mut out = RowBuffer::default();
    emit_rows(&tables, spans, root, None, summary, &mut out);
    out
}
