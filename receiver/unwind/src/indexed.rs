//! Tables for parts of a file, or for single functions, without reading the rest.

use std::ops::Range;

use gimli::BaseAddresses;
use object::{File, Object as _};
use sidewinder_address::{LoadSegment, Svma};
use sidewinder_unwind_table::{EndReason, Entry, EntryInterner, RowBuffer, Summary, UnwindTable};

use crate::cfi::EhFrameHdrIndex;
use crate::elf::{bases, located_in_window, rows_of_window, traits_of_window};
use crate::go::{self, GoTable};
use crate::known_functions::KnownFunctions;
use crate::layers::{overlay, visible};
use crate::memory::{Memory, Reservation};
use crate::read::ReadFile;
use crate::segments::{CodeRanges, UnwindTableError, load_segments};
use crate::synthesize;

/// The facts about a whole file that one pass finds, and where its unwind information is: the sorted table of
/// `.eh_frame_hdr`, and Go's table. Reading a part takes time and memory in proportion to the part, however large the file is.
///
/// Other sources are left out, and so is machine code except for linkage tables, since finding its functions
/// takes a pass over all of it ([`PartedSources`](crate::PartedSources) makes that). Where functions overlap, one that begins
/// far before a part is not found.
#[derive(Clone, Debug)]
pub struct FileOutline {
    loads: Vec<LoadSegment>,
    code: CodeRanges,
    /// At least one of these two.
    eh_frame: Option<EhFrameHdrIndex>,
    go: Option<GoTable>,
    bases: BaseAddresses,
    pub(crate) known: KnownFunctions,
    pub(crate) entries: EntryInterner,
    /// The rows of functions that begin a stack; they override other sources.
    roots: RowBuffer,
    /// The rows that apply where no other source has any.
    by_code: RowBuffer,
}

/// Entries of the table of `.eh_frame_hdr` that are read together where all are.
const FUNCTIONS_AT_ONCE: u64 = 4096;

impl FileOutline {
    /// The outline of a file; `None` if it has neither an `.eh_frame_hdr` with a table nor Go's table, or an `.eh_frame` without
    /// such a table. Of its debug files, only the names of functions are used.
    ///
    /// # Errors
    ///
    /// If the file has no code, or code for another processor.
    pub fn from_file<'data, 'debug, R: ReadFile<'data>, D: ReadFile<'debug>>(
        file: &File<'data, R>,
        debug_files: &[File<'debug, D>],
    ) -> Result<Option<Self>, UnwindTableError> {
        let code = CodeRanges::from_file(file)?;
        let File::Elf64(elf) = file else { return Ok(None) };
        let (data, mut summary, mut entries) = (elf.data(), Summary::default(), EntryInterner::new());
        let eh_frame = EhFrameHdrIndex::from_file(file);
        let go = GoTable::find(file, &code, &mut summary);
        let has_unindexed = eh_frame.is_none() && file.section_by_name(".eh_frame").is_some();
        if has_unindexed || (eh_frame.is_none() && go.is_none()) {
            return Ok(None);
        }
        let mut known = KnownFunctions::from_file(file, &code);
        debug_files.iter().for_each(|debug_file| known.add_named(debug_file, file, &code));
        let bases = bases(file);
        if let Some(window) = eh_frame.as_ref().and_then(|index| index.whole_if_small(data)) {
            known.apply_traits(&traits_of_window(&window, &bases, &code));
        }
        let mut outline = Self {
            loads: load_segments(file),
            code,
            eh_frame,
            go,
            bases,
            known,
            entries: EntryInterner::new(),
            roots: RowBuffer::default(),
            by_code: RowBuffer::default(),
        };
        // The FDEs of the known functions, and of those next to them, state where they end.
        let starts = outline.known.starts();
        let around = starts.into_iter().map(|start| outline.code.svma(start));
        let around: Vec<_> = around.map(|at| at..Svma(at.0.saturating_add(1))).collect();
        let mut known = outline.known.clone();
        let offsets = outline.offsets_of(data, &around);
        let described = outline.described(data, &around, &offsets, &mut known, &mut entries);
        let code = &outline.code;
        outline.roots = known.overriding(code.architecture(), &mut entries, &mut summary);
        let by_code = known.by_code(file, code, &mut entries, &mut summary);
        // A table of other functions lacks the rows that hide these.
        let by_code = visible(by_code, &described, &entries);
        let linkage = synthesize::linkage_rows(file, code, &mut entries, &mut summary);
        outline.by_code = overlay(by_code, linkage, &entries);
        Ok(Some(Self { known, entries, ..outline }))
    }

    /// The file's `PT_LOAD` segments.
    #[must_use]
    pub fn loads(&self) -> &[LoadSegment] {
        &self.loads
    }

    pub(crate) fn code(&self) -> &CodeRanges {
        &self.code
    }

    /// A table that is valid for the addresses of these parts only; elsewhere its rows are arbitrary. `data` is the file.
    pub fn table_of_parts<'data, R: ReadFile<'data>>(&self, data: R, parts: &[Range<Svma>]) -> UnwindTable {
        let mut entries = self.entries.clone();
        let rows = self.rows_of_parts(data, parts, &mut entries);
        UnwindTable::new(self.code.base(), rows, entries, Summary::default())
    }

    /// The rows of that table. `entries` must begin with the outline's entries.
    pub(crate) fn rows_of_parts<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        parts: &[Range<Svma>],
        entries: &mut EntryInterner,
    ) -> RowBuffer {
        let offsets = self.offsets_of(data, parts);
        self.rows(data, parts, &offsets, RowBuffer::default(), entries)
    }

