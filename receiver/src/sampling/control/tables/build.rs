//! Building the unwind tables of files: whole, in parts, and parts again.
//!
//! Runs on the threads of the [table builder](super::table_builder). Input: a file, its debug file, and where walks have met the
//! file. Output: packed segments of its table.

use std::io::{Read, Seek};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use object::ReadCache;
use sidewinder_address::{FileOffset, LoadSegment, Svma};
use sidewinder_bpf::{PackedSegment, Packing, pack, pack_part, page_range, repack};
use sidewinder_process::OpenedFile;
use sidewinder_unwind::validate::{TrustedSide, Validation, resolve_conflicts, validate};
use sidewinder_unwind::{
    FileOutline, ReadFile, UnwindSources, UnwindTable, code_ranges, has_only_eh_frame, load_segments,
};
use thiserror::Error;

use super::debug_files::{Companions, DebugFile};
use super::reader::{BoundedReader, ReadBudget};

/// Why a file has no table.
#[derive(Debug, Error)]
pub(crate) enum BuildError {
    #[error("not a readable ELF file")]
    Elf(#[from] object::Error),
    #[error("no unwind table")]
    Unwind(#[from] sidewinder_unwind::UnwindTableError),
    #[error("no room for {0} bytes of the file beside everything else: raise memory_limit_mib")]
    OverBudget(u64),
    #[error("building the unwind table has panicked: please report it, with the file")]
    Panicked,
}

/// Some pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TextRange {
    pub(crate) file_offset: FileOffset,
    pub(crate) text_bytes: u64,
}

impl From<&PackedSegment> for TextRange {
    fn from(segment: &PackedSegment) -> Self {
        Self { file_offset: segment.file_offset, text_bytes: segment.text_bytes }
    }
}

impl TextRange {
    pub(crate) fn end(self) -> FileOffset {
        FileOffset(self.file_offset.0.saturating_add(self.text_bytes))
    }

    pub(crate) fn contains(self, at: FileOffset) -> bool {
        self.file_offset <= at && at < self.end()
    }

    pub(crate) fn overlaps(self, other: &Range<FileOffset>) -> bool {
        self.file_offset < other.end && other.start < self.end()
    }

    /// The stated addresses of what a load segment has of the part.
    fn within(self, load: &LoadSegment) -> Option<Range<Svma>> {
        let load_end = FileOffset(load.file_offset.0.saturating_add(load.size));
        let (first, end) = (self.file_offset.max(load.file_offset), self.end().min(load_end));
        let start = load.svma_of(first)?;
        Some(start..start.checked_add(end.checked_offset_from(first)?)?)
    }
}

/// A segment that is to be built.
#[derive(Clone, Debug)]
pub(crate) struct SegmentRequest {
    pub(crate) range: TextRange,
    /// Places in the functions that it is to cover; `None`: all.
    pub(crate) functions: Option<Vec<FileOffset>>,
}

/// The packed table of a file, or some of its segments.
#[derive(Debug)]
pub(crate) struct BuiltTable {
    pub(crate) loads: Vec<LoadSegment>,
    pub(crate) segments: Vec<PackedSegment>,
    /// Parts of a large file if memory is limited: only the functions that walks meet are built.
    pub(crate) unbuilt: Vec<TextRange>,
    /// Makes building segments again faster.
    pub(crate) outline: Option<Arc<FileOutline>>,
    /// Where rows come from machine code alone, which is analysed as a whole.
    pub(crate) from_machine_code: Vec<Range<FileOffset>>,
    pub(crate) debug_file: DebugFile,
    /// The size of the first piece of the file that there was no room to read, if any: the table lacks its rows and later ones.
    pub(crate) over_budget_bytes: Option<u64>,
}

/// The share of the memory for building that goes to what is read, as one part of this many. The rest is for rows.
const READ_BUDGET_SHARE: u64 = 2;

/// Files with more code are built in parts, lest walks wait for all of it.
const WHOLE_CODE_BYTES_MAX: u64 = 8 << 20;
/// The size of such a part: some milliseconds' work.
const PART_BYTES: u64 = 1 << 20;
/// Parts that no walk has missed are delivered together with what else is built in this time: each delivery publishes every
/// process that maps the file again.
const PARTS_PER_DELIVERY: Duration = Duration::from_millis(50);

/// The size of the parts of a file that is not built as a whole. Large parts save segment numbers; but each further function
/// of a part has all its known functions built again.
const UNBUILT_PART_BYTES_MIN: u64 = 64 << 10;
const UNBUILT_PARTS_MAX: u64 = 256;

/// A file whose table is to be built.
#[derive(Debug)]
pub(crate) struct BuildSource<'a> {
    pub(crate) content: &'a OpenedFile,
    pub(crate) packing: Packing,
    pub(crate) debug_file: &'a DebugFile,
    /// The outline of an earlier build.
    pub(crate) outline: Option<&'a Arc<FileOutline>>,
    /// Memory that building may take.
    pub(crate) budget_bytes: u64,
}

