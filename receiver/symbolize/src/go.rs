//! Names, lines and inlined calls of Go programs, including stripped ones, from the table that each contains for its
//! tracebacks.
//!
//! Source: Go 1.18 and later, `runtime._func`, `runtime.moduledata`, `runtime.inlinedCall`. `sidewinder-unwind` parses
//! the header and the tables of values by pc; this module reads them from the file piece by piece.

use std::ops::Range;
use std::sync::Arc;

use sidewinder_unwind::{GoTableHeader, PcValues};

use crate::arch::RELATIVE;
use crate::dwarf::{DebugDetail, EntryName, SourceFrame};
use crate::elf::ElfLayout;
use crate::image::Image;
use crate::plt::for_each_relocation;

/// The sections that may hold the table.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// The longest names of functions and files that are returned.
const NAME_LIMIT_BYTES: usize = 4096;
/// Bytes of a table of values by pc that are read, in successive attempts.
const PC_TABLE_BYTES: [usize; 3] = [512, 16 << 10, 512 << 10];
/// The deepest nesting of inlined calls that is reported.
const NESTING_LIMIT: usize = 256;
/// Bytes of data that are searched for the module's descriptor.
const SEARCH_LIMIT_BYTES: u64 = 64 << 20;
const SEARCH_CHUNK_BYTES: usize = 64 << 10;

/// In `runtime.moduledata`: words before the start of the text, and before `gofunc`, which inline trees are relative
/// to, in Go 1.20 and later and before.
const TEXT_WORD: u64 = 22;
const INLINE_BASE_WORD: [u64; 2] = [40, 38];
/// Index of the tree of inlined calls in a function's data (`abi.FUNCDATA_InlTree`), and of the table of tree indices
/// among its tables of values by pc (`abi.PCDATA_InlTreeIndex`).
const INLINE_TREE: u32 = 3;
const INLINE_INDEX: u32 = 2;

/// The table of one file.
#[derive(Debug)]
pub(crate) struct GoTable {
    image: Image,
    /// The table's range in the file.
    table: Range<u64>,
    header: GoTableHeader,
    text_start: u64,
    /// The base address of inline trees, if known.
    inline_base: Option<u64>,
    layout: ElfLayout,
}

/// The used fields of `runtime._func`.
struct GoFunction {
    start: u32,
    end: u32,
    /// The offset of its descriptor, in bytes from the table's start.
    at: u64,
    name: u32,
    files: u32,
    lines: u32,
    table_count: u32,
    unit: u32,
    data_count: u8,
}

impl GoTable {
    /// Reads the table of a file; `None` if it has none of a known layout, or the location of the text is unknown.
    pub(crate) fn read(image: &Image, layout: &ElfLayout) -> Option<Self> {
        if !layout.is_little_endian_64() {
            return None;
        }
        let section = SECTIONS.iter().find_map(|name| layout.section(name))?;
        let table = section.bytes.clone();
        let mut bytes = [0; GoTableHeader::BYTES];
        image.read_exact_at(table.start, &mut bytes).ok()?;
        let header = GoTableHeader::parse(&bytes)?;
        let module = find_module(image, layout, section.svma);
        let word = |index: u64| word_at(image, layout, module?.checked_add(index * 8)?);
        let [newer, older] = INLINE_BASE_WORD;
        let inline_base = word(if header.has_start_lines { newer } else { older });
        let stated = Some(header.stated_text_start).filter(|start| *start != 0);
        let text_start = word(TEXT_WORD).filter(|start| *start != 0).or(stated)?;
        layout.code_section(text_start)?;
        Some(Self { image: image.clone(), table, header, text_start, inline_base, layout: layout.clone() })
    }

    /// The functions at an address, innermost first; none if the code isn't Go's.
    pub(crate) fn frames(&self, svma: u64, wanted: DebugDetail) -> Vec<SourceFrame> {
        self.frames_at(svma, wanted).unwrap_or_default()
    }