    /// A table of the functions that contain these addresses, and of the code after each up to the next function.
    /// Everywhere else it has [`EndReason::NotAsked`].
    pub fn table_of_functions<'data, R: ReadFile<'data>>(&self, data: R, addresses: &[Svma]) -> UnwindTable {
        let found = addresses.iter().filter_map(|address| self.function_at(data, *address));
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
        let offsets: Vec<u64> = found.iter().filter_map(|(_, offset)| *offset).collect();
        let ranges: Vec<_> = found.into_iter().map(|(range, _)| range).collect();
        let rows = self.rows(data, &ranges, &offsets, others, &mut entries);
        UnwindTable::new(self.code.base(), rows, entries, Summary::default())
    }

    /// The function that contains or precedes an address: the range in which no other begins, and the location of its FDE if it has
    /// one.
    fn function_at<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        address: Svma,
    ) -> Option<(Range<Svma>, Option<u64>)> {
        if let Some(range) = self.go.as_ref().and_then(|go| go.function_at(data, address)) {
            return Some((range, None));
        }
        self.eh_frame.as_ref()?.function_at(data, address)
    }

    /// The locations of the FDEs of parts.
    fn offsets_of<'data, R: ReadFile<'data>>(&self, data: R, parts: &[Range<Svma>]) -> Vec<u64> {
        let mut offsets = Vec::new();
        if let Some(index) = &self.eh_frame {
            for part in parts {
                let _ = index.functions_of(data, part, &mut offsets);
            }
        }
        offsets
    }

    /// The rows of parts, by the FDEs at these offsets and by Go's table, over `others`.
    fn rows<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        parts: &[Range<Svma>],
        offsets: &[u64],
        others: RowBuffer,
        entries: &mut EntryInterner,
    ) -> RowBuffer {
        let described = self.described(data, parts, offsets, &mut self.known.clone(), entries);
        let layers = [self.roots.clone(), described, self.by_code.clone(), others];
        layers.into_iter().reduce(|above, below| overlay(above, below, entries)).unwrap_or_default()
    }

    /// The rows of parts by the FDEs at these offsets, and by Go's table.
    fn described<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        parts: &[Range<Svma>],
        offsets: &[u64],
        known: &mut KnownFunctions,
        entries: &mut EntryInterner,
    ) -> RowBuffer {
        let mut code = self.code.clone();
        code.restrict_to(Some(parts));
        let summary = &mut Summary::default();
        let window = self.eh_frame.as_ref().and_then(|index| index.window(data, offsets.to_vec()));
        let by_eh_frame = window
            .map(|window| rows_of_window(window, &self.bases, &code, known, entries, summary))
            .unwrap_or_default();
        let by_go = self.go.map(|go| go.rows(data, &code, known, entries, summary)).unwrap_or_default();
        overlay(by_eh_frame, by_go, entries)
    }

    /// Which code is described: rows that say no more than that. Narrows what is assumed of `known` functions.
    pub(crate) fn described_code<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        known: &mut KnownFunctions,
    ) -> RowBuffer {
        let covered = || CoveredCode::new(data.memory());
        let (mut by_eh_frame, mut by_go) = (covered(), covered());
        if let Some(index) = &self.eh_frame {
            for first in (0..index.functions()).step_by(FUNCTIONS_AT_ONCE as usize) {
                let offsets = index.offsets(data, first..first + FUNCTIONS_AT_ONCE);
                let window = offsets.and_then(|offsets| index.window(data, offsets));
                let located = window.map(|window| located_in_window(&window, &self.bases, &self.code));
                for function in located.unwrap_or_default() {
                    known.clip_to(function);
                    by_eh_frame.add(function);
                }
            }
        }
        if let Some(go) = &self.go {
            go.for_each_function(data, &self.code, |function| {
                known.clip_to(function);
                by_go.add(function);
            });
        }
        overlay(by_eh_frame.finish(), by_go.finish(), &self.entries)
    }
}

/// The code of functions that arrive sorted by their starts, as far as there is memory for it.
struct CoveredCode<'memory> {
    rows: RowBuffer,
    /// Where the last of it ends.
    end: u32,
    reserved: Reservation<'memory>,
}

impl<'memory> CoveredCode<'memory> {
    fn new(memory: Memory<'memory>) -> Self {
        Self { rows: RowBuffer::default(), end: 0, reserved: memory.nothing() }
    }

    fn add(&mut self, (start, end): (u32, u32)) {
        if start > self.end && !self.reserved.grow(2 * RowBuffer::ROW_BYTES) {
            return;
        }
        if start > self.end {
            self.rows.push((self.end, EntryInterner::NO_INFORMATION));
        }
        self.rows.push((start.max(self.end), EntryInterner::SOMETHING));
        self.end = self.end.max(end);
    }

    fn finish(mut self) -> RowBuffer {
        self.rows.push((self.end, EntryInterner::NO_INFORMATION));
        self.rows
    }
}

/// Whether an outline knows all sources of a file's rows but machine code.
#[must_use]
pub fn has_only_indexed_sources<'data, R: ReadFile<'data>>(file: &File<'data, R>) -> bool {
    let has = |name: &str| file.section_by_name(name).is_some();
    let is_go = go::SECTIONS.into_iter().any(has);
    // Go writes `.debug_frame` only for functions in its own table.
    let has_debug_frame = has(".debug_frame") && !is_go;
    (is_go || has(".eh_frame")) && !has_debug_frame && ![".sframe", ".gnu_debugdata"].into_iter().any(has)
}
