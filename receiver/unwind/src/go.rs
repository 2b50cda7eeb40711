//! Makes rows for Go code from Go's own table.
//!
//! `.gopclntab` states, for every instruction of every Go function, how many bytes of stack the function has taken, in
//! stripped programs too. This module finds the table and the text that it describes; `pclntab` reads its layout;
//! `function` makes the rows of one function.

mod function;
mod link_register;
pub(crate) mod pclntab;

use std::ops::Range;

use object::{CompressionFormat, File, Object as _, ObjectSection as _, ReadRef};
use sidewinder_address::Svma;
use sidewinder_unwind_table::{EntryInterner, RowBuffer, RowSource, Summary};

use self::function::{FramePointerSaving, GoUnwindMethod, MAX_CODE_BYTES};
use self::pclntab::{ByteReader, Pclntab, PclntabFunction, u64_at};
use crate::known_functions::KnownFunctions;
use crate::layers::RangeStack;
use crate::paged::PagedPart;
use crate::read::ReadFile;
use crate::segments::CodeRanges;
use crate::symbols::for_each_code_symbol;

/// The most functions that are examined to find one that has a frame.
const MAX_FUNCTIONS_TO_LEARN_FROM: usize = 1000;

/// The sections that may hold Go's table.
pub(crate) const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Where a file has Go's table, and the text that it describes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoTable {
    /// The table's location in the file.
    offset: u64,
    bytes: u64,
    /// The stated address of Go's text, to which the table's addresses are relative.
    text_start: u64,
    saving: FramePointerSaving,
}

impl GoTable {
    /// Finds the table of a file; `None` if it isn't a Go program. A table that can't be read counts as malformed.
    pub(crate) fn find<'data, R: ReadFile<'data>>(
        file: &File<'data, R>,
        code: &CodeRanges,
        summary: &mut Summary,
    ) -> Option<Self> {
        let section = SECTIONS.iter().find_map(|name| file.section_by_name(name))?;
        let range = section.compressed_file_range().ok().filter(|_| section.size() > 0);
        let range = range.filter(|range| range.format == CompressionFormat::None);
        let found = range.zip(data_of(file)).and_then(|(range, data)| {
            let part = PagedPart::new(data, range.offset, range.uncompressed_size);
            let table = Pclntab::parse(&part)?;
            let text_start = text_start(file, code, table.header().stated_text_start, section.address())?;
            let text = GoText { data, code, start: text_start };
            let functions = table.functions().take(MAX_FUNCTIONS_TO_LEARN_FROM);
            let mut functions = functions.filter_map(|index| table.function(index));
            let saving = functions.find_map(|function| {
                FramePointerSaving::detect(&function, |at| text.read(at, 1).first().copied())
            });
            Some(Self {
                offset: range.offset,
                bytes: range.uncompressed_size,
                text_start,
                saving: saving.unwrap_or(FramePointerSaving::Push),
            })
        });
        if found.is_none() {
            Summary::count(&mut summary.malformed, RowSource::GoPclntab);
        }
        found
    }

    /// The rows of the functions in the wanted code. `data` is the file.
    pub(crate) fn rows<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        code: &CodeRanges,
        known: &mut KnownFunctions,
        entries: &mut EntryInterner,
        summary: &mut Summary,
    ) -> RowBuffer {
        let part = PagedPart::new(data, self.offset, self.bytes);
        let Some(table) = Pclntab::parse(&part) else {
            Summary::count(&mut summary.malformed, RowSource::GoPclntab);
            return RowBuffer::default();
        };
        let text = GoText { data, code, start: self.text_start };
        let mut ranges = RangeStack::new(data.memory());
        let mut last_start = 0;
        // Functions may share tables, so without a bound a small file could cause any number of steps.
        let mut steps_left = self.bytes;
        for index in text.wanted_functions(&table).into_iter().flatten() {
            let function = table.function(index);
            let range = function.as_ref().and_then(|function| text.range(function, last_start));
            let Some((function, (start, end))) = function.zip(range).filter(|_| steps_left > 0) else {
                Summary::count(&mut summary.malformed, RowSource::GoPclntab);
                continue;
            };
            last_start = start;
            known.clip_to((start, end));
            if !code.wants((start, end)) {
                continue;
            }
            let mut rows = ranges.range((start, end));
            let sink = |at, entry| {
                steps_left = steps_left.saturating_sub(1);
                summary.count_unsupported(entry);
                if let Some(at) = code.offset(self.text_start.saturating_add(u64::from(at))) {
                    rows.push(at, entries.intern(entry));
                }
            };
            let (architecture, bytes) = (code.architecture(), text.code_of(&function));
            match architecture.link() {
                None => function::rows(&function, &bytes, self.saving, sink),
                Some(_) => link_register::rows(architecture, &function, &bytes, sink),
            }
            Summary::count(&mut summary.functions, RowSource::GoPclntab);
            ranges.open(rows);
        }
        ranges.finish()
    }

    /// The Go function that contains an address, with the padding behind it.
    pub(crate) fn function_at<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        address: Svma,
    ) -> Option<Range<Svma>> {
        let part = PagedPart::new(data, self.offset, self.bytes);
        let table = Pclntab::parse(&part)?;
        let at = u32::try_from(address.0.checked_sub(self.text_start)?).ok()?;
        let index = table.functions_within(&(at..at)).next()?;
        let function =
            table.function(index).filter(|function| (function.start..function.next).contains(&at))?;
        let svma = |at: u32| self.text_start.checked_add(u64::from(at)).map(Svma);
        Some(svma(function.start)?..svma(function.next)?)
    }

    /// Calls `visit` with the range of each function in the code, in order.
    pub(crate) fn for_each_function<'data, R: ReadFile<'data>>(
        &self,
        data: R,
        code: &CodeRanges,
        visit: impl FnMut((u32, u32)),
    ) {
        let part = PagedPart::new(data, self.offset, self.bytes);
        let Some(table) = Pclntab::parse(&part) else { return };
        let text = GoText { data, code, start: self.text_start };
        let functions = table.functions().filter_map(|index| table.function(index));
        functions.filter_map(|function| text.range(&function, 0)).for_each(visit);
    }
}