impl BuildSource<'_> {
    /// Reads a file's table and packs it. All but the last of it goes to `deliver` as soon as it is built, and what walks miss
    /// comes first. If memory is limited, a large file is divided instead, and nothing of it is built yet.
    pub(crate) fn build(
        &self,
        trust: TrustedSide,
        wanted: &Receiver<FileOffset>,
        deliver: impl FnMut(BuiltTable),
    ) -> Result<BuiltTable, BuildError> {
        // No file has more code than bytes: smaller ones need not be looked at twice.
        if self.budget_bytes != u64::MAX
            && self.content.size_bytes() > WHOLE_CODE_BYTES_MAX
            && trust == TrustedSide::Rows
            && let Ok(Some(divided)) = self.divide()
        {
            return Ok(divided);
        }
        self.build_whole(trust, wanted, deliver)
    }

    /// Divides a large file into parts that are built one by one; `None`: the file is not large, or has no index by which a
    /// part can be read alone.
    fn divide(&self) -> Result<Option<BuiltTable>, BuildError> {
        let allowance = ReadBudget::new(self.budget_bytes / READ_BUDGET_SHARE);
        let reader = BoundedReader::new(self.content, &allowance);
        let file = parse_elf(&reader, &allowance)?;
        let loads = load_segments(&file);
        let code: Vec<_> =
            code_ranges(&file)?.iter().filter_map(|code| to_file_range(&loads, code)).collect();
        let code_bytes: u64 = code.iter().map(|code| code.end.0 - code.start.0).sum();
        if code_bytes <= WHOLE_CODE_BYTES_MAX {
            return Ok(None);
        }
        let Some(outline) = FileOutline::from_file(&file)? else { return Ok(None) };
        let part_bytes = (code_bytes / UNBUILT_PARTS_MAX).max(UNBUILT_PART_BYTES_MIN);
        let part_bytes = part_bytes.next_multiple_of(UNBUILT_PART_BYTES_MIN);
        let unbuilt = executable_segments(&loads)
            .flat_map(|load| split(page_range(load), part_bytes))
            .filter(|part| code.iter().any(|code| part.overlaps(code)))
            .collect();
        Ok(Some(BuiltTable {
            unbuilt,
            outline: Some(Arc::new(outline)),
            debug_file: DebugFile::Searched(self.debug_file.find(&file)),
            ..BuiltTable::with_loads(loads)
        }))
    }

    fn build_whole(
        &self,
        trust: TrustedSide,
        wanted: &Receiver<FileOffset>,
        deliver: impl FnMut(BuiltTable),
    ) -> Result<BuiltTable, BuildError> {
        let allowance = ReadBudget::new(self.budget_bytes / READ_BUDGET_SHARE);
        // What was read is freed before all rows are packed, which takes memory too.
        let (loads, table, companions) = {
            let reader = BoundedReader::new(self.content, &allowance);
            let file = parse_elf(&reader, &allowance)?;
            let loads = load_segments(&file);
            let companions = self.debug_file.find(&file);
            let debug_reader =
                companions.debug.as_deref().map(|found| BoundedReader::new(&*found.file, &allowance));
            let debug = debug_reader.as_ref().and_then(|reader| object::File::parse(reader).ok());
            let mut sources = UnwindSources::new(&file, debug.as_slice())?;
            let code_bytes: u64 = executable_segments(&loads).map(|load| load.size).sum();
            // The code is checked as a whole, and other sources are gone through as a whole.
            let has_parts = trust == TrustedSide::Rows && sources.has_only_eh_frame();
            if code_bytes > WHOLE_CODE_BYTES_MAX && has_parts {
                let mut parts = SegmentedBuild {
                    sources,
                    loads,
                    packing: self.packing,
                    companions: companions.clone(),
                    from_machine_code: Vec::new(),
                    segments: Vec::new(),
                };
                let built = parts.build(wanted, deliver);
                return Ok(BuiltTable { over_budget_bytes: allowance.refused_bytes(), ..built });
            }
            let table = sources.table();
            (loads, resolve_conflicts(&file, table, trust)?, companions)
        };
        let segments =
            executable_segments(&loads).flat_map(|load| pack(&table, load, self.packing)).collect();
        let by_machine_code =
            table.by_machine_code().filter_map(|code| to_file_range(&loads, &code)).collect();
        Ok(BuiltTable {
            segments,
            from_machine_code: by_machine_code,
            debug_file: DebugFile::Searched(companions),
            over_budget_bytes: allowance.refused_bytes(),
            ..BuiltTable::with_loads(loads)
        })
    }

    /// Reads and packs some segments of a file's table, most of them again. Unless they stand alone, the rest of the file is
    /// read too.
    pub(crate) fn rebuild(
        &self,
        wanted: &[SegmentRequest],
        stand_alone: bool,
        trust: TrustedSide,
    ) -> Result<BuiltTable, BuildError> {
        let allowance = ReadBudget::new(self.budget_bytes / READ_BUDGET_SHARE);
        let reader = BoundedReader::new(self.content, &allowance);
        // The code is checked as a whole.
        let parts_do = stand_alone && trust == TrustedSide::Rows;
        if let (Some(outline), true) = (self.outline, parts_do) {
            return Ok(self.build_segments(outline, &reader, wanted));
        }
        let file = parse_elf(&reader, &allowance)?;
        if parts_do && let Some(outline) = self.part_outline(&file)? {
            return Ok(self.build_segments(&Arc::new(outline), &reader, wanted));
        }
        let loads = load_segments(&file);
        let places: Vec<_> =
            wanted.iter().filter_map(|wanted| locate_in_loads(wanted.range, &loads)).collect();
        let addresses: Vec<_> = places.iter().map(|(_, _, addresses)| addresses.clone()).collect();
        let (table, companions) =
            read_unwind_table(&file, self.debug_file, parts_do.then_some(&*addresses), &allowance)?;
        let table = resolve_conflicts(&file, table, trust)?;
        if let Some(refused_bytes) = allowance.refused_bytes() {
            // A table made of less than the first one would differ from it.
            return Err(BuildError::OverBudget(refused_bytes));
        }
        let again = |part: &TextRange, load| repack(&table, load, self.packing, part.file_offset..part.end());
        let segments = places.iter().map(|(part, load, _)| again(part, load)).collect();
        Ok(BuiltTable {
            segments,
            debug_file: DebugFile::Searched(companions),
            ..BuiltTable::with_loads(loads)
        })
    }

    /// Builds segments, or the wanted functions of them, from what describes them alone.
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
                Some(places) => {
                    let places: Vec<_> = places.iter().filter_map(|at| load.svma_of(*at)).collect();
                    outline.table_of_functions(reader, &places)
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

    /// The outline by which parts of a file are built without the rest, if the result is the same.
    fn part_outline<'data, R: ReadFile<'data>>(
        &self,
        file: &object::File<'data, R>,
    ) -> Result<Option<FileOutline>, BuildError> {
        if !has_only_eh_frame(file) || self.debug_file.find(file).debug.is_some() {
            return Ok(None);
        }
        Ok(FileOutline::from_file(file)?)
    }
}

