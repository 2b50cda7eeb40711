//! The layout of `.gopclntab`, the table that every Go program contains for its own tracebacks.
//!
//! Go 1.18 and later (`runtime.pcHeader`, `runtime._func`, `runtime.pcvalue`): a header, then offsets from it to names,
//! to shared tables of values by pc, and to the functions in the order of their addresses. Earlier layouts aren't read.

use std::ops::Range;

use crate::paged::{Bytes, PagedPart};
use crate::read::ReadFile;

/// `internal/abi.Go118PCLnTabMagic` and `Go120PCLnTabMagic`.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// The most bytes of a name that are read: the names that matter are shorter.
pub(crate) const MAX_NAME_BYTES: usize = 64;

/// The most functions of a table that are read. The largest programs have some hundred thousand.
const MAX_FUNCTIONS: u64 = 4 << 20;

/// Bytes of a pointer in the only supported layout.
const POINTER_BYTES: u8 = 8;

/// The offsets of the parts of a table, in bytes from its start. Source: `runtime.pcHeader`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoTableHeader {
    /// Pcs in the tables are multiples of this many bytes.
    pub pc_quantum: u8,
    /// Whether functions have a line number before their flags (Go 1.20 and later).
    pub has_start_lines: bool,
    /// The number of functions.
    pub function_count: u64,
    /// The start of Go's text as the header states it: zero since Go 1.26 and in some relocatable programs.
    pub stated_text_start: u64,
    /// Names of functions.
    pub names: u64,
    /// For each unit, the offsets of its file names.
    pub unit_files: u64,
    /// Names of files.
    pub files: u64,
    /// Tables of values by pc.
    pub pc_tables: u64,
    /// Functions in the order of their addresses, and their descriptions.
    pub functions: u64,
}

impl GoTableHeader {
    /// Bytes of a header.
    pub const BYTES: usize = 8 + 8 * 8;

    /// Reads a header; `None` if the layout isn't known.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let magic = u32_at(data, 0)?;
        let [0, 0, pc_quantum, POINTER_BYTES] = *data.get(4..8)? else { return None };
        if !MAGICS.contains(&magic) || pc_quantum == 0 {
            return None;
        }
        let word = |index: usize| u64_at(data, 8 + index * 8);
        Some(Self {
            pc_quantum,
            has_start_lines: magic == MAGICS[1],
            function_count: word(0)?,
            stated_text_start: word(2)?,
            names: word(3)?,
            unit_files: word(4)?,
            files: word(5)?,
            pc_tables: word(6)?,
            functions: word(7)?,
        })
    }
}

/// A table behind a reader. Everything is read on demand, with every offset checked.
pub(crate) struct Pclntab<'part, R> {
    part: &'part PagedPart<R>,
    header: GoTableHeader,
    function_count: u64,
}

impl<'part, 'data, R: ReadFile<'data>> Pclntab<'part, R> {
    /// Reads the header; `None` if this is no table of a known layout.
    pub(crate) fn parse(part: &'part PagedPart<R>) -> Option<Self> {
        let mut header = [0; GoTableHeader::BYTES];
        part.read(0, &mut header)?;
        let header = GoTableHeader::parse(&header)?;
        let GoTableHeader { names, pc_tables, functions, .. } = header;
        if [names, pc_tables, functions].into_iter().any(|offset| offset > part.bytes()) {
            return None;
        }
        // Each function has two words, and one more holds the end of the last.
        let room = ((part.bytes() - functions) / 4).saturating_sub(1) / 2;
        let function_count = header.function_count.min(room).min(MAX_FUNCTIONS);
        Some(Self { part, header, function_count })
    }

    pub(crate) fn header(&self) -> &GoTableHeader {
        &self.header
    }

    /// The indices of all functions.
    pub(crate) fn functions(&self) -> Range<u64> {
        0..self.function_count
    }

