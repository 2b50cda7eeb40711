//! Builds the unwind tables of files: whole, in parts, and single parts again.
//!
//! Runs on the threads of the [table builder](crate::table_builder). Input: a file, its debug file, and the file offsets
//! that walks have missed. Output: packed segments of the file's table.

use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use object::ReadCache;
use sidewinder_address::{FileOffset, LoadSegment, Svma};
use sidewinder_bpf::{PackedSegment, Packing, pack_part, page_range, repack};
use sidewinder_debug_files::{Companions, DebugFile};
use sidewinder_process::OpenedFile;
use sidewinder_unwind::validate::{TrustedSide, Validation, resolve_conflicts, validate};
use sidewinder_unwind::{
    FileOutline, PartedSources, ReadFile, UnwindSources, UnwindTable, check_native, code_ranges,
    has_only_indexed_sources, load_segments,
};
use sidewinder_unwind_table::RowBuffer;
use thiserror::Error;

use crate::built_table::{
    BuiltTable, SegmentRequest, TextRange, executable_segments, locate_in_loads, split, to_file_range,
};
use crate::reader::{BoundedReader, ReadBudget};
use crate::saved_tables::{SavedTable, SavedTableName, SavedTables};
use crate::segmented::{SegmentedBuild, unbuilt_parts};
use crate::table_room::TableRoom;

/// Why a file has no table.
#[derive(Debug, Error)]
pub enum BuildError {
    /// It can't be parsed.
    #[error("not a readable ELF file")]
    Elf(#[from] object::Error),
    /// It has nothing from which rows can be made, or not for this machine.
    #[error("no unwind table")]
    Unwind(#[from] sidewinder_unwind::UnwindTableError),
    /// There is no memory left to read it, by this many bytes.
    #[error("no memory left to read the file, which needs {0} bytes more: raise memory_limit_mib")]
    OverBudget(u64),
    /// The build panicked.
    #[error("building the unwind table panicked: please report this, with the file")]
    Panicked,
}

/// Files with more code are built in parts: that takes little memory, and walks don't have to wait for the whole file.
const WHOLE_CODE_BYTES_MAX: u64 = 2 << 20;

/// A file is read as a whole if it takes no more than this share of the memory, given as a divisor. The rest is for its rows.
const WHOLE_FILE_SHARE: u64 = 2;

/// The code that is packed together, where a file is not read in parts.
const PACKED_TOGETHER_BYTES: u64 = 64 << 20;

/// A file whose table is built, and the limits of the build.
#[derive(Debug)]
pub(crate) struct BuildSource<'a> {
    pub(crate) content: &'a OpenedFile,
    pub(crate) packing: Packing,
    pub(crate) debug_file: &'a DebugFile,
    /// The outline of an earlier build.
    pub(crate) outline: Option<&'a Arc<FileOutline>>,
    /// The memory that the build may use; `u64::MAX`: unlimited.
    pub(crate) budget_bytes: u64,
    /// The memory that is left for tables.
    pub(crate) room: &'a TableRoom,
    /// Where the file's table is saved.
    pub(crate) saved: Option<(&'a SavedTables, &'a SavedTableName)>,
}

/// Saved segments are delivered in batches of this size.
const SAVED_BATCH_BYTES: u64 = 256 << 10;

impl BuildSource<'_> {
    /// Reads back the file's table if it was saved, or else [builds](Self::build_from_file) and saves it.
    pub(crate) fn build(
        &self,
        trust: TrustedSide,
        wanted: &Receiver<FileOffset>,
        mut deliver: impl FnMut(BuiltTable),
    ) -> Result<BuiltTable, BuildError> {
        let Some((tables, name)) = self.saved else { return self.build_from_file(trust, wanted, deliver) };
        if let Some(saved) = tables.find(name)
            && let Some(built) = self.build_from_saved(&saved, &mut deliver)?
        {
            tables.count_use();
            return Ok(built);
        }
        let mut unfinished = tables.begin(name);
        let last = self.build_from_file(trust, wanted, |built| {
            unfinished.iter_mut().for_each(|unfinished| unfinished.add(&built));
            deliver(built);
        })?;
        let is_of_file_alone = last.over_budget_bytes.is_none() && !last.debug_file.has_debug();
        if let Some(mut unfinished) = unfinished.filter(|_| is_of_file_alone) {
            unfinished.add(&last);
            unfinished.finish();
        }
        Ok(last)
    }

