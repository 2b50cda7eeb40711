//! Tables for parts of a file, or for single functions, without reading the rest.

use std::ops::Range;

use gimli::BaseAddresses;
use object::File;
use sidewinder_address::{LoadSegment, Svma};
use sidewinder_unwind_table::{EndReason, Entry, EntryInterner, RowBuffer, Summary, UnwindTable};

use crate::cfi::EhFrameHdrIndex;
use crate::elf::{bases, rows_of_window};
use crate::known_functions::KnownFunctions;
use crate::layers::overlay;
use crate::read::ReadFile;
use crate::segments::{CodeRanges, UnwindTableError, load_segments};
use crate::synthesize;

/// The facts about a whole file that one pass finds, and the index of its `.eh_frame`: the sorted table of
/// `.eh_frame_hdr`. Reading a part takes time and memory in proportion to the part, however large the file is.
///
/// Other sources are left out, and so is machine code except for linkage tables, since finding its functions
/// takes a pass over all of it. Where functions overlap, one that begins far before a part is not found.
#[derive(Clone, Debug)]
pub struct FileOutline {
    loads: Vec<LoadSegment>,
    code: CodeRanges,
    index: EhFrameHdrIndex,
    bases: BaseAddresses,
    known: KnownFunctions,
    entries: EntryInterner,
    /// The rows of functions that begin a stack; they override other sources.
    roots: RowBuffer,
    /// The rows that apply where no other source has any.
    by_code: RowBuffer,
}

impl FileOutline {
    /// The outline of a file; `None` if it has no `.eh_frame_hdr` with a table.
    ///
    /// # Errors
    ///
    /// If the file has no code, or code for another processor.
    pub fn from_file<'data, R: ReadFile<'data>>(
        file: &File<'data, R>,
    ) -> Result<Option<Self>, UnwindTableError> {
        let code = CodeRanges::from_file(file)?;
        let Some((index, data)) = EhFrameHdrIndex::from_file(file) else { return Ok(None) };
        let (bases, mut summary, mut entries) = (bases(file), Summary::default(), EntryInterner::new());
        let mut known = KnownFunctions::from_file(file, &code);
        // The FDEs of the known functions, and of those next to them, state where they end.
        let mut offsets = Vec::new();
        for start in known.starts() {
            let at = code.svma(start);
            let _ = index.functions_of(data, &(at..Svma(at.0.saturating_add(1))), &mut offsets);
        }
        if let Some(window) = index.window(data, offsets) {
            rows_of_window(window, &bases, &code, &mut known, &mut entries, &mut summary);
        }
        let roots = known.overriding(code.architecture(), &mut entries, &mut summary);
        let by_code = known.by_code(file, &code, &mut entries, &mut summary);
        let linkage = synthesize::linkage_rows(file, &code, &mut entries, &mut summary);
        let by_code = overlay(by_code, linkage, &entries);
        Ok(Some(Self { loads: load_segments(file), code, index, bases, known, entries, roots, by_code }))
    }

    /// The file's `PT_LOAD` segments.
    #[must_use]
    pub fn loads(&self) -> &[LoadSegment] {
        &self.loads
    }

    /// A table that is valid for the addresses of these parts only; elsewhere its rows are arbitrary. `data` is the file.
    pub fn table_of_parts<'data, R: ReadFile<'data>>(&self, data: R, parts: &[Range<Svma>]) -> UnwindTable {
        let mut offsets = Vec::new();
        for part in parts {
            let _ = self.index.functions_of(data, part, &mut offsets);
        }
        self.table(data, Some(parts), offsets, RowBuffer::default(), self.entries.clone())
    }

    /// A table of the functions that contain these addresses, and of the code after each up to the next function.
    /// Everywhere else it has [`EndReason::NotAsked`].
    pub fn table_of_functions<'data, R: ReadFile<'data>>(&self, data: R, addresses: &[Svma]) -> UnwindTable {
        let found = addresses.iter().filter_map(|address| self.index.function_at(data, *address));
        let mut found: Vec<_> = found.collect();
        found.sort_unstable_by_key(|(range, _)| range.start);
        let mut entries = self.entries.clone();
        let not_asked = entries.intern(Entry::End(EndReason::NotAsked));
        let place = |at: Svma| u32::try_from(at.0.saturating_sub(self.code.base().0)).unwrap_or(u32::MAX);
        let (mut others, mut end) = (RowBuffer::default(), 0);
        for (range, _) in &found {
            let (from, to) = (place(range.start), place(range.end));
            if from > end {
                others.push((end, not_asked));
                others.push((from, EntryInterner::NO_INFORMATION));
            }
            end = end.max(to);
        }
        others.push((end, not_asked));
        let last = self.code.ranges().map(|(_, end)| end).max().unwrap_or_default();
        others.push((last.max(end), EntryInterner::NO_INFORMATION));
        let offsets = found.iter().filter_map(|(_, offset)| *offset).collect();
        self.table(data, None, offsets, others, entries)
    }

    /// The table of the functions whose FDEs are at these offsets, over `others`.
    fn table<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        wanted: Option<&[Range<Svma>]>,
        offsets: Vec<u64>,
        others: RowBuffer,
        mut entries: EntryInterner,
    ) -> UnwindTable {
        let mut code = self.code.clone();
        code.restrict_to(wanted);
        let (mut summary, mut known) = (Summary::default(), self.known.clone());
        let window = self.index.window(data, offsets);
        let described = window
            .map(|window| rows_of_window(window, &self.bases, &code, &mut known, &mut entries, &mut summary));
        let layers = [self.roots.clone(), described.unwrap_or_default(), self.by_code.clone(), others];
        let rows = layers.into_iter().reduce(|above, below| overlay(above, below, &entries));
        UnwindTable::new(code.base(), rows.unwrap_or_default(), entries, summary)
    }
}
