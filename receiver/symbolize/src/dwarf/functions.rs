//! The functions of a unit, and the calls inlined into them.

use gimli::{Attribute, AttributeValue, DebugInfoOffset, Dwarf, Reader as _, Result, Unit, UnitOffset};

use super::ranges::{CodeRange, CodeRangeReader};
use super::section::SectionReader;
use super::units::{UnitIndex, without_lines};

/// How many functions that start before an address are checked for whether they contain it.
const LOOK_BACK: usize = 32;
/// The deepest nesting of inlined calls that is reported; deeper ones are left out.
const NESTING_LIMIT: usize = 256;
/// The most references followed from an entry to the one with the name.
const REFERENCES_LIMIT: usize = 8;
/// The longest name that is returned.
const NAME_LIMIT_BYTES: usize = 4096;

/// A function's code, and its entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionRange {
    range: CodeRange,
    /// Offset of the entry in its unit.
    entry: u32,
}

/// The names of an entry. At least one of them is present.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct EntryName {
    /// The linker's name.
    pub(crate) linkage: Option<String>,
    /// The name in the source, without enclosing scopes.
    pub(crate) plain: Option<String>,
}

/// The source position of a call that was inlined, by file index of the unit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct CallSite {
    pub(super) file: u64,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The functions at an address: the outermost function, and the calls inlined there, outermost first.
#[derive(Debug, Default)]
pub(super) struct InlineChain {
    pub(super) function: Option<EntryName>,
    pub(super) inlined: Vec<(Option<EntryName>, CallSite)>,
    /// Whether some were left out.
    pub(super) is_cut: bool,
}

