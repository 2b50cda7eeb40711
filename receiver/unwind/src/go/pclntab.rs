//! The layout of `.gopclntab`, the table that every Go program contains for its own tracebacks.
//!
//! Go 1.18 and later (`runtime.pcHeader`, `runtime._func`, `runtime.pcvalue`): a header, then offsets from it to names,
//! to shared tables of values by pc, and to the functions in the order of their addresses. Earlier layouts aren't read.

use std::ops::Range;

/// `internal/abi.Go118PCLnTabMagic` and `Go120PCLnTabMagic`.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// The most bytes of a name that are read: the names that matter are shorter.
const MAX_NAME_BYTES: usize = 64;

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

/// The parsed header and the parts it refers to. Everything else is read on demand, with every offset checked.
pub(crate) struct Pclntab<'data> {
    data: &'data [u8],
    pc_quantum: u8,
    has_start_lines: bool,
    /// As [`GoTableHeader::stated_text_start`].
    pub(crate) stated_text_start: u64,
    function_count: usize,
    names: &'data [u8],
    pc_tables: &'data [u8],
    functions: &'data [u8],
}

impl<'data> Pclntab<'data> {
    /// Reads the header; `None` if this is no table of a known layout.
    pub(crate) fn parse(data: &'data [u8]) -> Option<Self> {
        let header = GoTableHeader::parse(data)?;
        let part = |offset: u64| data.get(usize::try_from(offset).ok()?..);
        Some(Self {
            data,
            pc_quantum: header.pc_quantum,
            has_start_lines: header.has_start_lines,
            stated_text_start: header.stated_text_start,
            function_count: usize::try_from(header.function_count).ok()?,
            names: part(header.names)?,
            pc_tables: part(header.pc_tables)?,
            functions: part(header.functions)?,
        })
    }

    /// Bytes of the whole table.
    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }

    /// The functions in the order of the table; `None` for one that can't be read.
    pub(crate) fn functions(&self) -> impl Iterator<Item = Option<PclntabFunction<'data>>> {
        // Each function has two words, and one more holds the end of the last.
        let room = (self.functions.len() / 4).saturating_sub(1) / 2;
        (0..self.function_count.min(room)).map(|index| self.function(index))
    }

    fn function(&self, index: usize) -> Option<PclntabFunction<'data>> {
        let start = u32_at(self.functions, index * 8)?;
        let next = u32_at(self.functions, index * 8 + 8)?;
        let described = self.functions.get(u32_at(self.functions, index * 8 + 4)? as usize..)?;
        let name = self.names.get(u32_at(described, 4)? as usize..)?;
        let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
        Some(PclntabFunction {
            start,
            next,
            name: name.split(|byte| *byte == 0).next()?,
            flags: *described.get(if self.has_start_lines { 41 } else { 37 })?,
            stack_depths: match u32_at(described, 16)? {
                0 => None,
                offset => Some(self.pc_tables.get(offset as usize..)?),
            },
            pc_quantum: self.pc_quantum,
        })
    }
}

/// One function: `runtime._func`.
pub(crate) struct PclntabFunction<'data> {
    /// Its entry, in bytes from the start of Go's text.
    pub(crate) start: u32,
    /// The entry of the next function; padding may come before it.
    pub(crate) next: u32,
    /// Its full name, as in `runtime.mcall`, or the beginning of a long one.
    pub(crate) name: &'data [u8],
    flags: u8,
    stack_depths: Option<&'data [u8]>,
    pc_quantum: u8,
}

impl<'data> PclntabFunction<'data> {
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
    pub(crate) fn stack_depths(&self) -> Option<impl Iterator<Item = StackDepth> + Clone + use<'data>> {
        let values = PcValues::new(self.stack_depths?, self.start..self.next, self.pc_quantum);
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

/// Steps of `runtime.pcvalue`: consecutive ranges. Ends early where the table is malformed.
#[derive(Clone, Debug)]
pub struct PcValues<'data> {
    rest: &'data [u8],
    pc: u32,
    limit: u32,
    value: i32,
    first: bool,
    pc_quantum: u8,
}

impl<'data> PcValues<'data> {
    /// Decodes the values of a function with these pcs.
    #[must_use]
    pub fn new(table: &'data [u8], function: Range<u32>, pc_quantum: u8) -> Self {
        Self { rest: table, pc: function.start, limit: function.end, value: -1, first: true, pc_quantum }
    }
}

impl Iterator for PcValues<'_> {
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
fn varint(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in (0..32).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
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
            name: b"main.f",
            flags: 0,
            stack_depths: Some(table),
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
        assert!(Pclntab::parse(&header).is_some());
        header[0] = 0xfa;
        assert!(Pclntab::parse(&header).is_none(), "Go 1.16");
        header[0] = 0xf1;
        header[7] = 4;
        assert!(Pclntab::parse(&header).is_none(), "32 bits");
        header[7] = 8;
        header[8 + 7 * 8..].fill(0xff);
        assert!(Pclntab::parse(&header).is_none(), "functions beyond the end");
    }
}