    /// Loads a saved table as far as there is room; `None` if a debug file contributes to the file's table now.
    fn build_from_saved(
        &self,
        saved: &SavedTable,
        mut deliver: impl FnMut(BuiltTable),
    ) -> Result<Option<BuiltTable>, BuildError> {
        let budget = ReadBudget::new(self.budget_bytes);
        let reader = BoundedReader::new(self.content, &budget);
        let file = parse_elf(&reader, &budget)?;
        let loads = load_segments(&file);
        let debug_file = DebugFile::Searched(self.debug_file.find(&file));
        if debug_file.has_debug() {
            return Ok(None);
        }
        let batch = || BuiltTable { debug_file: debug_file.clone(), ..BuiltTable::with_loads(loads.clone()) };
        let (mut built, mut batch_bytes, mut room_bytes) = (batch(), 0, self.room.bytes());
        for segment in saved.segments() {
            let packed = (room_bytes > 0).then(|| saved.load(segment)).flatten();
            let Some(packed) = packed else {
                built.unbuilt.push(segment.range());
                continue;
            };
            let bytes = packed.bytes.len() as u64;
            (batch_bytes, room_bytes) = (batch_bytes + bytes, room_bytes.saturating_sub(bytes));
            if !segment.is_self_contained() {
                let range = segment.range();
                built.from_machine_code.push(range.file_offset..range.end());
            }
            built.segments.push(packed);
            if batch_bytes >= SAVED_BATCH_BYTES {
                deliver(std::mem::replace(&mut built, batch()));
                batch_bytes = 0;
            }
        }
        Ok(Some(built))
    }

    /// Reads a file's table and packs it. Parts of a large file are passed to `deliver` as soon as they are built, those that
    /// walks miss first; the last part is returned. Once there is no room for more tables, the rest is not built.
    fn build_from_file(
        &self,
        trust: TrustedSide,
        wanted: &Receiver<FileOffset>,
        deliver: impl FnMut(BuiltTable),
    ) -> Result<BuiltTable, BuildError> {
        let budget = ReadBudget::new(self.budget_bytes);
        // The cached pieces are freed before the rows are packed, because packing needs memory too.
        let (loads, table, companions) = {
            let reader = BoundedReader::new(self.content, &budget);
            let file = parse_elf(&reader, &budget)?;
            let loads = load_segments(&file);
            let companions = self.debug_file.find(&file);
            let debug_reader =
                companions.debug.as_deref().map(|found| BoundedReader::new(&*found.file, &budget));
            let debug = debug_reader.as_ref().and_then(|reader| object::File::parse(reader).ok());
            let code_bytes: u64 = executable_segments(&loads).map(|load| load.size).sum();
            if trust == TrustedSide::Rows
                && code_bytes > WHOLE_CODE_BYTES_MAX
                && self.is_read_in_parts(&file)
                && let Some(sources) = PartedSources::from_file(&file, debug.as_slice())?
            {
                let built = SegmentedBuild::new(sources, self.packing, companions.clone(), self.room)
                    .build(wanted, deliver);
                return Ok(BuiltTable { over_budget_bytes: budget.refused_bytes(), ..built });
            }
            let table = UnwindSources::new(&file, debug.as_slice())?.table();
            (loads, resolve_conflicts(&file, table, trust)?, companions)
        };
        let (segments, unbuilt) = self.pack(&table, &loads);
        let from_machine_code =
            table.by_machine_code().filter_map(|code| to_file_range(&loads, &code)).collect();
        Ok(BuiltTable {
            segments,
            unbuilt,
            from_machine_code,
            debug_file: DebugFile::Searched(companions),
            over_budget_bytes: budget.refused_bytes(),
            ..BuiltTable::with_loads(loads)
        })
    }