/// All functions of a unit that have code, at most `functions_max` of them. The second value counts those left out.
pub(super) fn functions_of(
    dwarf: &Dwarf<SectionReader<'_>>,
    unit: &Unit<SectionReader<'_>>,
    ranges: &CodeRangeReader,
    functions_max: usize,
) -> Result<(Box<[FunctionRange]>, u64)> {
    let mut functions = Vec::new();
    let mut cut = 0;
    let mut entries = unit.entries_raw(None)?;
    let mut attributes = Vec::new();
    while !entries.is_empty() {
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if abbreviation.tag() != gimli::DW_TAG_subprogram {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
        let Ok(entry) = u32::try_from(offset.0) else { break };
        let push = |range| {
            if functions.len() < functions_max {
                functions.push(FunctionRange { range, entry });
            } else {
                cut += 1;
            }
        };
        // Malformed ranges of one function don't affect the next.
        let _ = ranges.for_each_range(dwarf, unit, &attributes, push);
    }
    functions.sort_unstable_by_key(|function| function.range.start);
    Ok((functions.into_boxed_slice(), cut))
}

/// The function that contains an address: the innermost of nested ones.
pub(super) fn function_at(functions: &[FunctionRange], place: u32) -> Option<UnitOffset<usize>> {
    let after = functions.partition_point(|function| function.range.start <= place);
    let before = functions.get(..after)?.iter().rev().take(LOOK_BACK);
    let found = before.into_iter().find(|function| function.range.contains(place))?;
    Some(UnitOffset(found.entry as usize))
}

/// A unit and what is needed to follow its references.
pub(super) struct FunctionContext<'u, 'a> {
    pub(super) dwarf: &'u Dwarf<SectionReader<'a>>,
    pub(super) unit: &'u Unit<SectionReader<'a>>,
    pub(super) units: &'u UnitIndex,
    /// The units of the file that several debug files share.
    pub(super) shared_units: Option<&'u UnitIndex>,
}

impl<'a> FunctionContext<'_, 'a> {
    /// The function and inlined calls at an address.
    pub(super) fn chain(
        &self,
        function: UnitOffset<usize>,
        ranges: &CodeRangeReader,
        place: u32,
        with_inlined: bool,
    ) -> Result<InlineChain> {
        let mut entries = self.unit.entries_raw(Some(function))?;
        let mut attributes = Vec::new();
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(InlineChain::default()) };
        entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
        let mut chain = InlineChain { function: self.name(&attributes), ..InlineChain::default() };
        // The depth inside the innermost call found so far, and the depth of an entry whose children are skipped.
        let mut within = 1;
        let mut passed_over = isize::MAX;
        while with_inlined && !entries.is_empty() && abbreviation.has_children() {
            let depth = entries.next_depth();
            if depth < within {
                break;
            }
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            let is_call = abbreviation.tag() == gimli::DW_TAG_inlined_subroutine;
            let is_other_function = abbreviation.tag() == gimli::DW_TAG_subprogram;
            if depth <= passed_over {
                passed_over = isize::MAX;
            }
            if depth > passed_over || !(is_call || is_other_function) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
            let mut is_here = false;
            if is_call {
                ranges.for_each_range(self.dwarf, self.unit, &attributes, |range| {
                    is_here |= range.contains(place);
                })?;
            }
            if !is_here {
                passed_over = depth;
                continue;
            }
            if chain.inlined.len() == NESTING_LIMIT {
                chain.is_cut = true;
                break;
            }
            chain.inlined.push((self.name(&attributes), call(&attributes)));
            within = depth + 1;
            if !abbreviation.has_children() {
                break;
            }
        }
        Ok(chain)
    }

    /// The names of an entry with these attributes, directly or through the entry it refers to.
    fn name(&self, attributes: &[Attribute<SectionReader<'a>>]) -> Option<EntryName> {
        let mut name = EntryName::default();
        let mut next = self.take_name(self.dwarf, self.unit, attributes, &mut name);
        let mut units = self.units;
        let mut dwarf = self.dwarf;
        let mut other: Option<Unit<SectionReader<'a>>> = None;
        for _ in 0..REFERENCES_LIMIT {
            let Some(reference) = next.filter(|_| name.linkage.is_none()) else { break };
            let offset = match reference {
                AttributeValue::UnitRef(offset) => offset,
                AttributeValue::DebugInfoRef(offset) => {
                    let (unit, within) = unit_at(dwarf, units, offset)?;
                    other = Some(unit);
                    within
                }
                AttributeValue::DebugInfoRefSup(offset) => {
                    (dwarf, units) = (dwarf.sup()?, self.shared_units?);
                    let (unit, within) = unit_at(dwarf, units, offset)?;
                    other = Some(unit);
                    within
                }
                _ => break,
            };
            let unit = other.as_ref().unwrap_or(self.unit);
            next = attributes_at(unit, offset)
                .and_then(|attributes| self.take_name(dwarf, unit, &attributes, &mut name));
        }
        (name != EntryName::default()).then_some(name)
    }

    /// Takes names that aren't known yet, and returns the reference to the entry with further ones.
    fn take_name(
        &self,
        dwarf: &Dwarf<SectionReader<'a>>,
        unit: &Unit<SectionReader<'a>>,
        attributes: &[Attribute<SectionReader<'a>>],
        name: &mut EntryName,
    ) -> Option<AttributeValue<SectionReader<'a>>> {
        let text = |value| {
            let mut text = dwarf.attr_string(unit, value).ok()?;
            text.truncate(text.len().min(NAME_LIMIT_BYTES)).ok()?;
            let text = text.to_string_lossy().ok()?.into_owned();
            (!text.is_empty()).then_some(text)
        };
        let mut reference = None;
        for attribute in attributes {
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name if name.linkage.is_none() => {
                    name.linkage = text(value);
                }
                gimli::DW_AT_name if name.plain.is_none() => name.plain = text(value),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => reference = Some(value),
                _ => {}
            }
        }
        reference
    }
}

/// The unit that contains an offset, and the offset in it.
fn unit_at<'a>(
    dwarf: &Dwarf<SectionReader<'a>>,
    units: &UnitIndex,
    offset: DebugInfoOffset<usize>,
) -> Option<(Unit<SectionReader<'a>>, UnitOffset<usize>)> {
    let header = units.header_at(dwarf, offset).ok()?;
    let within = offset.to_unit_offset(&header)?;
    Some((without_lines(dwarf, header).ok()?, within))
}

fn attributes_at<'a>(
    unit: &Unit<SectionReader<'a>>,
    offset: UnitOffset<usize>,
) -> Option<Vec<Attribute<SectionReader<'a>>>> {
    let mut entries = unit.entries_raw(Some(offset)).ok()?;
    let abbreviation = entries.read_abbreviation().ok()??;
    let mut attributes = Vec::new();
    entries.read_attributes(abbreviation.attributes(), &mut attributes).ok()?;
    Some(attributes)
}

fn call(attributes: &[Attribute<SectionReader<'_>>]) -> CallSite {
    let mut call = CallSite::default();
    let small = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
    for attribute in attributes {
        match (attribute.name(), attribute.value()) {
            (gimli::DW_AT_call_file, AttributeValue::FileIndex(file)) => call.file = file,
            (gimli::DW_AT_call_line, value) => call.line = small(value.udata_value()),
            (gimli::DW_AT_call_column, value) => call.column = small(value.udata_value()),
            _ => {}
        }
    }
    call
}
