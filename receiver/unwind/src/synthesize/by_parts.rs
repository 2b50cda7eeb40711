//! The rows of machine code, which is analyzed as parts of it are wanted.

use object::File;
use sidewinder_unwind_table::{CompactRow, EntryInterner, RowBuffer, Summary};

use super::analysis::{CodeAnalysis, CodeUnit};
use crate::code::piece::CodeSlice;
use crate::known_functions::KnownFunctions;
use crate::read::ReadFile;
use crate::segments::CodeRanges;

/// Machine code, and the rows of what has been read of it.
pub(crate) struct MachineCode<'data> {
    analysis: CodeAnalysis<'data>,
    /// In order.
    units: Vec<ReadUnit<'data>>,
}

struct ReadUnit<'data> {
    unit: CodeUnit<'data>,
    /// Once it has been read.
    rows: Option<Box<[CompactRow]>>,
}

impl<'data> MachineCode<'data> {
    /// `undescribed` is in order.
    pub(crate) fn new<R: ReadFile<'data>>(
        file: &File<'data, R>,
        code: &CodeRanges,
        known: &KnownFunctions,
        undescribed: Vec<CodeSlice<'data>>,
        entries: &mut EntryInterner,
    ) -> Self {
        let summary = &mut Summary::default();
        let analysis = CodeAnalysis::new(file, code, known, undescribed, entries, summary);
        let units = analysis.units().map(|unit| ReadUnit { unit, rows: None }).collect();
        Self { analysis, units }
    }

    /// Reads what has rows in the wanted parts.
    pub(crate) fn read(&mut self, wanted: &CodeRanges, entries: &mut EntryInterner) {
        let Self { analysis, units } = self;
        for ReadUnit { unit, rows } in units {
            if rows.is_none() && wanted.wants(unit.range()) {
                let mut read = RowBuffer::default();
                analysis.take_rows(unit, entries, &mut Summary::default(), &mut read);
                *rows = Some(read.into_rows().collect());
            }
        }
    }

    /// What has been read of the wanted parts, and nothing of the rest of their units: a unit may be far larger than a part.
    pub(crate) fn rows(&self, wanted: &CodeRanges) -> RowBuffer {
        let mut out = RowBuffer::default();
        for ReadUnit { unit, rows } in self.units.iter().filter(|read| wanted.wants(read.unit.range())) {
            let rows = rows.as_deref().unwrap_or_default();
            let ends = rows.iter().skip(1).map(|(start, _)| *start).chain([unit.range().1]);
            for ((start, id), end) in rows.iter().zip(ends) {
                let is_wanted = wanted.wants((*start, end));
                out.push((*start, if is_wanted { *id } else { EntryInterner::NO_INFORMATION }));
            }
        }
        out
    }
}
