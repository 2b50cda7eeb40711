//! Converts `.sframe`, the compact unwind information of GNU binutils, to rows.
//!
//! Versions 1 and 2 (SFrame specifications of binutils 2.40, and of 2.41 with its errata): a header, an index of
//! functions, and for each function its rows. Everything is read on demand, with every offset checked.

use sidewinder_unwind_table::{
    Architecture, Cfa, EndReason, Entry, EntryInterner, PLT_ENTRY_BYTES, ReturnAddress, RowBuffer, RowSource,
    Rule, SavedRegister, Summary, UnsupportedReason,
};

use crate::arch;
use crate::known_functions::KnownFunctions;
use crate::layers::RangeStack;
use crate::memory::Memory;
use crate::segments::CodeRanges;

/// `SFRAME_MAGIC`.
const MAGIC: u16 = 0xdee2;
/// `SFRAME_F_FDE_FUNC_START_PCREL`: starts are relative to their own field instead of to the section.
const STARTS_COUNT_FROM_FIELD: u8 = 4;
const HEADER_BYTES: usize = 28;

/// A section of a known version.
pub(crate) struct SFrame<'data> {
    architecture: Architecture,
    /// The section's stated address.
    address: u64,
    index: &'data [u8],
    /// The offset of the index, in bytes of the section.
    index_at: usize,
    /// Bytes of one function's entry in the index.
    entry_bytes: usize,
    rows: &'data [u8],
    starts_count_from_field: bool,
    /// Bytes from the CFA to the frame pointer; zero if each row states it.
    fixed_frame_pointer: i8,
    /// Bytes from the CFA to the return address; zero if each row states it, or that it is in the link register.
    fixed_return_address: i8,
}

impl<'data> SFrame<'data> {
    /// Reads the header of a section; `None` if the format isn't known, or is for another architecture.
    pub(crate) fn parse(data: &'data [u8], address: u64, architecture: Architecture) -> Option<Self> {
        let [low, high, version, flags, abi, frame_pointer, return_address, auxiliary_bytes, ..] =
            *data.first_chunk::<HEADER_BYTES>()?;
        let entry_bytes = match version {
            1 => 17,
            2 => 20,
            _ => return None,
        };
        if u16::from_le_bytes([low, high]) != MAGIC || abi != arch::sframe_abi(architecture) {
            return None;
        }
        let field = |at| Some(u32_at(data, at)? as usize);
        let base = HEADER_BYTES + usize::from(auxiliary_bytes);
        let index_at = base.checked_add(field(20)?)?;
        let index_bytes = field(8)?.checked_mul(entry_bytes)?;
        Some(Self {
            architecture,
            address,
            index: data.get(index_at..)?.get(..index_bytes)?,
            index_at,
            entry_bytes,
            rows: data.get(base.checked_add(field(24)?)?..)?.get(..field(16)?)?,
            starts_count_from_field: flags & STARTS_COUNT_FROM_FIELD != 0,
            fixed_frame_pointer: frame_pointer.cast_signed(),
            fixed_return_address: return_address.cast_signed(),
        })
    }

    /// The rows of all functions for addresses in `code`. Functions may come in any order.
    pub(crate) fn rows(
        &self,
        code: &CodeRanges,
        known: &mut KnownFunctions,
        entries: &mut EntryInterner,
        summary: &mut Summary,
        memory: Memory<'_>,
    ) -> RowBuffer {
        let source = RowSource::SFrame;
        let (mut located, mut located_memory) = (Vec::new(), memory.nothing());
        for (place, entry) in self.index.chunks_exact(self.entry_bytes).enumerate() {
            let range = self.stated_range(place, entry).and_then(|(start, end)| code.clip(start, end));
            match range.zip(u32::try_from(place).ok()) {
                Some(((start, end), place)) => {
                    if !located_memory.push(&mut located, (start, end, place)) {
                        break;
                    }
                }
                None => Summary::count(&mut summary.outside_code, source),
            }
        }
        located.sort_unstable();

        let mut ranges = RangeStack::new(memory);
        // Functions may share rows, so without a bound a small file could cause any number of steps.
        let mut steps_left = self.rows.len();
        for (start, end, place) in located {
            known.clip_to((start, end));
            if !code.wants((start, end)) {
                continue;
            }
            let mut range = ranges.range((start, end));
            let entry = self.index.chunks_exact(self.entry_bytes).nth(place as usize).unwrap_or_default();
            let read = self.function_rows(entry, &mut steps_left, |offset, entry| {
                summary.count_unsupported(entry);
                range.push(start.saturating_add(offset), entries.intern(entry));
            });
            match read {
                Some(()) => Summary::count(&mut summary.functions, source),
                None => {
                    Summary::count(&mut summary.malformed, source);
                    range.set_only(entries.intern(Entry::End(EndReason::Malformed)));
                }
            }
            ranges.open(range);
        }
        ranges.finish()
    }

    /// The stated addresses of the function at this position of the index.
    fn stated_range(&self, place: usize, entry: &[u8]) -> Option<(u64, u64)> {
        let field = self.index_at.checked_add(place.checked_mul(self.entry_bytes)?)?;
        let counts_from = if self.starts_count_from_field { field as u64 } else { 0 };
        let distance = i64::from(u32_at(entry, 0)?.cast_signed());
        let start = self.address.checked_add(counts_from)?.checked_add_signed(distance)?;
        Some((start, start.checked_add(u64::from(u32_at(entry, 4)?))?))
    }

