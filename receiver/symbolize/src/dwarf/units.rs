//! Finds the units of a file that cover an address.

use gimli::{
    AttributeValue, DebugAddrBase, DebugInfoOffset, DebugLocListsBase, DebugRngListsBase,
    DebugStrOffsetsBase, Dwarf, Error, Result, Unit, UnitHeader, UnitType,
};

use super::pages::PageCache;
use super::ranges::{CodeRange, CodeRangeReader};
use super::section::SectionReader;

/// The most units that are read; the largest programs have some tens of thousands.
const UNITS_LIMIT: usize = 1 << 17;
/// How many ranges that start before an address are checked for whether they contain it.
const LOOK_BACK: usize = 32;
/// The most bytes of abbreviations in one unit; the largest have some tens of KiB.
const ABBREVIATIONS_LIMIT_BYTES: usize = 256 << 10;
/// The most bytes in the header of a unit's line table: the name of a file takes about twenty.
const LINE_HEADER_LIMIT_BYTES: usize = 192 << 10;

pub(super) type LoadedUnit<'a> = Unit<SectionReader<'a>>;

/// The units of a file, and the code that each covers.
#[derive(Debug, Default)]
pub(super) struct UnitIndex {
    /// The start of each unit, in ascending order.
    starts: Box<[usize]>,
    ranges: Box<[UnitRange]>,
    /// Units and ranges left out by limits, or 1 for everything after the end of the work budget.
    pub(super) cut: u64,
}

#[derive(Clone, Copy, Debug)]
struct UnitRange {
    range: CodeRange,
    /// Index into the starts.
    unit: u32,
}

impl UnitIndex {
    /// Reads all units. At most `ranges_max` of their ranges are kept.
    pub(super) fn read(
        dwarf: &Dwarf<SectionReader<'_>>,
        ranges: &CodeRangeReader,
        ranges_max: usize,
        pages: &PageCache,
    ) -> Self {
        let mut found = Vec::new();
        let mut cut = 0;
        let mut index = Self::from_units(dwarf, |unit, header| {
            // A unit that can't be read is skipped; the next one may be readable.
            let _ = for_each_range_of(dwarf, header, ranges, |range| {
                if found.len() < ranges_max {
                    found.push(UnitRange { range, unit });
                } else {
                    cut += 1;
                }
            });
        });
        found.sort_unstable_by_key(|unit| (unit.range.start, unit.unit));
        found.shrink_to_fit();
        index.ranges = found.into_boxed_slice();
        index.cut += cut + u64::from(pages.is_exhausted());
        index
    }

    /// The starts of the units, without ranges.
    pub(super) fn starts_only(dwarf: &Dwarf<SectionReader<'_>>) -> Self {
        Self::from_units(dwarf, |_, _| {})
    }

    fn from_units<'a>(
        dwarf: &Dwarf<SectionReader<'a>>,
        mut visit: impl FnMut(u32, UnitHeader<SectionReader<'a>>),
    ) -> Self {
        let mut starts = Vec::new();
        let mut units = dwarf.units();
        let mut cut = 0;
        while let Ok(Some(header)) = units.next() {
            if starts.len() == UNITS_LIMIT {
                cut = 1;
                break;
            }
            let Some(start) = header.debug_info_offset() else { continue };
            visit(starts.len() as u32, header);
            starts.push(start.0);
        }
        Self { starts: starts.into_boxed_slice(), ranges: Box::default(), cut }
    }

    /// The units whose code contains an address, in descending order of the starts of their ranges.
    pub(super) fn at(&self, place: u32) -> impl Iterator<Item = u32> + '_ {
        let after = self.ranges.partition_point(|unit| unit.range.start <= place);
        let before = self.ranges.get(..after).unwrap_or_default().iter().rev().take(LOOK_BACK);
        before.filter(move |unit| unit.range.contains(place)).map(|unit| unit.unit)
    }

    /// The header of the unit with this index.
    pub(super) fn header<'a>(
        &self,
        dwarf: &Dwarf<SectionReader<'a>>,
        unit: u32,
    ) -> Result<UnitHeader<SectionReader<'a>>> {
        let start = self.starts.get(unit as usize).ok_or(Error::MissingUnitDie)?;
        dwarf.unit_header(DebugInfoOffset(*start))
    }

    /// The headers of all units that can be read.
    pub(super) fn headers<'a>(
        &self,
        dwarf: &Dwarf<SectionReader<'a>>,
    ) -> impl Iterator<Item = UnitHeader<SectionReader<'a>>> {
        self.starts.iter().filter_map(|start| dwarf.unit_header(DebugInfoOffset(*start)).ok())
    }

    /// The header of the unit that contains an offset of the section.
    pub(super) fn header_at<'a>(
        &self,
        dwarf: &Dwarf<SectionReader<'a>>,
        offset: DebugInfoOffset<usize>,
    ) -> Result<UnitHeader<SectionReader<'a>>> {
        let after = self.starts.partition_point(|start| *start <= offset.0);
        let start =
            after.checked_sub(1).and_then(|unit| self.starts.get(unit)).ok_or(Error::MissingUnitDie)?;
        dwarf.unit_header(DebugInfoOffset(*start))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.ranges)
    }
}

