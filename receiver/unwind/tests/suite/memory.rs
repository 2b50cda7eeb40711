//! Files that would take far more memory than their size suggests, read within a budget.

use std::ops::Range;

use object::{File, ReadRef};
use sidewinder_unwind::{Entry, Memory, MemoryBudget, ReadFile, RowSource, Rule, UnwindTable, unwind_table};

use crate::sources::xz;
use crate::support::{RA, RSP, Section, TEXT, cfa, elf, elf_with_symbols};

const BUDGET_BYTES: u64 = 1 << 20;

/// A file in memory, of which a budget is left to make a table.
#[derive(Clone, Copy)]
struct LimitedFile<'data> {
    bytes: &'data [u8],
    budget: &'data MemoryBudget,
}

impl<'data> ReadRef<'data> for LimitedFile<'data> {
    fn len(self) -> Result<u64, ()> {
        ReadRef::len(self.bytes)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.bytes.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.bytes.read_bytes_at_until(range, delimiter)
    }
}

impl<'data> ReadFile<'data> for LimitedFile<'data> {
    fn memory(self) -> Memory<'data> {
        Memory::limited_by(self.budget)
    }
}

/// The table of a file that is too much for the budget. All of it is given back.
fn cut_table(bytes: &[u8]) -> UnwindTable {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let table = unwind_table(&File::parse(LimitedFile { bytes, budget: &budget }).unwrap()).unwrap();
    assert!(budget.refused_bytes().is_some(), "nothing was refused");
    assert!(budget.take(BUDGET_BYTES), "not all was given back");
    table
}

#[test]
fn the_rows_of_a_function_that_do_not_fit_are_left_out() {
    let rows = 300_000;
    let mut section = Section::debug_frame();
    let cie = section.cie_with("", &[cfa::def_cfa(RSP, 8), cfa::offset(RA, 1)]);
    let step = |row| [cfa::advance(1), cfa::def_cfa_offset(8 + 8 * (row % 2))].concat();
    let instructions: Vec<Vec<u8>> = (0..rows).map(step).collect();
    section.fde(cie, 0x10, rows, &instructions);
    section.fde(cie, 0x10 + rows, 0x10, &[]);
    let padding = vec![0xcc; 1 << 20];
    let table = cut_table(&elf(0, &padding, &[(".debug_frame", &section.bytes)]));
    let kept: Vec<(u64, Entry)> = table.rows().map(|row| (row.start.0 - TEXT, row.entry)).collect();
    let leaf = Entry::Rule(Rule::LEAF);
    assert_eq!(kept, [(0x10 + rows, leaf), (0x20 + rows, Entry::NO_INFORMATION)]);
}

#[test]
fn functions_of_one_instruction_each_end_with_the_memory() {
    const RET: u8 = 0xc3;
    cut_table(&elf(0, &vec![RET; 1 << 20], &[]));
}

#[test]
fn blocks_of_one_instruction_each_end_with_the_memory() {
    const JUMP_IF_NOT_EQUAL_TO_NEXT: [u8; 2] = [0x75, 0];
    let code = JUMP_IF_NOT_EQUAL_TO_NEXT.repeat(1 << 14);
    cut_table(&elf_with_symbols(0, &code, &[], &[("function", 0, code.len() as u64)]));
}

#[test]
fn symbols_end_with_the_memory() {
    const PUSH: u8 = 0x50;
    let names: Vec<String> = (0..100_000).map(|number| format!("f{number}")).collect();
    let symbols: Vec<(&str, u64, u64)> = names.iter().zip(0..).map(|(name, at)| (&**name, at, 1)).collect();
    cut_table(&elf_with_symbols(0, &vec![PUSH; 1 << 18], &[], &symbols));
}

#[test]
fn a_small_file_inside_that_would_be_large_is_not_unpacked() {
    let zeros = xz(&vec![0; 1 << 20]);
    assert!(zeros.len() < 10_000);
    let mut eh_frame = Section::eh_frame();
    let cie = eh_frame.cie();
    eh_frame.fde(cie, 0, 0x10, &[]);
    let file = elf(0, &[], &[(".eh_frame", &eh_frame.bytes), (".gnu_debugdata", &zeros)]);
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let limited = LimitedFile { bytes: &file, budget: &budget };
    let table = unwind_table(&File::parse(limited).unwrap()).unwrap();
    assert_eq!(
        table.rows().map(|row| row.entry).collect::<Vec<_>>(),
        [Entry::Rule(Rule::LEAF), Entry::NO_INFORMATION]
    );
    assert_eq!(table.summary().malformed[&RowSource::MiniDebugInfo], 1);
}