    /// Packs a table, and returns the parts for which the build has no memory: a table takes memory in proportion to the code, too, of
    /// which a sparse file has any amount.
    fn pack(&self, table: &UnwindTable, loads: &[LoadSegment]) -> (Vec<PackedSegment>, Vec<TextRange>) {
        let (mut segments, mut unbuilt) = (Vec::new(), Vec::new());
        let rows_bytes = (table.len() * RowBuffer::ROW_BYTES) as u64;
        let mut left_bytes = self.budget_bytes.saturating_sub(rows_bytes);
        for load in executable_segments(loads) {
            for part in split(page_range(load), PACKED_TOGETHER_BYTES) {
                let pages = part.file_offset..part.end();
                if left_bytes == 0 {
                    unbuilt.push(pages);
                    continue;
                }
                let packed = pack_part(table, load, self.packing, pages);
                let bytes: u64 = packed.iter().map(|segment| segment.bytes.len() as u64).sum();
                left_bytes = left_bytes.saturating_sub(bytes);
                segments.extend(packed);
            }
        }
        (segments, unbuilt_parts(loads, unbuilt.into_iter()))
    }

    /// Whether a large file is read in parts. Sources other than those with an index are left out then, so they are used where
    /// the whole file fits into the memory.
    fn is_read_in_parts<'data, R: ReadFile<'data>>(&self, file: &object::File<'data, R>) -> bool {
        has_only_indexed_sources(file) || self.content.size_bytes() > self.budget_bytes / WHOLE_FILE_SHARE
    }

    /// Reads back the segments that were saved; [builds](Self::rebuild_from_file) and saves the rest.
    pub(crate) fn rebuild(
        &self,
        wanted: &[SegmentRequest],
        stand_alone: bool,
        trust: TrustedSide,
    ) -> Result<BuiltTable, BuildError> {
        let saved = self.saved.and_then(|(tables, name)| Some((tables, tables.find(name)?)));
        let Some((tables, saved)) = saved else { return self.rebuild_from_file(wanted, stand_alone, trust) };
        let (mut segments, mut rest) = (Vec::new(), Vec::new());
        for request in wanted {
            match saved.segment_of(request.range).filter(|_| request.functions.is_none()) {
                Some(segment) => segments.push(segment),
                None => rest.push(request.clone()),
            }
        }
        if rest.is_empty() {
            let debug_file = self.debug_file.clone();
            return Ok(BuiltTable { segments, debug_file, ..BuiltTable::with_loads(Vec::new()) });
        }
        let mut built = self.rebuild_from_file(&rest, stand_alone, trust)?;
        let is_whole = |segment: &&PackedSegment| {
            rest.iter()
                .any(|request| request.range == TextRange::from(*segment) && request.functions.is_none())
        };
        if built.over_budget_bytes.is_none() {
            saved.append(tables, built.segments.iter().filter(is_whole), stand_alone);
        }
        built.segments.extend(segments);
        Ok(built)
    }

    /// Reads and packs some segments of a file's table, most of which were built before. Unless `stand_alone`, the rest of
    /// the file is read too.
    fn rebuild_from_file(
        &self,
        wanted: &[SegmentRequest],
        stand_alone: bool,
        trust: TrustedSide,
    ) -> Result<BuiltTable, BuildError> {
        let budget = ReadBudget::new(self.budget_bytes);
        let reader = BoundedReader::new(self.content, &budget);
        let with_refused = |built| BuiltTable { over_budget_bytes: budget.refused_bytes(), ..built };
        // Checking the code needs the whole file.
        let can_build_parts = stand_alone && trust == TrustedSide::Rows;
        if let (Some(outline), true) = (self.outline, can_build_parts) {
            return Ok(with_refused(self.build_segments(outline, &reader, wanted)));
        }
        let file = parse_elf(&reader, &budget)?;
        if self.outline.is_some()
            && let Some(sources) = PartedSources::from_file::<&BoundedReader<'_, File>>(&file, &[])?
        {
            return Ok(with_refused(self.build_segments_with_code(sources, wanted)));
        }
        if can_build_parts && let Some(outline) = self.part_outline(&file)? {
            return Ok(with_refused(self.build_segments(&Arc::new(outline), &reader, wanted)));
        }
        let loads = load_segments(&file);
        let located: Vec<_> =
            wanted.iter().filter_map(|wanted| locate_in_loads(wanted.range, &loads)).collect();
        let addresses: Vec<_> = located.iter().map(|(_, _, addresses)| addresses.clone()).collect();
        let (table, companions) =
            read_unwind_table(&file, self.debug_file, can_build_parts.then_some(&*addresses), &budget)?;
        let table = resolve_conflicts(&file, table, trust)?;
        if let Some(refused_bytes) = budget.refused_bytes() {
            // A table built from less of the file than the first time would differ from the first one.
            return Err(BuildError::OverBudget(refused_bytes));
        }
        let repack_part =
            |part: &TextRange, load| repack(&table, load, self.packing, part.file_offset..part.end());
        let segments = located.iter().map(|(part, load, _)| repack_part(part, load)).collect();
        Ok(BuiltTable {
            segments,
            debug_file: DebugFile::Searched(companions),
            ..BuiltTable::with_loads(loads)
        })
    }

