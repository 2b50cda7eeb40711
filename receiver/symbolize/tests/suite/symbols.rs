//! The choice of the symbol that names an address.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;

use sidewinder_address::Svma;
use sidewinder_symbolize::{Language, Symbol, SymbolLimits, SymbolTable, SymbolTableError};

use crate::elf::{FUNC, GLOBAL, LOCAL, Made, NOTYPE, OBJECT, TEXT, TEXT_BYTES, WEAK, elf};

fn table(symbols: &[Made<'_>]) -> SymbolTable {
    SymbolTable::read(elf(symbols, &[], ""), SymbolLimits::default()).unwrap()
}

fn at(table: &SymbolTable, offset: u64) -> Option<Symbol> {
    table.lookup(Svma(TEXT + offset)).unwrap()
}

fn name(table: &SymbolTable, offset: u64) -> Option<String> {
    at(table, offset).map(|symbol| symbol.name)
}

#[test]
fn a_function_holds_its_addresses_and_no_others() {
    let table = table(&[Made(GLOBAL, FUNC, "one", 0x100, 0x20), Made(LOCAL, FUNC, "two", 0x120, 0x10)]);
    assert_eq!(name(&table, 0xff), None);
    assert_eq!(name(&table, 0x100).as_deref(), Some("one"));
    assert_eq!(name(&table, 0x11f).as_deref(), Some("one"));
    assert_eq!(name(&table, 0x120).as_deref(), Some("two"));
    assert_eq!(name(&table, 0x130), None);
    let two = at(&table, 0x12f).unwrap();
    assert_eq!((two.start, two.size), (Svma(TEXT + 0x120), 0x10));
}

#[test]
fn a_symbol_without_size_reaches_to_the_next_or_to_the_end_of_its_section() {
    let table = table(&[Made(GLOBAL, NOTYPE, "start", 0x10, 0), Made(GLOBAL, FUNC, "next", 0x40, 0)]);
    assert_eq!(name(&table, 0x3f).as_deref(), Some("start"));
    assert_eq!(name(&table, TEXT_BYTES - 1).as_deref(), Some("next"));
    assert_eq!(name(&table, TEXT_BYTES), None);
}

#[test]
fn of_nested_functions_the_innermost_is_named_and_the_outer_goes_on_behind_it() {
    let table = table(&[
        Made(GLOBAL, FUNC, "outer", 0, 0x100),
        Made(GLOBAL, FUNC, "inner", 0x20, 0x10),
        Made(GLOBAL, NOTYPE, "label", 0x40, 0),
    ]);
    assert_eq!(name(&table, 0x28).as_deref(), Some("inner"));
    assert_eq!(name(&table, 0x30).as_deref(), Some("outer"));
    assert_eq!(name(&table, 0x48).as_deref(), Some("outer"));
}

#[test]
fn of_several_names_the_best_known_is_shown() {
    let table = table(&[
        Made(LOCAL, FUNC, "__GI_read", 0, 0x10),
        Made(GLOBAL, FUNC, "__read", 0, 0x10),
        Made(WEAK, FUNC, "read@@GLIBC_2.2.5", 0, 0x10),
    ]);
    assert_eq!(name(&table, 4).as_deref(), Some("read"));
}

#[test]
fn data_and_local_labels_name_no_code() {
    let table = table(&[Made(GLOBAL, OBJECT, "table", 0, 0x10), Made(LOCAL, NOTYPE, "label", 0x10, 0)]);
    assert!(table.is_empty());
    assert_eq!(name(&table, 4), None);
}

#[test]
fn dynamic_symbols_fill_what_the_full_table_lacks() {
    let full = [Made(LOCAL, FUNC, "inside", 0, 0x10)];
    let dynamic = [Made(GLOBAL, FUNC, "exported", 0x10, 0x10), Made(GLOBAL, FUNC, "ignored", 0, 0x10)];
    let table = SymbolTable::read(elf(&full, &dynamic, ""), SymbolLimits::default()).unwrap();
    assert_eq!(name(&table, 0).as_deref(), Some("inside"));
    assert_eq!(name(&table, 0x10).as_deref(), Some("exported"));
    assert_eq!(table.len(), 2);
}

#[test]
fn only_what_the_go_linker_placed_is_go() {
    let symbols = [
        Made(LOCAL, FUNC, "runtime.text", 0x100, 0),
        Made(LOCAL, FUNC, "main.main", 0x110, 0x10),
        Made(LOCAL, FUNC, "runtime.etext", 0x200, 0),
        Made(GLOBAL, FUNC, "crosscall", 0x300, 0x10),
        Made(GLOBAL, FUNC, "_RNvC3foo3bar", 0x310, 0x10),
    ];
    let language = |section: &str, offset| {
        let table = SymbolTable::read(elf(&symbols, &[], section), SymbolLimits::default()).unwrap();
        at(&table, offset).unwrap().language
    };
    assert_eq!(language(".gopclntab", 0x110), Language::Go);
    assert_eq!(language(".gopclntab", 0x300), Language::Unknown);
    assert_eq!(language(".gopclntab", 0x310), Language::Rust);
    assert_eq!(language(".data", 0x110), Language::Unknown);
}

#[test]
fn what_a_limit_cuts_is_counted() {
    let names: Vec<_> = (0..10).map(|number| format!("f{number}")).collect();
    let symbols: Vec<_> =
        names.iter().zip(0..).map(|(name, at)| Made(GLOBAL, FUNC, name, at * 16, 16)).collect();
    let limits = SymbolLimits { symbols: 4, ..SymbolLimits::default() };
    let table = SymbolTable::read(elf(&symbols, &[], ""), limits).unwrap();
    assert_eq!((table.len(), table.cut().beyond_limit), (4, 6));

    let long = "x".repeat(1 << 20);
    let table = SymbolTable::read(elf(&[Made(GLOBAL, FUNC, &long, 0, 16)], &[], ""), SymbolLimits::default())
        .unwrap();
    let symbol = at(&table, 0).unwrap();
    assert_eq!((symbol.name.len(), symbol.is_name_cut), (4096, true));

    let far = [Made(GLOBAL, FUNC, "near", 0, 16), Made(GLOBAL, FUNC, "far", 5 << 32, 16)];
    assert_eq!(SymbolTable::read(elf(&far, &[], ""), SymbolLimits::default()).unwrap().len(), 1);
}

#[test]
fn the_vdso_is_read_from_memory() {
    let maps = BufReader::new(File::open("/proc/self/maps").unwrap());
    let Some(line) = maps.lines().map(Result::unwrap).find(|line| line.ends_with("[vdso]")) else {
        eprintln!("SKIPPED: this process has no vDSO");
        return;
    };
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
    let mut bytes = vec![0; (end - start) as usize];
    File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, start).unwrap();
    let table = SymbolTable::read(bytes, SymbolLimits::default()).unwrap();
    let found = (0..end - start).step_by(16).filter_map(|svma| table.lookup(Svma(svma)).unwrap());
    assert!(found.into_iter().any(|symbol| symbol.name.contains("gettime")));
}

#[test]
fn what_is_no_elf_file_is_said_so() {
    let read = |bytes: &[u8]| SymbolTable::read(bytes.to_vec(), SymbolLimits::default()).unwrap_err();
    assert!(matches!(read(b""), SymbolTableError::NotElf));
    assert!(matches!(read(b"#!/bin/sh\necho hello\n"), SymbolTableError::NotElf));
    let mut without_sections = elf(&[], &[], "");
    without_sections[40..48].fill(0);
    assert!(matches!(read(&without_sections), SymbolTableError::NoSections));
}
