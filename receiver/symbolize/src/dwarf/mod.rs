//! Lines and inlined calls from DWARF 2 to 5: in the binary, in its debug file, or split off.
//!
//! Source: DWARF 5, "Debugging Information Format". `gimli` reads the forms; this module does the look-ups, in memory
//! that does not grow with the file: `sections` finds the sections, `section` reads one of them, `pages` holds a few
//! pages of them, `compressed` decompresses them, `units` finds the units that cover an address, `functions` and
//! `lines` read a unit. A unit is scanned once, and its [`UnitTable`] kept while there is room.

mod compressed;
mod functions;
mod lines;
mod pages;
mod ranges;
mod section;
mod sections;
mod units;

use std::collections::BTreeMap;
use std::sync::Arc;

use gimli::{AttributeValue, Dwarf, Result, Unit};
use sidewinder_address::Svma;

pub(crate) use functions::EntryName;
pub(crate) use pages::PageCache;
pub(crate) use sections::SectionsError;

use crate::elf::ElfLayout;
use crate::files::BinaryFiles;
use crate::image::Image;
use functions::{FunctionContext, FunctionRange, InlineChain, function_at, functions_of};
use lines::{LineTableRow, path, row_at, rows_at, rows_of};
use ranges::CodeRangeReader;
use section::SectionReader;
use sections::DwarfSections;
use units::{UnitIndex, whole, without_lines};

/// Bytes that may be read to index the units. The largest programs have 100 MiB of root entries and abbreviations.
const INDEX_WORK_BYTES: u64 = 256 << 20;
/// Bytes that may be read for one address; the largest units, of programs with whole-program optimisation, have some
/// tens of MiB.
const LOOKUP_WORK_BYTES: u64 = 96 << 20;

/// A function at an address, with its line and their names.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct SourceFrame {
    pub(crate) name: Option<EntryName>,
    pub(crate) path: Option<Arc<str>>,
    /// Counted from 1, or 0 if unknown; so is the column.
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// The debug information of one binary.
#[derive(Debug)]
pub(crate) struct DebugInfo {
    sections: DwarfSections,
    /// The file that its debug file shares with others.
    shared: Option<(DwarfSections, UnitIndex)>,
    /// Its split units, if they are in one package file.
    package: Option<DwarfSections>,
    units: UnitIndex,
    ranges: CodeRangeReader,
}

/// The tables of one unit, which take time to read.
#[derive(Debug, Default)]
pub(crate) struct UnitTable {
    functions: Box<[FunctionRange]>,
    /// `None` if there are too many to keep.
    rows: Option<Box<[LineTableRow]>>,
    /// The file that holds the unit's split entries.
    split: Option<DwarfSections>,
    /// Functions left out for lack of memory.
    pub(crate) cut: u64,
}

impl UnitTable {
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.functions)
            + self.rows.as_ref().map_or(0, |rows| size_of_val(&**rows))
            + self.split.as_ref().map_or(0, DwarfSections::heap_bytes)
    }
}

/// A store of unit tables, keyed by the indices that [`DebugInfo`] gives units.
pub(crate) trait UnitTables {
    /// Calls `look` with the table of a unit, which `read` makes if it isn't held, with the most bytes it may take.
    fn with<T>(
        &mut self,
        unit: u32,
        read: impl FnOnce(usize) -> UnitTable,
        look: impl FnOnce(&UnitTable) -> T,
    ) -> T;
}

/// Which debug information is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DebugDetail {
    pub(crate) lines: bool,
    pub(crate) inlines: bool,
}

impl DebugDetail {
    /// A line and a column, or neither: code without a source line has line 0, and its column, if any, is meaningless
    /// (DWARF 5, section 6.2.2).
    fn position(self, line: u32, column: u32) -> (u32, u32) {
        if self.lines && line != 0 { (line, column) } else { (0, 0) }
    }
}

impl DebugInfo {
    /// Indexes the units of a file. `base` is the first address of the binary's code.
    pub(crate) fn read(
        image: &Image,
        layout: &ElfLayout,
        base: u64,
        files: &impl BinaryFiles,
        pages: &PageCache,
        room_bytes: usize,
    ) -> std::result::Result<Self, SectionsError> {
        let sections = DwarfSections::find(image, layout, false, pages, room_bytes)?;
        let ranges = CodeRangeReader { base };
        let room_bytes = room_bytes.saturating_sub(sections.heap_bytes());
        pages.set_work_budget(INDEX_WORK_BYTES);
        let units = {
            let open = sections.open(pages);
            UnitIndex::read(&open.dwarf(), &ranges, room_bytes / 16, pages)
        };
        if units.is_empty() {
            return Err(SectionsError::Absent);
        }
        let room_bytes = room_bytes.saturating_sub(units.heap_bytes());
        let shared = files.alternate().and_then(|image| {
            let layout = ElfLayout::read(&image).ok()?;
            let sections = DwarfSections::find(&image, &layout, false, pages, room_bytes).ok()?;
            let units = UnitIndex::starts_only(&sections.open(pages).dwarf());
            Some((sections, units))
        });
        let package = files.package().and_then(|image| {
            let layout = ElfLayout::read(&image).ok()?;
            DwarfSections::find(&image, &layout, true, pages, room_bytes).ok()
        });
        Ok(Self { sections, shared, package, units, ranges })
    }