    /// The indices of the functions that overlap a range of code, in bytes from the start of Go's text. Functions are in the order
    /// of their addresses; in a table where they aren't, the result is arbitrary.
    pub(crate) fn functions_within(&self, code: &Range<u32>) -> Range<u64> {
        let starts_after = |at: u32| {
            let (mut low, mut high) = (0, self.function_count);
            while low < high {
                let middle = low + (high - low) / 2;
                if self.start_of(middle).is_some_and(|start| start <= at) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        };
        starts_after(code.start).saturating_sub(1)..starts_after(code.end)
    }

    fn start_of(&self, index: u64) -> Option<u32> {
        self.part.u32_at(self.header.functions + index * 8)
    }

    /// A function by its index; `None` if it can't be read.
    pub(crate) fn function(&self, index: u64) -> Option<PclntabFunction<Bytes<'part, R>>> {
        let functions = self.header.functions;
        let mut words = [0; 12];
        self.part.read(functions + index * 8, &mut words)?;
        let described_at = functions + u64::from(u32_at(&words, 4)?);
        let mut described = [0; 42];
        let described = described.get_mut(..if self.header.has_start_lines { 42 } else { 38 })?;
        self.part.read(described_at, described)?;
        let name_at = self.header.names + u64::from(u32_at(described, 4)?);
        let mut name = [0; MAX_NAME_BYTES];
        let name_bytes = self.part.bytes().checked_sub(name_at)?.min(MAX_NAME_BYTES as u64);
        self.part.read(name_at, name.get_mut(..name_bytes as usize)?)?;
        Some(PclntabFunction {
            start: u32_at(&words, 0)?,
            next: u32_at(&words, 8)?,
            name,
            flags: *described.last()?,
            stack_depths: match u32_at(described, 16)? {
                0 => None,
                offset => Some(self.part.bytes_from(self.header.pc_tables + u64::from(offset))),
            },
            pc_quantum: self.header.pc_quantum,
        })
    }
}

/// One function: `runtime._func`. `B` reads its table of stack depths.
pub(crate) struct PclntabFunction<B> {
    /// Its entry, in bytes from the start of Go's text.
    pub(crate) start: u32,
    /// The entry of the next function; padding may come before it.
    pub(crate) next: u32,
    /// Its full name, for example `runtime.mcall`, with a NUL behind it, or the beginning of a long one.
    pub(crate) name: [u8; MAX_NAME_BYTES],
    flags: u8,
    stack_depths: Option<B>,
    pc_quantum: u8,
}

impl<B> PclntabFunction<B> {
    /// Its full name, or the beginning of a long one.
    pub(crate) fn name(&self) -> &[u8] {
        self.name.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Go's own tracebacks stop here and are complete (`abi.FuncFlagTopFrame`).
    pub(crate) fn is_top_frame(&self) -> bool {
        self.flags & 1 != 0
    }

    /// It sets the stack pointer by other means than constants, so its depths can't be relied on
    /// (`abi.FuncFlagSPWrite`).
    pub(crate) fn writes_stack_pointer(&self) -> bool {
        self.flags & 2 != 0
    }

    /// It was written in assembly (`abi.FuncFlagAsm`).
    pub(crate) fn is_assembly(&self) -> bool {
        self.flags & 4 != 0
    }

    /// The stack depths by pc, if the table has them: consecutive ranges from the function's start.
    pub(crate) fn stack_depths(&self) -> Option<impl Iterator<Item = StackDepth> + Clone + use<B>>
    where
        B: ByteReader,
    {
        let values = PcValues::new(self.stack_depths.clone()?, self.start..self.next, self.pc_quantum);
        Some(values.map(|PcValue { start, end, value }| StackDepth { start, end, bytes: value }))
    }
}

/// Bytes of stack that a function has taken since its entry, for pcs from `start` up to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StackDepth {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) bytes: i32,
}

/// A value that holds for pcs from `start` up to `end`, both in bytes from the start of Go's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcValue {
    /// The first pc.
    pub start: u32,
    /// The pc after the last.
    pub end: u32,
    /// Stack depth, file or line, depending on the table.
    pub value: i32,
}