    fn frames_at(&self, svma: u64, wanted: DebugDetail) -> Option<Vec<SourceFrame>> {
        let mut pc = u32::try_from(svma.checked_sub(self.text_start)?).ok()?;
        let function = self.function_at(pc)?;
        let mut frames = Vec::new();
        let tree = self.inline_tree(&function).filter(|_| wanted.inlines);
        while let Some((tree, index)) = tree
            && frames.len() < NESTING_LIMIT
            && let Some(call) = self.value(&function, index, pc).filter(|call| *call >= 0)
        {
            let Some((name, parent)) = self.inlined_call(tree, call as u32) else { break };
            frames.push(self.frame(&function, name, pc, wanted)?);
            pc = function.start.checked_add(parent)?;
        }
        frames.push(self.frame(&function, function.name, pc, wanted)?);
        Some(frames)
    }

    fn frame(&self, function: &GoFunction, name: u32, pc: u32, wanted: DebugDetail) -> Option<SourceFrame> {
        let name = EntryName { linkage: Some(self.text(self.header.names, name)?), plain: None };
        if !wanted.lines {
            return Some(SourceFrame { name: Some(name), ..SourceFrame::default() });
        }
        let path = self.value(function, function.files, pc).and_then(|file| self.path(function, file));
        let line = self.value(function, function.lines, pc).and_then(|line| u32::try_from(line).ok());
        Some(SourceFrame { name: Some(name), path, line: line.unwrap_or(0), column: 0 })
    }