    /// Memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let shared =
            self.shared.as_ref().map_or(0, |(sections, units)| sections.heap_bytes() + units.heap_bytes());
        let package = self.package.as_ref().map_or(0, DwarfSections::heap_bytes);
        self.sections.heap_bytes() + self.units.heap_bytes() + shared + package
    }

    /// Units and ranges left out for lack of memory.
    pub(crate) fn cut(&self) -> u64 {
        self.units.cut
    }

    /// Files that are held open.
    pub(crate) fn open_files(&self) -> usize {
        1 + usize::from(self.shared.is_some()) + usize::from(self.package.is_some())
    }

    /// The functions at addresses, which are in order, innermost first; none where the debug information doesn't cover one, or the
    /// work budget is exhausted before it is found. Ends before the first address for which there is no time.
    pub(crate) fn frames(
        &self,
        svmas: &[Svma],
        wanted: DebugDetail,
        files: &impl BinaryFiles,
        pages: &PageCache,
        tables: &mut impl UnitTables,
        mut has_time: impl FnMut() -> bool,
    ) -> Vec<Vec<SourceFrame>> {
        let open = self.sections.open(pages);
        let shared = self.shared.as_ref().map(|(sections, _)| sections.open(pages));
        let mut dwarf = open.dwarf();
        if let Some(shared) = &shared {
            dwarf.set_sup(shared.dwarf());
        }
        let places: Vec<Option<u32>> = svmas.iter().map(|svma| self.ranges.place(svma.0)).collect();
        let mut lookup = DebugLookup { debug: self, pages, dwarf: &dwarf, wanted, unit: None };
        let mut found = Vec::with_capacity(svmas.len());
        for (number, place) in places.iter().enumerate() {
            if !has_time() {
                break;
            }
            pages.set_work_budget(LOOKUP_WORK_BYTES);
            let next = places.get(number + 1..).unwrap_or_default();
            let frames = place.and_then(|place| {
                self.units.at(place).find_map(|unit| lookup.in_unit(unit, place, next, files, tables))
            });
            found.push(frames.unwrap_or_default());
        }
        found
    }
}

/// The look-up of some addresses, one after the other.
struct DebugLookup<'l, 'a> {
    debug: &'a DebugInfo,
    pages: &'a PageCache,
    dwarf: &'l Dwarf<SectionReader<'a>>,
    wanted: DebugDetail,
    /// The unit of the last address. The next address is usually in it too.
    unit: Option<OpenUnit<'a>>,
}

/// A unit whose header has been read.
struct OpenUnit<'a> {
    number: u32,
    unit: Unit<SectionReader<'a>>,
    /// The rows at some places, found in one pass. Used where the unit has too many rows to keep.
    rows: BTreeMap<u32, Option<LineTableRow>>,
}

impl OpenUnit<'_> {
    /// The row at a place. One pass over all rows finds the rows at the following places too.
    fn row_at(&mut self, ranges: &CodeRangeReader, place: u32, next: &[Option<u32>]) -> Option<LineTableRow> {
        if !self.rows.contains_key(&place) {
            let mut places = vec![place];
            places.extend(next.iter().flatten().filter(|next| **next > place));
            places.dedup();
            let found = rows_at(&self.unit, ranges, &places).unwrap_or_default();
            self.rows = places.into_iter().zip(found.into_iter().chain(std::iter::repeat(None))).collect();
        }
        self.rows.get(&place).copied().flatten()
    }
}

/// The entries of a unit: its own, or its split ones.
struct UnitEntries<'e, 'a> {
    dwarf: &'e Dwarf<SectionReader<'a>>,
    unit: &'e Unit<SectionReader<'a>>,
    units: &'e UnitIndex,
}