    /// Builds segments, or only the requested functions in them, by reading only their own unwind information.
    fn build_segments<'data, R: ReadFile<'data>>(
        &self,
        outline: &Arc<FileOutline>,
        reader: R,
        wanted: &[SegmentRequest],
    ) -> BuiltTable {
        let segments = wanted.iter().filter_map(|SegmentRequest { range: part, functions }| {
            let (part, load, addresses) = locate_in_loads(*part, outline.loads())?;
            let table = match functions {
                None => outline.table_of_parts(reader, &[addresses]),
                Some(offsets) => {
                    let addresses: Vec<_> = offsets.iter().filter_map(|at| load.svma_of(*at)).collect();
                    outline.table_of_functions(reader, &addresses)
                }
            };
            Some(repack(&table, load, self.packing, part.file_offset..part.end()))
        });
        BuiltTable {
            segments: segments.collect(),
            outline: Some(Arc::clone(outline)),
            debug_file: self.debug_file.clone(),
            ..BuiltTable::with_loads(outline.loads().to_vec())
        }
    }

    /// Builds segments by reading their own unwind information, and all machine code that has none.
    fn build_segments_with_code<'data, R: ReadFile<'data>>(
        &self,
        mut sources: PartedSources<'_, 'data, R>,
        wanted: &[SegmentRequest],
    ) -> BuiltTable {
        let loads = sources.outline().loads().to_vec();
        let segments = wanted.iter().filter_map(|wanted| {
            let (part, load, addresses) = locate_in_loads(wanted.range, &loads)?;
            sources.read_code(std::slice::from_ref(&addresses));
            let table = sources.table_of(&[addresses]);
            Some(repack(&table, load, self.packing, part.file_offset..part.end()))
        });
        let segments = segments.collect();
        BuiltTable {
            segments,
            outline: self.outline.cloned(),
            debug_file: self.debug_file.clone(),
            ..BuiltTable::with_loads(loads)
        }
    }

    /// The outline for building parts of a file without the rest; `None` if the result would differ.
    fn part_outline<'data, R: ReadFile<'data>>(
        &self,
        file: &object::File<'data, R>,
    ) -> Result<Option<FileOutline>, BuildError> {
        if !has_only_indexed_sources(file) || self.debug_file.find(file).debug.is_some() {
            return Ok(None);
        }
        Ok(FileOutline::from_file::<_, &BoundedReader<'_, File>>(file, &[])?)
    }
}

/// A file whose table walks are to use: one of this machine's architecture.
fn parse_elf<'data, R: ReadFile<'data>>(
    file: R,
    budget: &ReadBudget,
) -> Result<object::File<'data, R>, BuildError> {
    let file = object::File::parse(file).map_err(|error| match budget.refused_bytes() {
        None => error.into(),
        Some(refused_bytes) => BuildError::OverBudget(refused_bytes),
    })?;
    check_native(&file)?;
    Ok(file)
}

/// A file's table, and its code ranges.
pub struct WholeTable {
    /// The file's loadable segments.
    pub loads: Vec<LoadSegment>,
    /// The ranges of instructions.
    pub code: Vec<Range<Svma>>,
    /// The rows.
    pub table: UnwindTable,
}

/// Reads a file's table, and uses its debug file if there is one.
pub fn read_table(file: impl Read + Seek, debug_file: &DebugFile) -> Result<WholeTable, BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    let (table, _) = read_unwind_table(&file, debug_file, None, &ReadBudget::unlimited())?;
    Ok(WholeTable { loads: load_segments(&file), code: code_ranges(&file)?, table })
}

