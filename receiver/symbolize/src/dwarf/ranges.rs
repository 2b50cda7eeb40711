//! Address ranges in debug information.

use gimli::{Attribute, AttributeValue, Dwarf, Result, Unit};

use super::section::SectionReader;

/// The most ranges of one entry that are read; a unit compiled with a section for each function has tens of thousands.
const RANGES_LIMIT: usize = 1 << 18;

/// The addresses that are code of a file, and the base of offsets in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeRangeReader {
    /// The first byte of code. Linkers give discarded code addresses at or near 0, below this.
    pub(crate) base: u64,
}

/// A range of code, in bytes from the first byte of the file's code.
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
    /// The offset of an address from the base, unless it lies before it or more than 4 GiB after it.
    pub(crate) fn place(&self, svma: u64) -> Option<u32> {
        u32::try_from(svma.checked_sub(self.base)?).ok()
    }

    fn range(&self, start: u64, end: u64) -> Option<CodeRange> {
        let bytes = u32::try_from(end.checked_sub(start)?).ok().filter(|bytes| *bytes > 0)?;
        Some(CodeRange { start: self.place(start)?, bytes })
    }

    /// Calls `visit` with the ranges of an entry, given by its attributes.
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