    /// The function that contains a pc. The table is sorted.
    fn function_at(&self, pc: u32) -> Option<GoFunction> {
        let entry = |index: u64| {
            let mut bytes = [0; 8];
            self.fill(self.header.functions.checked_add(index.checked_mul(8)?)?, &mut bytes)?;
            let [a, b, c, d, e, f, g, h] = bytes;
            Some((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])))
        };
        let room = (self.table.end - self.table.start).checked_sub(self.header.functions)? / 8;
        let (mut low, mut high) = (0, self.header.function_count.min(room));
        while low < high {
            let middle = low + (high - low) / 2;
            if entry(middle)?.0 <= pc { low = middle + 1 } else { high = middle }
        }
        let index = low.checked_sub(1)?;
        let (start, described) = entry(index)?;
        // After the last function, the table has its end, without a descriptor.
        let mut end = [0; 4];
        self.fill(self.header.functions.checked_add((index + 1) * 8)?, &mut end)?;
        let end = u32::from_le_bytes(end);
        let at = self.header.functions.checked_add(described.into())?;
        let mut fields = [0; 44];
        let known = if self.header.has_start_lines { 44 } else { 40 };
        self.fill(at, fields.get_mut(..known)?)?;
        let field = |at: usize| fields.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        (pc < end).then_some(GoFunction {
            start,
            end,
            at: at + known as u64,
            name: field(4)?,
            files: field(20)?,
            lines: field(24)?,
            table_count: field(28)?,
            unit: field(32)?,
            data_count: *fields.get(known - 1)?,
        })
    }

    /// The address of a function's tree of inlined calls, and the table with the tree index for each pc.
    fn inline_tree(&self, function: &GoFunction) -> Option<(u64, u32)> {
        if function.table_count <= INLINE_INDEX || u32::from(function.data_count) <= INLINE_TREE {
            return None;
        }
        let index = self.word(function.at, INLINE_INDEX.into())?;
        let tree = self.word(function.at, u64::from(function.table_count) + u64::from(INLINE_TREE))?;
        (index != 0 && tree != u32::MAX).then_some((self.inline_base?.checked_add(tree.into())?, index))
    }

    /// An inlined call: the name of the called function, and the pc of the call, from the function's start.
    fn inlined_call(&self, tree: u64, index: u32) -> Option<(u32, u32)> {
        let (bytes, name, parent) = if self.header.has_start_lines { (16, 4, 8) } else { (20, 12, 16) };
        let svma = tree.checked_add(u64::from(index) * bytes)?;
        let at = self.layout.in_file(svma)?;
        let mut call = [0; 20];
        let call = call.get_mut(..bytes as usize).filter(|_| at.end - at.start >= bytes)?;
        self.image.read_exact_at(at.start, call).ok()?;
        let field = |at: usize| call.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        Some((field(name)?, field(parent)?))
    }

    fn path(&self, function: &GoFunction, file: i32) -> Option<Arc<str>> {
        let index = u64::from(function.unit) + u64::from(u32::try_from(file).ok()?);
        let name = self.word(self.header.unit_files, index)?;
        let path = self.text(self.header.files, name).filter(|path| !path.is_empty())?;
        Some(path.into())
    }

    /// The value of a table at a pc.
    fn value(&self, function: &GoFunction, table: u32, pc: u32) -> Option<i32> {
        if table == 0 {
            return None;
        }
        let at = self.header.pc_tables.checked_add(table.into())?;
        for bytes in PC_TABLE_BYTES {
            let room = (self.table.end - self.table.start).checked_sub(at)?;
            let mut values = vec![0; bytes.min(usize::try_from(room).ok()?)];
            self.fill(at, &mut values)?;
            let is_whole = values.len() < bytes;
            let found =
                PcValues::new(values.iter().copied(), function.start..function.end, self.header.pc_quantum)
                    .find(|value| (value.start..value.end).contains(&pc));
            if found.is_some() || is_whole {
                return found.map(|found| found.value);
            }
        }
        None
    }

    fn text(&self, part: u64, offset: u32) -> Option<String> {
        let at = self.table.start.checked_add(part)?.checked_add(offset.into())?;
        let room = usize::try_from(self.table.end.checked_sub(at)?).ok()?;
        let (bytes, _) = self.image.read_c_string(at, room.min(NAME_LIMIT_BYTES)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn word(&self, part: u64, index: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.fill(part.checked_add(index.checked_mul(4)?)?, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// Reads from the table, never beyond its section.
    fn fill(&self, offset: u64, bytes: &mut [u8]) -> Option<()> {
        let at = self.table.start.checked_add(offset)?;
        let end = at.checked_add(bytes.len() as u64)?;
        (end <= self.table.end).then(|| self.image.read_exact_at(at, bytes).ok())?
    }
}

/// Finds the address of `runtime.moduledata`, whose first word is the table's address. In relocatable programs that
/// word may exist only as a relocation.
fn find_module(image: &Image, layout: &ElfLayout, table: u64) -> Option<u64> {
    let named = layout.section(".go.module").map(|section| section.svma);
    let mut module = named.or_else(|| find_in_data(image, layout, table));
    if module.is_none() {
        for_each_relocation(image, layout, |relocation| {
            let is_table = relocation.kind == RELATIVE.0 && relocation.addend == table;
            if is_table && module.is_none() && is_module(image, layout, relocation.offset) {
                module = Some(relocation.offset);
            }
        });
    }
    module
}

fn find_in_data(image: &Image, layout: &ElfLayout, table: u64) -> Option<u64> {
    let mut left = SEARCH_LIMIT_BYTES;
    for (start, bytes) in layout.loaded() {
        let mut at = bytes.start;
        while at < bytes.end && left > 0 {
            let mut chunk = vec![0; (bytes.end - at).min(SEARCH_CHUNK_BYTES as u64) as usize];
            image.read_exact_at(at, &mut chunk).ok()?;
            let is_table = |word: &[u8]| word.first_chunk().copied().map(u64::from_le_bytes) == Some(table);
            let places = chunk.chunks_exact(8).enumerate().filter(|(_, word)| is_table(word));
            let module = places
                .map(|(index, _)| start + (at - bytes.start) + index as u64 * 8)
                .find(|module| is_module(image, layout, *module));
            if module.is_some() {
                return module;
            }
            at += chunk.len() as u64;
            left = left.saturating_sub(chunk.len() as u64);
        }
    }
    None
}

/// Whether the data at an address looks like a module's statement of Go's text: the start comes first, and is code.
fn is_module(image: &Image, layout: &ElfLayout, module: u64) -> bool {
    let word = |index: u64| word_at(image, layout, module.checked_add(index * 8)?);
    let text = word(TEXT_WORD).zip(word(TEXT_WORD + 1));
    text.is_some_and(|(start, end)| start < end && layout.code_section(start).is_some())
}

/// The word at an address, as it is once the program is loaded at its stated addresses.
fn word_at(image: &Image, layout: &ElfLayout, svma: u64) -> Option<u64> {
    let at = layout.in_file(svma)?;
    let mut bytes = [0; 8];
    image.read_exact_at(at.start, &mut bytes).ok()?;
    let mut word = u64::from_le_bytes(bytes);
    if word == 0 {
        for_each_relocation(image, layout, |relocation| {
            if relocation.offset == svma && relocation.kind == RELATIVE.0 {
                word = relocation.addend;
            }
        });
    }
    Some(word)
}
