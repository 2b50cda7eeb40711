//! Makes rows for Go code from Go's own table.
//!
//! `.gopclntab` states, for every instruction of every Go function, how many bytes of stack the function has taken, in
//! stripped programs too. This module finds the table and the text that it describes; `pclntab` reads its layout;
//! `function` makes the rows of one function.

mod function;
pub(crate) mod pclntab;

use object::{File, Object as _, ObjectSection as _, ReadRef};
use sidewinder_unwind_table::{EntryInterner, RowBuffer, RowSource, Summary};

use self::function::{FramePointerSaving, GoUnwindMethod, MAX_CODE_BYTES};
use self::pclntab::{Pclntab, PclntabFunction, u64_at};
use crate::arch;
use crate::elf::section_data;
use crate::known_functions::KnownFunctions;
use crate::layers::RangeStack;
use crate::read::ReadFile;
use crate::segments::CodeRanges;
use crate::symbols::for_each_code_symbol;

/// The most functions that are examined to find one that has a frame.
const MAX_FUNCTIONS_TO_LEARN_FROM: usize = 1000;

/// The sections that may hold Go's table.
pub(crate) const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// The rows of all Go functions of a file; none if it isn't a Go program.
pub(crate) fn rows<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    known: &mut KnownFunctions,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    if !arch::is_analyzed(code.architecture()) {
        return RowBuffer::default();
    }
    let section = SECTIONS.iter().find_map(|name| section_data(file, name, RowSource::GoPclntab, summary));
    let Some((data, address)) = section else { return RowBuffer::default() };
    let table = Pclntab::parse(&data);
    let text_start = table.as_ref().and_then(|table| text_start(file, code, table, address));
    match table.zip(text_start) {
        Some((table, start)) => GoCode { file, code, start }.rows(&table, known, entries, summary),
        None => {
            Summary::count(&mut summary.malformed, RowSource::GoPclntab);
            RowBuffer::default()
        }
    }
}

/// The stated address of Go's text, to which the table's addresses are relative.
fn text_start<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    table: &Pclntab<'_>,
    table_address: u64,
) -> Option<u64> {
    let stated = Some(table.stated_text_start).filter(|start| *start != 0);
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

/// Go's text in the file.
struct GoCode<'file, 'data, R: ReadRef<'data>> {
    file: &'file File<'data, R>,
    code: &'file CodeRanges,
    start: u64,
}

impl<'data, R: ReadRef<'data>> GoCode<'_, 'data, R> {
    fn rows(
        &self,
        table: &Pclntab<'_>,
        known: &mut KnownFunctions,
        entries: &mut EntryInterner,
        summary: &mut Summary,
    ) -> RowBuffer {
        let saving = table
            .functions()
            .flatten()
            .take(MAX_FUNCTIONS_TO_LEARN_FROM)
            .find_map(|function| {
                FramePointerSaving::detect(&function, |at| self.bytes(at, 1)?.first().copied())
            })
            .unwrap_or(FramePointerSaving::Push);
        let mut ranges = RangeStack::default();
        let mut out = RowBuffer::default();
        let mut last_start = 0;
        // Functions may share tables, so without a bound a small file could cause any number of steps.
        let mut steps_left = table.len();
        for function in table.functions() {
            let range = function.as_ref().and_then(|function| self.range(function, last_start));
            let Some((function, (start, end))) = function.zip(range).filter(|_| steps_left > 0) else {
                Summary::count(&mut summary.malformed, RowSource::GoPclntab);
                continue;
            };
            last_start = start;
            known.clip_to((start, end));
            if !self.code.wants((start, end)) {
                continue;
            }
            let mut rows = ranges.range((start, end));
            function::rows(&function, self.code_of(&function), saving, |at, entry| {
                steps_left = steps_left.saturating_sub(1);
                summary.count_unsupported(entry);
                if let Some(at) = self.code.offset(self.start.saturating_add(u64::from(at))) {
                    rows.push(at, entries.intern(entry));
                }
            });
            Summary::count(&mut summary.functions, RowSource::GoPclntab);
            ranges.open(rows, &mut out);
        }
        ranges.finish(&mut out);
        out
    }

    /// The range of a function's rows; `None` if it starts below the function before it.
    fn range(&self, function: &PclntabFunction<'_>, last_start: u32) -> Option<(u32, u32)> {
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
    fn code_of(&self, function: &PclntabFunction<'_>) -> &'data [u8] {
        if !GoUnwindMethod::needs_code(function) {
            return &[];
        }
        self.bytes(function.start, u64::from(function.next.saturating_sub(function.start)))
            .unwrap_or_default()
    }

    /// Code at an offset in bytes from the start of the text.
    fn bytes(&self, at: u32, length: u64) -> Option<&'data [u8]> {
        let at = self.code.offset(self.start.checked_add(u64::from(at))?)?;
        self.code.bytes(self.file, at, length.min(MAX_CODE_BYTES))
    }
}
