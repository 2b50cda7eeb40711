//! Ranges of code, as debug information states them.

use gimli::{Attribute, AttributeValue, Dwarf, Result, Unit};

use super::section::SectionReader;

/// Ranges of one entry looked at; a unit compiled with a section for each function has tens of thousands.
const RANGES_LIMIT: usize = 1 << 18;

/// Which addresses are code of a file, and how they are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeRangeReader {
    /// The first byte of code. Linkers leave what they have thrown away at address 0 and thereabouts, below this.
    pub(crate) base: u64,
}

/// Code, in bytes from the file's first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CodeRange {
    pub(crate) start: u32,
    pub(crate) bytes: u32,
}

impl CodeRange {
    pub(crate) fn contains(self, place: u32) -> bool {
        place.checked_sub(self.start).is_some_and(|within| within < self.bytes)
    }
}

impl CodeRangeReader {
    /// A place in the code, unless it lies before or more than 4 GiB behind the first.
    pub(crate) fn place(&self, svma: u64) -> Option<u32> {
        u32::try_from(svma.checked_sub(self.base)?).ok()
    }

    fn range(&self, start: u64, end: u64) -> Option<CodeRange> {
        let bytes = u32::try_from(end.checked_sub(start)?).ok().filter(|bytes| *bytes > 0)?;
        Some(CodeRange { start: self.place(start)?, bytes })
    }

    /// Gives the ranges that the attributes of an entry state.
    pub(super) fn for_each_range<'a>(
        &self,
        dwarf: &Dwarf<SectionReader<'a>>,
        unit: &Unit<SectionReader<'a>>,
        attributes: &[Attribute<SectionReader<'a>>],
        mut visit: impl FnMut(CodeRange),
    ) -> Result<()> {
        let mut visit = |start, end| {
            if let Some(range) = self.range(start, end) {
                visit(range);
            }
        };
        let (mut start, mut end, mut bytes) = (None, None, None);
        for attribute in attributes {
            match (attribute.name(), attribute.value()) {
                (gimli::DW_AT_low_pc, value) => start = dwarf.attr_address(unit, value)?,
                (gimli::DW_AT_high_pc, AttributeValue::Udata(value)) => bytes = Some(value),
                (gimli::DW_AT_high_pc, value) => end = dwarf.attr_address(unit, value)?,
                (gimli::DW_AT_ranges, value) => {
                    let Some(mut list) = dwarf.attr_ranges(unit, value)? else { continue };
                    for _ in 0..RANGES_LIMIT {
                        let Some(range) = list.next()? else { break };
                        visit(range.begin, range.end);
                    }
                    return Ok(());
                }
                _ => {}
            }
        }
        if let Some(start) = start
            && let Some(end) = end.or_else(|| start.checked_add(bytes?))
        {
            visit(start, end);
        }
        Ok(())
    }
}
