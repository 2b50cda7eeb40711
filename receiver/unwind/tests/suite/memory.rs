//! Files that would take far more memory than their size suggests, read within a budget.

use object::File;
use sidewinder_unwind::{
    Entry, LimitedFile, Memory, MemoryBudget, RowSource, Rule, UnwindTable, unwind_table,
};

use crate::sources::xz;
use crate::support::{RA, RSP, Section, TEXT, cfa, elf, elf_with_symbols};

const BUDGET_BYTES: u64 = 1 << 20;

/// The table of a file that is too much for the budget. All of it is given back.
fn cut_table(bytes: &[u8]) -> UnwindTable {
    let budget = MemoryBudget::new(BUDGET_BYTES);
    let table =
        unwind_table(&File::parse(LimitedFile::new(bytes, Memory::limited_by(&budget))).unwrap()).unwrap();
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
    let limited = LimitedFile::new(&file, Memory::limited_by(&budget));
    let table = unwind_table(&File::parse(limited).unwrap()).unwrap();
    assert_eq!(
        table.rows().map(|row| row.entry).collect::<Vec<_>>(),
        [Entry::Rule(Rule::LEAF), Entry::NO_INFORMATION]
    );
    assert_eq!(table.summary().malformed[&RowSource::MiniDebugInfo], 1);
}
