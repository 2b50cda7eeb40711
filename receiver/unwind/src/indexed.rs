//! Tables of parts of a file whose unwind information is too large to be read as a whole.

use std::ops::Range;

use object::{File, Object as _};
use sidewinder_address::Svma;

use crate::cfi::Index;
use crate::elf::{CodeRanges, Error, eh_frame_rows_of_parts};
use crate::entries::Entries;
use crate::known::KnownFunctions;
use crate::layers::lay_over;
use crate::read::ReadFile;
use crate::summary::Summary;
use crate::synthesize;
use crate::table::UnwindTable;

/// What `.eh_frame` says of parts of a file, found by the sorted table of `.eh_frame_hdr`: however large the file is, a part
/// takes time and memory as the part is large.
///
/// Other sources are left out, and the machine code but for linkage tables, since it is understood as a whole or not at
/// all. Where functions overlap, one that begins far before a part is not seen in it.
pub struct IndexedSources<'file, 'data, R: ReadFile<'data>> {
    file: &'file File<'data, R>,
    code: CodeRanges,
    index: Index,
    known: KnownFunctions,
}

/// What one look at all names of a file tells, for [`IndexedSources`] of the same file to come.
#[derive(Clone, Debug)]
pub struct FileOutline {
    index: Index,
    known: KnownFunctions,
}

impl FileOutline {
    /// The outline of a file; `None` where it has no `.eh_frame_hdr` with a table.
    ///
    /// # Errors
    ///
    /// If the file has no code, or code for another processor.
    pub fn of<'data, R: ReadFile<'data>>(file: &File<'data, R>) -> Result<Option<Self>, Error> {
        let code = CodeRanges::of_x86_64(file)?;
        let index = Index::of(file).filter(|_| file.section_by_name(".eh_frame").is_some());
        Ok(index.map(|index| Self { index, known: KnownFunctions::of(file, &code) }))
    }
}

impl<'file, 'data, R: ReadFile<'data>> IndexedSources<'file, 'data, R> {
    /// The sources of the file of which there is an outline.
    ///
    /// # Errors
    ///
    /// If the file has no code, or code for another processor.
    pub fn of(file: &'file File<'data, R>, outline: &FileOutline) -> Result<Self, Error> {
        let FileOutline { index, known } = outline.clone();
        Ok(Self { file, code: CodeRanges::of_x86_64(file)?, index, known })
    }

    /// A table that speaks of the addresses of these parts alone, and elsewhere says anything.
    pub fn table_of(&mut self, parts: &[Range<Svma>]) -> UnwindTable {
        self.code.want(Some(parts));
        let Self { file, code, index, known, .. } = self;
        let (mut entries, mut summary) = (Entries::new(), Summary::default());
        let described = eh_frame_rows_of_parts(file, index, parts, code, known, &mut entries, &mut summary);
        let layers = [
            known.roots(&mut entries, &mut summary),
            described,
            known.by_code(file, code, &mut entries, &mut summary),
            synthesize::linkage_rows(file, code, &mut entries, &mut summary),
        ];
        let rows = layers.into_iter().reduce(|above, below| lay_over(above, below, &entries));
        UnwindTable::new(code.base(), rows.unwrap_or_default(), entries, summary)
    }
}