fn for_each_range_of<'a>(
    dwarf: &Dwarf<SectionReader<'a>>,
    header: UnitHeader<SectionReader<'a>>,
    ranges: &CodeRangeReader,
    visit: impl FnMut(CodeRange),
) -> Result<()> {
    if !matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_)) {
        return Ok(());
    }
    let unit = without_lines(dwarf, header)?;
    let mut entries = unit.entries_raw(None)?;
    let Some(root) = entries.read_abbreviation()? else { return Ok(()) };
    let mut attributes = Vec::new();
    entries.read_attributes(root.attributes(), &mut attributes)?;
    ranges.for_each_range(dwarf, &unit, &attributes, visit)
}

/// A unit with the header of its line table.
pub(super) fn whole<'a>(
    dwarf: &Dwarf<SectionReader<'a>>,
    header: UnitHeader<SectionReader<'a>>,
) -> Result<LoadedUnit<'a>> {
    let mut unit = without_lines(dwarf, header)?;
    let mut entries = unit.entries_raw(None)?;
    let Some(root) = entries.read_abbreviation()? else { return Ok(unit) };
    let (mut program, mut name, mut directory) = (None, None, None);
    for spec in root.attributes() {
        let attribute = entries.read_attribute(*spec)?;
        match (attribute.name(), attribute.value()) {
            (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) => program = Some(offset),
            (gimli::DW_AT_name, value) => name = Some(value),
            (gimli::DW_AT_comp_dir, value) => directory = Some(value),
            _ => {}
        }
    }
    unit.name = name.and_then(|name| dwarf.attr_string(&unit, name).ok());
    unit.comp_dir = directory.and_then(|directory| dwarf.attr_string(&unit, directory).ok());
    if let Some(offset) = program {
        let mut peek = gimli::Section::reader(&dwarf.debug_line).to_owned();
        gimli::Reader::skip(&mut peek, offset.0)?;
        let (_, format) = gimli::Reader::read_initial_length(&mut peek)?;
        let version = gimli::Reader::read_u16(&mut peek)?;
        if version >= 5 {
            gimli::Reader::skip(&mut peek, 2)?;
        }
        if gimli::Reader::read_word(&mut peek, format)? > LINE_HEADER_LIMIT_BYTES {
            return Err(Error::Io);
        }
        let (name, directory) = (unit.name, unit.comp_dir);
        unit.line_program =
            dwarf.debug_line.program(offset, unit.header.address_size(), directory, name).ok();
    }
    Ok(unit)
}

/// A unit without its line table, for reading its entries: `gimli` would also read the header of the line table.
pub(super) fn without_lines<'a>(
    dwarf: &Dwarf<SectionReader<'a>>,
    header: UnitHeader<SectionReader<'a>>,
) -> Result<LoadedUnit<'a>> {
    let (encoding, file_type) = (header.encoding(), dwarf.file_type);
    let dwo_id = match header.type_() {
        UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id),
        _ => None,
    };
    let mut abbreviations = *gimli::Section::reader(&dwarf.debug_abbrev);
    let (offset, bytes) = (header.debug_abbrev_offset().0, gimli::Reader::len(&abbreviations));
    gimli::Reader::truncate(&mut abbreviations, bytes.min(offset.saturating_add(ABBREVIATIONS_LIMIT_BYTES)))?;
    let abbreviations = header.abbreviations(&gimli::DebugAbbrev::from(abbreviations))?;
    let mut unit = Unit {
        header,
        abbreviations: abbreviations.into(),
        name: None,
        comp_dir: None,
        low_pc: 0,
        str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file_type),
        addr_base: DebugAddrBase(0),
        loclists_base: DebugLocListsBase::default_for_encoding_and_file(encoding, file_type),
        rnglists_base: DebugRngListsBase::default_for_encoding_and_file(encoding, file_type),
        line_program: None,
        dwo_id,
    };
    let mut low_pc = None;
    let mut entries = unit.entries_raw(None)?;
    let Some(root) = entries.read_abbreviation()? else { return Ok(unit) };
    let mut bases = Vec::new();
    for spec in root.attributes() {
        let attribute = entries.read_attribute(*spec)?;
        match (attribute.name(), attribute.value()) {
            (gimli::DW_AT_low_pc, value) => low_pc = Some(value),
            (_, value) => bases.push((attribute.name(), value)),
        }
    }
    for (name, value) in bases {
        match (name, value) {
            (gimli::DW_AT_str_offsets_base, AttributeValue::DebugStrOffsetsBase(base)) => {
                unit.str_offsets_base = base;
            }
            (gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base, AttributeValue::DebugAddrBase(base)) => {
                unit.addr_base = base;
            }
            (
                gimli::DW_AT_GNU_ranges_base | gimli::DW_AT_rnglists_base,
                AttributeValue::DebugRngListsBase(base),
            ) => {
                unit.rnglists_base = base;
            }
            (gimli::DW_AT_GNU_dwo_id, AttributeValue::DwoId(id)) => unit.dwo_id = unit.dwo_id.or(Some(id)),
            _ => {}
        }
    }
    // An address index is relative to a base that may come after it.
    if let Some(low_pc) = low_pc.and_then(|value| dwarf.attr_address(&unit, value).ok().flatten()) {
        unit.low_pc = low_pc;
    }
    Ok(unit)
}