/// Reads the rows of parts of a file's code, as [`read_table`] does of all.
pub fn read_partial_table(
    file: impl Read + Seek,
    debug_file: &DebugFile,
    parts: &[Range<Svma>],
) -> Result<UnwindTable, BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    read_unwind_table(&file, debug_file, Some(parts), &ReadBudget::unlimited()).map(|(table, _)| table)
}

/// The table of a file or of parts of it, and its companions, which may contribute rows.
fn read_unwind_table<'data, R: ReadFile<'data>>(
    file: &object::File<'data, R>,
    debug_file: &DebugFile,
    parts: Option<&[Range<Svma>]>,
    budget: &ReadBudget,
) -> Result<(UnwindTable, Companions), BuildError> {
    let companions = debug_file.find(file);
    let debug_reader = companions.debug.as_deref().map(|found| BoundedReader::new(&*found.file, budget));
    let debug = debug_reader.as_ref().and_then(|reader| object::File::parse(reader).ok());
    let mut sources = UnwindSources::new(file, debug.as_slice())?;
    let table = match parts {
        None => sources.table(),
        Some(parts) => sources.table_of(parts),
    };
    drop(debug);
    Ok((table, companions))
}

/// Reads a file's table and checks it against the file's code.
pub fn read_validation(file: impl Read + Seek, debug_file: &DebugFile) -> Result<Validation, BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    let (table, _) = read_unwind_table(&file, debug_file, None, &ReadBudget::unlimited())?;
    Ok(validate(&file, &table)?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

    use sidewinder_unwind::RowSource;

    use super::*;

    /// This program has more code than is built as a whole.
    #[test]
    fn a_large_file_is_built_as_far_as_there_is_room_for_tables() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let content = OpenedFile::from_memory(program.into());
        let build = |room_bytes| {
            let debug_file = &DebugFile::Searched(Companions::default());
            let source = BuildSource {
                content: &content,
                packing: Packing::Auto,
                debug_file,
                outline: None,
                // Far less than the size of its unwind information.
                budget_bytes: 1 << 20,
                room: &TableRoom::new(room_bytes),
                saved: None,
            };
            let (mut segments, (_sender, wanted)) = (0, mpsc::channel());
            let deliver = |built: BuiltTable| segments += built.segments.len();
            let last = source.build(TrustedSide::Rows, &wanted, deliver).unwrap();
            assert!(last.outline.is_some());
            let unbuilt_bytes: u64 = last.unbuilt.iter().map(|part| part.text_bytes).sum();
            assert_eq!(unbuilt_bytes > WHOLE_CODE_BYTES_MAX, room_bytes == 0);
            (segments + last.segments.len(), last.unbuilt.len())
        };
        let (segments, unbuilt) = build(u64::MAX);
        assert!(segments > 4 && unbuilt == 0, "{segments}, {unbuilt}");
        let (segments, unbuilt) = build(0);
        assert!(segments == 0 && unbuilt > 4, "{segments}, {unbuilt}");
    }
    #[test]
    fn the_functions_of_a_debug_file_are_in_the_table() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("p.c"), "int main(void) { return 0; }").unwrap();
        let run = |command: &str, arguments: &[&str]| {
            Command::new(command).args(arguments).status().is_ok_and(|status| status.success())
        };
        let link = format!("--add-gnu-debuglink={}", path("p.debug"));
        let is_built = run("gcc", &["-g", "-fno-asynchronous-unwind-tables", "-o", &path("p"), &path("p.c")])
            && run("objcopy", &["--only-keep-debug", &path("p"), &path("p.debug")])
            && run("objcopy", &["--strip-all", &link, &path("p")]);
        if !is_built {
            eprintln!("SKIPPED: gcc and objcopy don't make a program and its debug file here");
            return;
        }
        let debug_file = DebugFile::from_own_root(path("p").as_bytes(), None);
        let whole = read_table(File::open(path("p")).unwrap(), &debug_file).unwrap();
        let functions = &whole.table.summary().functions;
        assert!(functions.get(&RowSource::DebugFile).is_some_and(|functions| *functions > 0));
    }
}
