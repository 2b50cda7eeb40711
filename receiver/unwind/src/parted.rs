//! The table of a large file, part by part.

use std::ops::Range;

use object::File;
use sidewinder_address::Svma;
use sidewinder_unwind_table::{EntryInterner, RowBuffer, Summary, UnwindTable};

use crate::code::piece::CodeSlice;
use crate::indexed::FileOutline;
use crate::layers::overlay;
use crate::read::ReadFile;
use crate::segments::UnwindTableError;
use crate::synthesize::{self, MachineCode};

/// The sources of unwind information of a file of which an outline can be made, and its machine code.
///
/// Of the unwind information a part takes time and memory in proportion to its size. Machine code that nothing describes is
/// read as a whole, once a part with any is [wanted](Self::read_code).
pub struct PartedSources<'file, 'data, R: ReadFile<'data>> {
    file: &'file File<'data, R>,
    data: R,
    outline: FileOutline,
    entries: EntryInterner,
    undescribed: Option<UndescribedCode<'data>>,
}

/// Code that no source describes.
struct UndescribedCode<'data> {
    /// In order.
    pieces: Vec<CodeSlice<'data>>,
    /// What tables of parts have of it; `None`: nothing yet.
    read: Option<MachineCode<'data>>,
}

impl<'file, 'data, R: ReadFile<'data>> PartedSources<'file, 'data, R> {
    /// The sources of a file; `None` where no [`FileOutline`] can be made of it.
    ///
    /// # Errors
    ///
    /// As [`FileOutline::from_file`].
    pub fn from_file<'debug, D: ReadFile<'debug>>(
        file: &'file File<'data, R>,
        debug_files: &[File<'debug, D>],
    ) -> Result<Option<Self>, UnwindTableError> {
        let outline = FileOutline::from_file(file, debug_files)?;
        let File::Elf64(elf) = file else { return Ok(None) };
        let with_outline = |outline: FileOutline| {
            let entries = outline.entries.clone();
            Self { file, data: elf.data(), outline, entries, undescribed: None }
        };
        Ok(outline.map(with_outline))
    }

    /// The outline, by which parts without machine code can be made again.
    #[must_use]
    pub fn outline(&self) -> &FileOutline {
        &self.outline
    }

    /// A table that is valid for the addresses of these parts only; elsewhere its rows are arbitrary. Of machine code, it has
    /// what [`read_code`](Self::read_code) has read.
    pub fn table_of(&mut self, parts: &[Range<Svma>]) -> UnwindTable {
        let rows = self.outline.rows_of_parts(self.data, parts, &mut self.entries);
        let mut code = self.outline.code().clone();
        code.restrict_to(Some(parts));
        let read = self.undescribed.as_ref().and_then(|undescribed| undescribed.read.as_ref());
        let by_machine_code = read.map_or_else(RowBuffer::default, |read| read.rows(&code));
        let spoken_of = by_machine_code.covered_ranges();
        let rows = overlay(rows, by_machine_code, &self.entries);
        UnwindTable::new(code.base(), rows, self.entries.clone(), Summary::default())
            .with_machine_code(spoken_of)
    }

    /// The code that no source covers, in order. Tables of parts without any need no rows from machine code.
    pub fn undescribed_code(&mut self) -> Vec<Range<Svma>> {
        let pieces = &self.find_undescribed().pieces;
        let ranges: Vec<_> = pieces.iter().map(|piece| (piece.start, piece.end())).collect();
        let code = self.outline.code();
        ranges.into_iter().map(|(start, end)| code.svma(start)..code.svma(end)).collect()
    }

    /// Makes rows from the machine code in these parts that no source covers, for later tables of them. Code hidden by a
    /// malformed entry is left out.
    ///
    /// The first call decodes all such code, to find where functions begin. Each then analyzes those of its parts, and the
    /// functions that these call.
    pub fn read_code(&mut self, parts: &[Range<Svma>]) {
        self.find_undescribed();
        let mut code = self.outline.code().clone();
        code.restrict_to(Some(parts));
        let Self { file, outline, entries, undescribed, .. } = self;
        let Some(UndescribedCode { pieces, read }) = undescribed else { return };
        read.get_or_insert_with(|| {
            MachineCode::new(file, outline.code(), &outline.known, pieces.clone(), entries)
        })
        .read(&code, entries);
    }

    fn find_undescribed(&mut self) -> &mut UndescribedCode<'data> {
        if let Some(known) = self.undescribed.take() {
            return self.undescribed.insert(known);
        }
        let described = self.described_code();
        let Self { file, outline, entries, undescribed, .. } = self;
        let (code, has_clone) = (outline.code(), outline.known.have_clone());
        let summary = &mut Summary::default();
        let pieces = synthesize::uncovered_code(file, code, has_clone, &described, entries, summary);
        undescribed.insert(UndescribedCode { pieces, read: None })
    }

    /// Which code is described, or what is known of functions by their names: rows that say no more than that.
    fn described_code(&mut self) -> RowBuffer {
        let Self { file, data, outline, entries, .. } = self;
        let mut known = outline.known.clone();
        let described = outline.described_code(*data, &mut known);
        let (code, summary) = (outline.code(), &mut Summary::default());
        let described = overlay(known.overriding(code.architecture(), entries, summary), described, entries);
        let by_code = known.by_code(file, code, entries, summary);
        overlay(described, by_code, entries)
    }
}