impl<'a> DebugLookup<'_, 'a> {
    /// The functions in one unit; `None` if it doesn't cover the place. `next`: places that are looked up after it.
    fn in_unit(
        &mut self,
        number: u32,
        place: u32,
        next: &[Option<u32>],
        files: &impl BinaryFiles,
        tables: &mut impl UnitTables,
    ) -> Option<Vec<SourceFrame>> {
        let mut open = match self.unit.take().filter(|open| open.number == number) {
            Some(open) => open,
            None => {
                let unit = whole(self.dwarf, self.debug.units.header(self.dwarf, number).ok()?).ok()?;
                OpenUnit { number, unit, rows: BTreeMap::new() }
            }
        };
        let read = |room_bytes| self.table(&open.unit, files, room_bytes);
        let (row, chain) = tables.with(number, read, |table| {
            let chain = function_at(&table.functions, place)
                .and_then(|function| {
                    self.with_entries(
                        &open.unit,
                        table.split.as_ref(),
                        |UnitEntries { dwarf, unit, units }| {
                            let shared_units = self.debug.shared.as_ref().map(|(_, units)| units);
                            let context = FunctionContext { dwarf, unit, units, shared_units };
                            context.chain(function, &self.debug.ranges, place, self.wanted.inlines)
                        },
                    )
                    .ok()
                })
                .unwrap_or_default();
            (table.rows.as_ref().map(|rows| row_at(rows, place)), chain)
        });
        let row = row.unwrap_or_else(|| open.row_at(&self.debug.ranges, place, next));
        let frames = self.frames(&open.unit, row, chain);
        self.unit = Some(open);
        frames
    }

    /// Scans a unit. For a malformed one, the table has what was found up to the error.
    fn table(
        &self,
        unit: &Unit<SectionReader<'a>>,
        files: &impl BinaryFiles,
        room_bytes: usize,
    ) -> UnitTable {
        let split = self.split(unit, files, room_bytes / 2);
        let room_bytes = room_bytes.saturating_sub(split.as_ref().map_or(0, DwarfSections::heap_bytes));
        let rows = match self.wanted.lines {
            true => rows_of(unit, &self.debug.ranges, room_bytes / 2 / size_of::<LineTableRow>())
                .unwrap_or(Some(Box::default())),
            false => Some(Box::default()),
        };
        let functions_max = room_bytes / 2 / size_of::<FunctionRange>();
        let functions = self.with_entries(unit, split.as_ref(), |entries| {
            functions_of(entries.dwarf, entries.unit, &self.debug.ranges, functions_max)
        });
        let (functions, cut) = functions.unwrap_or_default();
        UnitTable { functions, rows, split, cut }
    }

    /// Opens the file that holds a unit's split entries.
    fn split(
        &self,
        unit: &Unit<SectionReader<'a>>,
        files: &impl BinaryFiles,
        room_bytes: usize,
    ) -> Option<DwarfSections> {
        unit.dwo_id?;
        if self.debug.package.is_some() {
            return None;
        }
        let text = |value: AttributeValue<SectionReader<'a>>| {
            let text = self.dwarf.attr_string(unit, value).ok()?;
            gimli::Reader::to_slice(&text).ok().map(std::borrow::Cow::into_owned)
        };
        let mut path = text(unit.dwo_name().ok()??)?;
        let directory = unit.comp_dir.as_ref().and_then(|directory| gimli::Reader::to_slice(directory).ok());
        if let Some(directory) = directory.filter(|_| !path.starts_with(b"/")) {
            path = [&*directory, b"/", &path].concat();
        }
        let image = files.split_unit(&path)?;
        let layout = ElfLayout::read(&image).ok()?;
        DwarfSections::find(&image, &layout, true, self.pages, room_bytes).ok()
    }

    /// Calls `look` with the entries of a unit, wherever they are.
    fn with_entries<T>(
        &self,
        unit: &Unit<SectionReader<'a>>,
        split: Option<&DwarfSections>,
        look: impl FnOnce(UnitEntries<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let own = UnitEntries { dwarf: self.dwarf, unit, units: &self.debug.units };
        let Some((id, sections)) = unit.dwo_id.zip(self.debug.package.as_ref().or(split)) else {
            return look(own);
        };
        let open = sections.open(self.pages);
        let mut dwarf = match self.debug.package.is_some() {
            false => open.dwarf(),
            true => match open.package()?.find_cu(id, self.dwarf)? {
                Some(dwarf) => dwarf,
                None => return look(own),
            },
        };
        dwarf.make_dwo(self.dwarf);
        let units = UnitIndex::starts_only(&dwarf);
        for header in units.headers(&dwarf) {
            let mut split_unit = without_lines(&dwarf, header)?;
            // A file made from other code has another ID.
            if split_unit.dwo_id == Some(id) {
                split_unit.copy_relocated_attributes(unit);
                return look(UnitEntries { dwarf: &dwarf, unit: &split_unit, units: &units });
            }
        }
        look(own)
    }

    /// Combines the entries and the line table.
    fn frames(
        &self,
        unit: &Unit<SectionReader<'a>>,
        row: Option<LineTableRow>,
        chain: InlineChain,
    ) -> Option<Vec<SourceFrame>> {
        if row.is_none() && chain.function.is_none() {
            return None;
        }
        let path = |file| self.wanted.lines.then(|| path(self.dwarf, unit, file)).flatten();
        let mut frames = Vec::with_capacity(chain.inlined.len() + 1);
        // Each frame's position is the call of the next inner one; the innermost has the position of its row.
        let mut name = chain.function;
        for (inlined, call) in chain.inlined {
            let (line, column) = self.wanted.position(call.line, call.column);
            frames.push(SourceFrame { name, path: path(call.file), line, column });
            name = inlined;
        }
        let (line, column) = row.map_or((0, 0), |row| self.wanted.position(row.line, row.column.into()));
        frames.push(SourceFrame { name, path: row.and_then(|row| path(row.file())), line, column });
        frames.reverse();
        Some(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_without_a_line_is_none() {
        let wanted = DebugDetail { lines: true, inlines: true };
        assert_eq!([wanted.position(7, 5), wanted.position(0, 5)], [(7, 5), (0, 0)]);
        assert_eq!(DebugDetail { lines: false, ..wanted }.position(7, 5), (0, 0));
    }
}
