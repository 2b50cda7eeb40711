//! Overlays the sources of a file.

use std::ops::Range;

use object::File;
use sidewinder_address::Svma;
use sidewinder_unwind_table::{EntryInterner, RowBuffer, RowSource, Summary, UnwindTable};

use crate::companion::MiniDebugInfo;
use crate::elf::{EhFrameSection, debug_frame_rows, memory_of, sframe_rows};
use crate::go;
use crate::known_functions::KnownFunctions;
use crate::layers::Layers;
use crate::read::ReadFile;
use crate::segments::{CodeRanges, UnwindTableError};
use crate::synthesize;

/// The unwind table of a file: an executable, a shared library or the vDSO.
///
/// Malformed parts of the file give no rows and are counted in the table's [`Summary`].
///
/// # Errors
///
/// If the file has no code, or code for another processor.
pub fn unwind_table<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
) -> Result<UnwindTable, UnwindTableError> {
    Ok(UnwindSources::<R, &[u8]>::new(file, &[])?.table())
}

/// The sources of unwind information for a file, from the file and its debug files.
///
/// Finding them takes a pass over all names and functions, and keeps the unwind information in memory. A large file is better
/// read part by part: [`PartedSources`](crate::PartedSources).
pub struct UnwindSources<'file, 'data, 'debug, R: ReadFile<'data>, D: ReadFile<'debug>> {
    file: &'file File<'data, R>,
    debug_files: &'file [File<'debug, D>],
    mini_debug_info: Option<MiniDebugInfo<'data>>,
    code: CodeRanges,
    known: KnownFunctions,
    eh_frame: Option<EhFrameSection<'data>>,
    /// Counts from finding the sources.
    summary: Summary,
    entries: EntryInterner,
}

impl<'file, 'data, 'debug, R: ReadFile<'data>, D: ReadFile<'debug>>
    UnwindSources<'file, 'data, 'debug, R, D>
{
    /// Finds the sources of a file, and of separate debug files about the same code, whose paths
    /// [`debug_file`](crate::debug_file) lists. Debug files apply where the file itself has no information, earlier
    /// ones first.
    ///
    /// # Errors
    ///
    /// If the file itself has no code, or code for another processor.
    pub fn new(
        file: &'file File<'data, R>,
        debug_files: &'file [File<'debug, D>],
    ) -> Result<Self, UnwindTableError> {
        let code = CodeRanges::from_file(file)?;
        let mut summary = Summary::default();
        let mini_debug_info = MiniDebugInfo::from_file(file, &mut summary);
        let mut known = KnownFunctions::from_file(file, &code);
        debug_files.iter().for_each(|debug_file| known.add_named(debug_file, file, &code));
        if let Some(debug_file) = mini_debug_info.as_ref().and_then(MiniDebugInfo::file) {
            known.add_named(&debug_file, file, &code);
        }
        let eh_frame = EhFrameSection::from_file(file, RowSource::EhFrame, &code, &mut summary);
        if let Some(section) = &eh_frame {
            known.apply_traits(&section.traits(file, RowSource::EhFrame));
        }
        let entries = EntryInterner::new();
        Ok(Self { file, debug_files, mini_debug_info, code, known, eh_frame, summary, entries })
    }

    /// The table of all code.
    pub fn table(&mut self) -> UnwindTable {
        self.code.restrict_to(None);
        let mut summary = self.summary.clone();
        let described = self.layers_of_debug_info(&mut summary);
        let by_machine_code = self.rows_from_code(described.rows(), &mut summary);
        self.table_of_rows(described, by_machine_code, summary)
    }

    /// A table that is valid for the addresses of these parts only; elsewhere its rows are arbitrary. It has none from machine
    /// code.
    pub fn table_of(&mut self, parts: &[Range<Svma>]) -> UnwindTable {
        self.code.restrict_to(Some(parts));
        let mut summary = self.summary.clone();
        let described = self.layers_of_debug_info(&mut summary);
        self.table_of_rows(described, RowBuffer::default(), summary)
    }

    /// The rows of all sources except machine code.
    fn layers_of_debug_info(&mut self, summary: &mut Summary) -> Layers<'data> {
        let Self { file, code, known, entries, .. } = self;
        let mut layers = Layers::new(memory_of(file));
        if let Some(section) = &self.eh_frame {
            let rows = section.rows(file, RowSource::EhFrame, code, known, entries, summary);
            layers.add_below(rows, entries);
        }
        let go = go::rows(file, code, known, entries, summary);
        // Go writes `.debug_frame` for the functions of `.gopclntab` and no others.
        let is_go = !go.is_empty();
        layers.add_below(go, entries);
        if !is_go {
            let rows = debug_frame_rows(file, RowSource::DebugFrame, code, known, entries, summary);
            layers.add_below(rows, entries);
        }
        let sframe = sframe_rows(file, code, known, entries, summary);
        layers.add_below(sframe, entries);
        for debug_file in self.debug_files {
            add_debug_file(&mut layers, debug_file, RowSource::DebugFile, code, known, entries, summary);
        }
        if let Some(debug_file) = self.mini_debug_info.as_ref().and_then(MiniDebugInfo::file) {
            add_debug_file(&mut layers, &debug_file, RowSource::MiniDebugInfo, code, known, entries, summary);
        }
        // The sources above delimit the known functions.
        layers.add_above(known.overriding(code.architecture(), entries, summary), entries);
        layers.add_below(known.by_code(file, code, entries, summary), entries);
        layers
    }

    /// The rows from the machine code that `described` doesn't cover.
    fn rows_from_code(&mut self, described: &RowBuffer, summary: &mut Summary) -> RowBuffer {
        let Self { file, code, known, entries, .. } = self;
        let undescribed =
            synthesize::uncovered_code(file, code, known.have_clone(), described, entries, summary);
        synthesize::rows(file, code, known, undescribed, entries, summary)
    }

    fn table_of_rows(
        &self,
        mut layers: Layers<'_>,
        by_machine_code: RowBuffer,
        summary: Summary,
    ) -> UnwindTable {
        let spoken_of = by_machine_code.covered_ranges();
        layers.add_below(by_machine_code, &self.entries);
        let rows = layers.into_rows();
        UnwindTable::new(self.code.base(), rows, self.entries.clone(), summary).with_machine_code(spoken_of)
    }
}

/// Adds the rows of a debug file, or of one inside the file.
fn add_debug_file<'memory, 'debug, D: ReadFile<'debug>>(
    layers: &mut Layers<'memory>,
    debug_file: &File<'debug, D>,
    source: RowSource,
    code: &CodeRanges,
    known: &mut KnownFunctions,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) {
    if let Some(section) = EhFrameSection::from_file(debug_file, source, code, summary) {
        let rows = section.rows(debug_file, source, code, known, entries, summary);
        layers.add_below(rows, entries);
    }
    let rows = debug_frame_rows(debug_file, source, code, known, entries, summary);
    layers.add_below(rows, entries);
}
