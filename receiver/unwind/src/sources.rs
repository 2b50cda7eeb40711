//! Overlays the sources of a file.

use std::ops::Range;

use object::File;
use sidewinder_address::Svma;
use sidewinder_unwind_table::{EntryInterner, RowBuffer, RowSource, Summary, UnwindTable};

use crate::companion::MiniDebugInfo;
use crate::elf::{EhFrameSection, debug_frame_rows, sframe_rows};
use crate::go;
use crate::known_functions::KnownFunctions;
use crate::layers::overlay;
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
        let described = self.rows_from_debug_info(&mut summary);
        let by_machine_code = self.rows_from_code(&described, &mut summary);
        self.table_of_rows(described, by_machine_code, summary)
    }

    /// A table that is valid for the addresses of these parts only; elsewhere its rows are arbitrary. It has none from machine
    /// code.
    pub fn table_of(&mut self, parts: &[Range<Svma>]) -> UnwindTable {
        self.code.restrict_to(Some(parts));
        let mut summary = self.summary.clone();
        let described = self.rows_from_debug_info(&mut summary);
        self.table_of_rows(described, RowBuffer::default(), summary)
    }

    /// The rows of all sources except machine code.
    fn rows_from_debug_info(&mut self, summary: &mut Summary) -> RowBuffer {
        let Self { file, code, known, entries, .. } = self;
        let eh_frame = self.eh_frame.as_ref().map_or_else(RowBuffer::default, |section| {
            section.rows(file, RowSource::EhFrame, code, known, entries, summary)
        });
        let go = go::rows(file, code, known, entries, summary);
        // Go writes `.debug_frame` for the functions of `.gopclntab` and no others.
        let debug_frame = if go.is_empty() {
            debug_frame_rows(file, RowSource::DebugFrame, code, known, entries, summary)
        } else {
            RowBuffer::default()
        };
        let sframe = sframe_rows(file, code, known, entries, summary);
        let mut layers = vec![eh_frame, go, debug_frame, sframe];
        for debug_file in self.debug_files {
            let source = RowSource::DebugFile;
            if let Some(section) = EhFrameSection::from_file(debug_file, source, code, summary) {
                layers.push(section.rows(debug_file, source, code, known, entries, summary));
            }
            layers.push(debug_frame_rows(debug_file, source, code, known, entries, summary));
        }
        if let Some(debug_file) = self.mini_debug_info.as_ref().and_then(MiniDebugInfo::file) {
            let source = RowSource::MiniDebugInfo;
            if let Some(section) = EhFrameSection::from_file(&debug_file, source, code, summary) {
                layers.push(section.rows(&debug_file, source, code, known, entries, summary));
            }
            layers.push(debug_frame_rows(&debug_file, source, code, known, entries, summary));
        }
        // The sources above delimit the known functions.
        layers.insert(0, known.overriding(code.architecture(), entries, summary));
        layers.push(known.by_code(file, code, entries, summary));
        layers.into_iter().reduce(|above, below| overlay(above, below, entries)).unwrap_or_default()
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
        described: RowBuffer,
        by_machine_code: RowBuffer,
        summary: Summary,
    ) -> UnwindTable {
        let spoken_of = by_machine_code.covered_ranges();
        let rows = overlay(described, by_machine_code, &self.entries);
        UnwindTable::new(self.code.base(), rows, self.entries.clone(), summary).with_machine_code(spoken_of)
    }
}