/// The rows of all Go functions of a file in the wanted code; none if it isn't a Go program.
pub(crate) fn rows<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    known: &mut KnownFunctions,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    match GoTable::find(file, code, summary).zip(data_of(file)) {
        Some((table, data)) => table.rows(data, code, known, entries, summary),
        None => RowBuffer::default(),
    }
}

fn data_of<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> Option<R> {
    match file {
        File::Elf64(elf) => Some(elf.data()),
        _ => None,
    }
}

/// The stated address of Go's text, to which the table's addresses are relative.
fn text_start<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    stated_in_table: u64,
    table_address: u64,
) -> Option<u64> {
    let stated = Some(stated_in_table).filter(|start| *start != 0);
    let by_module = || module_text_start(file, table_address);
    let by_symbol = || address_of_text_symbol(file);
    let by_section = || Some(file.section_by_name(".text")?.address());
    let start = stated.or_else(by_module).or_else(by_symbol).or_else(by_section)?;
    code.offset(start).map(|_| start)
}

/// The address of the symbol that Go's linker places at the start of Go's text.
fn address_of_text_symbol<'data, R: ReadFile<'data>>(file: &File<'data, R>) -> Option<u64> {
    let mut address = None;
    for_each_code_symbol(file, |symbol| {
        if symbol.name == b"runtime.text" {
            address = Some(symbol.address);
        }
    });
    address
}

/// The start of Go's text from `runtime.moduledata`, the only content of `.go.module` (Go 1.26 and later): its first
/// field is the table's address, and its 23rd word that of the text.
fn module_text_start<'data, R: ReadRef<'data>>(file: &File<'data, R>, table_address: u64) -> Option<u64> {
    const TEXT_OFFSET_BYTES: usize = 22 * 8;
    let module = file.section_by_name(".go.module")?.data().ok()?;
    (u64_at(module, 0)? == table_address).then(|| u64_at(module, TEXT_OFFSET_BYTES))?
}

/// Go's text in a file.
struct GoText<'code, R> {
    data: R,
    code: &'code CodeRanges,
    start: u64,
}

impl<'data, R: ReadFile<'data>> GoText<'_, R> {
    /// The indices of the functions that have wanted code, in order.
    fn wanted_functions(&self, table: &Pclntab<'_, R>) -> Vec<Range<u64>> {
        let Some(parts) = self.code.wanted() else { return vec![table.functions()] };
        let in_text = |at: u32| {
            let at = self.code.svma(at).0.saturating_sub(self.start);
            u32::try_from(at).unwrap_or(u32::MAX)
        };
        let mut functions: Vec<Range<u64>> = parts
            .iter()
            .map(|part| table.functions_within(&(in_text(part.start)..in_text(part.end))))
            .collect();
        functions.sort_unstable_by_key(|functions| functions.start);
        let mut end = 0;
        for functions in &mut functions {
            functions.start = functions.start.max(end);
            end = end.max(functions.end);
        }
        functions
    }

    /// The range of a function's rows; `None` if it starts below the function before it.
    fn range(&self, function: &PclntabFunction<impl ByteReader>, last_start: u32) -> Option<(u32, u32)> {
        let stated = |at: u32| self.start.checked_add(u64::from(at));
        let (start, end) = self.code.clip(stated(function.start)?, stated(function.next)?)?;
        let start = if GoUnwindMethod::from_function(function, &[]) == GoUnwindMethod::SignalReturn {
            start.saturating_sub(1).max(last_start)
        } else {
            start
        };
        (start >= last_start).then_some((start, end))
    }

    /// The code of a function whose rows depend on its code.
    fn code_of(&self, function: &PclntabFunction<impl ByteReader>) -> Vec<u8> {
        if !GoUnwindMethod::needs_code(function) {
            return Vec::new();
        }
        self.read(function.start, u64::from(function.next.saturating_sub(function.start)))
    }

    /// Code at an offset in bytes from the start of the text; none if it can't be read.
    fn read(&self, at: u32, length: u64) -> Vec<u8> {
        let at = self.start.checked_add(u64::from(at)).and_then(|at| self.code.offset(at));
        at.and_then(|at| self.code.read(self.data, at, length.min(MAX_CODE_BYTES))).unwrap_or_default()
    }
}