impl BuiltTable {
    fn with_loads(loads: Vec<LoadSegment>) -> Self {
        Self {
            loads,
            segments: Vec::new(),
            unbuilt: Vec::new(),
            outline: None,
            from_machine_code: Vec::new(),
            debug_file: DebugFile::Searched(Companions::default()),
            over_budget_bytes: None,
        }
    }
}

/// A large file that is built in parts.
struct SegmentedBuild<'file, 'data, 'debug, R: ReadFile<'data>, D: ReadFile<'debug>> {
    sources: UnwindSources<'file, 'data, 'debug, R, D>,
    loads: Vec<LoadSegment>,
    packing: Packing,
    companions: Companions,
    from_machine_code: Vec<Range<FileOffset>>,
    /// Segments that are not delivered yet.
    segments: Vec<PackedSegment>,
}

impl<'data, 'debug, R: ReadFile<'data>, D: ReadFile<'debug>> SegmentedBuild<'_, 'data, 'debug, R, D> {
    fn build(&mut self, wanted: &Receiver<FileOffset>, mut deliver: impl FnMut(BuiltTable)) -> BuiltTable {
        let code = self.sources.read_code();
        self.from_machine_code = code.iter().filter_map(|code| to_file_range(&self.loads, code)).collect();
        let mut left: Vec<TextRange> =
            executable_segments(&self.loads).flat_map(|load| split(page_range(load), PART_BYTES)).collect();
        let mut delivered = Instant::now();
        while !left.is_empty() {
            let met = wanted.try_iter().find_map(|at| left.iter().position(|part| part.contains(at)));
            self.pack(left.remove(met.unwrap_or(0)));
            if met.is_some() || delivered.elapsed() >= PARTS_PER_DELIVERY {
                deliver(self.take_built());
                delivered = Instant::now();
            }
        }
        self.take_built()
    }

    fn pack(&mut self, part: TextRange) {
        if let Some((part, load, addresses)) = locate_in_loads(part, &self.loads) {
            let table = self.sources.table_of(&[addresses]);
            self.segments.extend(pack_part(&table, load, self.packing, part.file_offset..part.end()));
        }
    }

    fn take_built(&mut self) -> BuiltTable {
        BuiltTable {
            segments: std::mem::take(&mut self.segments),
            from_machine_code: self.from_machine_code.clone(),
            debug_file: DebugFile::Searched(self.companions.clone()),
            ..BuiltTable::with_loads(self.loads.clone())
        }
    }
}