/// Reads bytes one after the other, and can be told to start again.
pub(crate) trait ByteReader: Iterator<Item = u8> + Clone {}

impl<B: Iterator<Item = u8> + Clone> ByteReader for B {}

/// Steps of `runtime.pcvalue`: consecutive ranges. Ends early where the table is malformed.
#[derive(Clone, Debug)]
pub struct PcValues<B> {
    rest: B,
    pc: u32,
    limit: u32,
    value: i32,
    first: bool,
    pc_quantum: u8,
}

impl<B: Iterator<Item = u8>> PcValues<B> {
    /// Decodes the values of a function with these pcs from the bytes of its table.
    #[must_use]
    pub fn new(table: B, function: Range<u32>, pc_quantum: u8) -> Self {
        Self { rest: table, pc: function.start, limit: function.end, value: -1, first: true, pc_quantum }
    }
}

impl<B: Iterator<Item = u8>> Iterator for PcValues<B> {
    type Item = PcValue;

    fn next(&mut self) -> Option<PcValue> {
        if self.pc >= self.limit {
            return None;
        }
        let change = varint(&mut self.rest)?;
        if change == 0 && !self.first {
            return None;
        }
        self.first = false;
        // Zigzag: the sign is the lowest bit.
        self.value = self.value.checked_add((change >> 1) as i32 ^ -((change & 1) as i32))?;
        let start = self.pc;
        let bytes =
            varint(&mut self.rest)?.checked_mul(u32::from(self.pc_quantum)).filter(|bytes| *bytes > 0)?;
        self.pc = start.checked_add(bytes)?;
        Some(PcValue { start, end: self.pc.min(self.limit), value: self.value })
    }
}

/// `runtime.readvarint`: seven bits a byte, lowest first, of which 32 bits count.
fn varint(rest: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0;
    for shift in (0..32).step_by(7) {
        let byte = rest.next()?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

pub(super) fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depths(table: &[u8]) -> Vec<(u32, u32, i32)> {
        let function = PclntabFunction {
            start: 0x100,
            next: 0x180,
            name: [0; MAX_NAME_BYTES],
            flags: 0,
            stack_depths: Some(table.iter().copied()),
            pc_quantum: 1,
        };
        function
            .stack_depths()
            .into_iter()
            .flatten()
            .map(|depth| (depth.start, depth.end, depth.bytes))
            .collect()
    }

    #[test]
    fn depths_follow_one_another_until_the_terminator() {
        // -1 to 0 for 1 byte, to 8 for 3, to 72 for 0x20, back to 8 for 1, to 0 for 1.
        let table = [2, 1, 16, 3, 128, 1, 0x20, 127, 1, 15, 1, 0];
        assert_eq!(
            depths(&table),
            [(0x100, 0x101, 0), (0x101, 0x104, 8), (0x104, 0x124, 72), (0x124, 0x125, 8), (0x125, 0x126, 0)]
        );
    }

    #[test]
    fn a_broken_table_ends_early() {
        assert_eq!(depths(&[2]), [], "no pc");
        assert_eq!(depths(&[2, 0, 16, 0]), [], "a step of no bytes");
        assert_eq!(depths(&[2, 0xff, 0xff, 0xff, 0xff, 0xff]), [], "a number without end");
        assert_eq!(depths(&[2, 0xff, 0x7f, 16, 1]), [(0x100, 0x180, 0)], "a step over the next function");
    }

    #[test]
    fn only_known_layouts_parse() {
        let mut header = vec![0; 8 + 8 * 8];
        header[..8].copy_from_slice(&[0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8]);
        let parses =
            |header: &[u8]| Pclntab::parse(&PagedPart::new(header, 0, header.len() as u64)).is_some();
        assert!(parses(&header));
        header[0] = 0xfa;
        assert!(!parses(&header), "Go 1.16");
        header[0] = 0xf1;
        header[7] = 4;
        assert!(!parses(&header), "32 bits");
        header[7] = 8;
        header[8 + 7 * 8..].fill(0xff);
        assert!(!parses(&header), "functions beyond the end");
    }
}