    /// Passes the rows of a function to `sink`, each with its start in bytes of the function, or `None` if they are
    /// malformed.
    fn function_rows(
        &self,
        entry: &[u8],
        steps_left: &mut usize,
        mut sink: impl FnMut(u32, Entry),
    ) -> Option<()> {
        let count = u32_at(entry, 12)?;
        let info = *entry.get(16)?;
        let start_bytes = match info & 15 {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return None,
        };
        *steps_left = steps_left.checked_sub(count as usize)?;
        let mut rest = self.rows.get(u32_at(entry, 8)? as usize..)?;
        let mut last_start = 0;
        let mut read = || {
            let row = self.row(&mut rest, start_bytes)?;
            let is_sorted = row.0 >= last_start;
            last_start = row.0;
            is_sorted.then_some(row)
        };
        let repeats = info & 16 != 0;
        if repeats {
            let first = read()?;
            let second = if count > 1 { Some(read()?) } else { None };
            sink(0, linkage_entry(first, second.filter(|_| count == 2), count));
            return Some(());
        }
        for _ in 0..count {
            let (start, entry) = read()?;
            sink(start, entry);
        }
        Some(())
    }

    /// Reads one row: its start in bytes of the function, and the entry from there on.
    fn row(&self, rest: &mut &[u8], start_bytes: usize) -> Option<(u32, Entry)> {
        let start = unsigned(take(rest, start_bytes)?);
        let [info] = *take(rest, 1)? else { return None };
        let offset_bytes = match info >> 5 & 3 {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return None,
        };
        let offsets = take(rest, usize::from(info >> 1 & 15).checked_mul(offset_bytes)?)?;
        let mut offsets = offsets.chunks_exact(offset_bytes).map(signed);
        let Some(cfa_offset) = offsets.next() else {
            // No offsets at all: the outermost frame of a stack.
            return Some((start, Entry::Rule(self.architecture.root())));
        };
        let register = match info & 1 {
            0 => self.architecture.frame_pointer(),
            _ => self.architecture.stack_pointer(),
        };
        // Of the offsets that rows state, the return address's comes first.
        let mut place = |fixed: i8| if fixed == 0 { offsets.next() } else { Some(i32::from(fixed)) };
        let leaf = self.architecture.leaf();
        let return_address = match place(self.fixed_return_address) {
            Some(offset) => ReturnAddress::AtCfa(offset),
            // Where the ABI has no link register, it is always fixed.
            None => leaf.return_address,
        };
        let frame_pointer = place(self.fixed_frame_pointer).map_or(SavedRegister::Same, SavedRegister::AtCfa);
        let cfa = Cfa::Register { register, offset: cfa_offset };
        let entry = Entry::Rule(Rule { cfa, frame_pointer, return_address, ..leaf });
        Some((start, entry))
    }
}

/// The entry for a range in which each [`PLT_ENTRY_BYTES`] have the same rows: one row, or on x86-64 two of which the
/// second is after the push of the index.
fn linkage_entry(first: (u32, Entry), second: Option<(u32, Entry)>, count: u32) -> Entry {
    const LEAF: Rule = Architecture::X86_64.leaf();
    const INDEX_PUSHED: Entry = Entry::Rule(Rule::above_stack_pointer(16));
    match (first, second) {
        ((0, only), None) if count == 1 => only,
        ((0, Entry::Rule(LEAF)), Some((at, INDEX_PUSHED))) if at < PLT_ENTRY_BYTES => {
            Entry::Rule(Rule { cfa: Cfa::Plt { threshold: at as u8 }, ..LEAF })
        }
        _ => Entry::unsupported(UnsupportedReason::CfaExpression),
    }
}

fn take<'data>(rest: &mut &'data [u8], bytes: usize) -> Option<&'data [u8]> {
    let (taken, after) = rest.split_at_checked(bytes)?;
    *rest = after;
    Some(taken)
}

/// A little-endian number of up to 4 bytes.
fn unsigned(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// The same with a sign.
fn signed(bytes: &[u8]) -> i32 {
    let unused_bits = 32 - 8 * bytes.len().clamp(1, 4) as u32;
    (unsigned(bytes) << unused_bits).cast_signed() >> unused_bits
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_width_keep_their_sign() {
        assert_eq!(signed(&[0xf8]), -8);
        assert_eq!(signed(&[0x08]), 8);
        assert_eq!(signed(&[0x40, 0x9c]), -25_536);
        assert_eq!(signed(&[0x40, 0x9c, 0, 0]), 40_000);
        assert_eq!(unsigned(&[0x40, 0x9c]), 40_000);
    }

    #[test]
    fn an_entry_of_a_linkage_table_is_recognised_by_its_rows() {
        let leaf = (0, Entry::Rule(Rule::LEAF));
        let pushed = Entry::Rule(Rule::above_stack_pointer(16));
        let plt = |threshold| Entry::Rule(Rule { cfa: Cfa::Plt { threshold }, ..Rule::LEAF });
        assert_eq!(linkage_entry(leaf, Some((11, pushed)), 2), plt(11));
        assert_eq!(linkage_entry(leaf, None, 1), Entry::Rule(Rule::LEAF));
        let unknown = Entry::unsupported(UnsupportedReason::CfaExpression);
        assert_eq!(linkage_entry(leaf, Some((20, pushed)), 2), unknown);
        assert_eq!(linkage_entry(leaf, None, 3), unknown);
    }
}