fn executable_segments(loads: &[LoadSegment]) -> impl Iterator<Item = &LoadSegment> {
    loads.iter().filter(|load| load.executable)
}

fn split(pages: Range<FileOffset>, part_bytes: u64) -> impl Iterator<Item = TextRange> {
    let starts = (pages.start.0..pages.end.0).step_by(part_bytes as usize);
    starts
        .map(move |start| covering_range(&(FileOffset(start)..pages.end.min(FileOffset(start + part_bytes)))))
}

fn covering_range(pages: &Range<FileOffset>) -> TextRange {
    TextRange { file_offset: pages.start, text_bytes: pages.end.0.saturating_sub(pages.start.0) }
}

/// A part, the load segment that it lies in, and its stated addresses.
fn locate_in_loads(part: TextRange, loads: &[LoadSegment]) -> Option<(TextRange, &LoadSegment, Range<Svma>)> {
    executable_segments(loads).find_map(|load| Some((part, load, part.within(load)?)))
}

fn to_file_range(loads: &[LoadSegment], code: &Range<Svma>) -> Option<Range<FileOffset>> {
    let start = loads.iter().find_map(|load| load.file_offset_of(code.start))?;
    Some(start..start.checked_add(code.end.checked_offset_from(code.start)?)?)
}

fn parse_elf<'data, R: ReadFile<'data>>(
    file: R,
    allowance: &ReadBudget,
) -> Result<object::File<'data, R>, BuildError> {
    object::File::parse(file).map_err(|error| match allowance.refused_bytes() {
        None => error.into(),
        Some(refused_bytes) => BuildError::OverBudget(refused_bytes),
    })
}

/// A file's table, and where the file has its code.
pub(crate) struct WholeTable {
    pub(crate) loads: Vec<LoadSegment>,
    /// The ranges of instructions.
    pub(crate) code: Vec<Range<Svma>>,
    pub(crate) table: UnwindTable,
}

/// Reads a file's table, with the help of its debug file if it has one.
pub(crate) fn read_table(file: impl Read + Seek, debug_file: &DebugFile) -> Result<WholeTable, BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    let (table, _) = read_unwind_table(&file, debug_file, None, &ReadBudget::new(u64::MAX))?;
    Ok(WholeTable { loads: load_segments(&file), code: code_ranges(&file)?, table })
}

/// The table of a file, or of parts of it, and its companions, from which rows may come too.
fn read_unwind_table<'data, R: ReadFile<'data>>(
    file: &object::File<'data, R>,
    debug_file: &DebugFile,
    parts: Option<&[Range<Svma>]>,
    allowance: &ReadBudget,
) -> Result<(UnwindTable, Companions), BuildError> {
    let companions = debug_file.find(file);
    let debug_reader = companions.debug.as_deref().map(|found| BoundedReader::new(&*found.file, allowance));
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
pub(crate) fn read_validation(
    file: impl Read + Seek,
    debug_file: &DebugFile,
) -> Result<Validation, BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    let (table, _) = read_unwind_table(&file, debug_file, None, &ReadBudget::new(u64::MAX))?;
    Ok(validate(&file, &table)?)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_part_that_a_walk_has_met_comes_first_and_none_is_left_out() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = object::File::parse(&*program).unwrap();
        let loads = load_segments(&file);
        let code = *executable_segments(&loads).max_by_key(|load| load.size).unwrap();
        let last = FileOffset(code.file_offset.0 + code.size - 1);
        let mut parts = SegmentedBuild {
            sources: UnwindSources::<_, &[u8]>::new(&file, &[]).unwrap(),
            loads,
            packing: Packing::Auto,
            companions: Companions::default(),
            from_machine_code: Vec::new(),
            segments: Vec::new(),
        };
        let (sender, wanted) = mpsc::channel();
        sender.send(last).unwrap();
        let mut delivered = Vec::new();
        let last_of_all = parts.build(&wanted, |built| delivered.push(built));
        assert!(delivered[0].segments.iter().any(|segment| TextRange::from(segment).contains(last)));
        delivered.push(last_of_all);
        let segments = delivered.iter().flat_map(|built| &built.segments);
        let mut parts: Vec<TextRange> = segments.map(TextRange::from).collect();
        parts.sort_unstable_by_key(|part| part.file_offset);
        assert!(parts.is_sorted_by(|one, next| one.end() == next.file_offset));
        let pages = page_range(&code);
        assert_eq!(parts.iter().map(|part| part.text_bytes).sum::<u64>(), pages.end.0 - pages.start.0);
        assert!(!delivered[0].from_machine_code.is_empty(), "a linkage table, or start files");
    }
}
