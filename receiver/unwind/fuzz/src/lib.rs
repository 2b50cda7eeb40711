//! Invariants of the table of any file, and builders of files around the fuzzed bytes.

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../tests/suite/support/mod.rs"]
mod support;

use object::File;
use sidewinder_unwind::method::method_ranges;
use sidewinder_unwind::validate::{TrustedSide, resolve_conflicts};
use sidewinder_unwind::{Entry, UnwindTable, unwind_table};

use self::support::{RA, RBP, RSP, Section, TEXT, TEXT_BYTES, cfa, elf, elf_with_symbols};

/// An ELF file with these sections.
pub fn file_of(sections: &[(&str, &[u8])]) -> Vec<u8> {
    elf(TEXT, &[], sections)
}

/// The tables of ELF files with these sections, for each architecture, checked.
pub fn check_sections(sections: &[(&str, &[u8])]) {
    let mut file = file_of(sections);
    check_file(&file);
    file[E_MACHINE] = EM_AARCH64;
    check_file(&file);
}

/// The offset of the architecture in an ELF file, and arm64's number.
const E_MACHINE: usize = 18;
const EM_AARCH64: u8 = 183;

/// The table of functions that use an expression for the CFA and for each register that matters, checked.
pub fn check_expression(expression: &[u8]) {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    let ways = [
        cfa::def_cfa_expression(expression),
        cfa::expression(RBP, expression),
        cfa::expression(RSP, expression),
        cfa::expression(RA, expression),
        cfa::val_expression(RSP, expression),
    ];
    for (start, way) in (0..).step_by(16).zip(ways) {
        section.fde(cie, start, 16, &[way]);
    }
    check_sections(&[(".eh_frame", &section.bytes)]);
}

/// The results of analyzing machine code alone, and rows that contradict it, checked.
pub fn check_code(code: &[u8]) {
    let code = &code[..code.len().min(TEXT_BYTES / 2)];
    let mut alone = elf_with_symbols(TEXT, code, &[], &[("f", 0, code.len() as u64)]);
    check_file(&alone);
    alone[E_MACHINE] = EM_AARCH64;
    check_file(&alone);

    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0, code.len() as u64, &[]);
    let mut described = elf(TEXT + TEXT_BYTES as u64 / 2, code, &[(".eh_frame", &section.bytes)]);
    check_conflicts(&described);
    described[E_MACHINE] = EM_AARCH64;
    check_conflicts(&described);
}

/// The table of a file, with either side trusted, checked.
fn check_conflicts(data: &[u8]) {
    let Ok(file) = File::parse(data) else { return };
    for trusted in [TrustedSide::Rows, TrustedSide::Code] {
        if let Ok(table) = unwind_table(&file).and_then(|table| resolve_conflicts(&file, table, trusted)) {
            check(&table);
        }
    }
}

/// The table of a file, if it has one, checked.
pub fn check_file(data: &[u8]) {
    let Ok(file) = File::parse(data) else { return };
    if let Ok(table) = unwind_table(&file) {
        check(&table);
    }
}

fn check(table: &UnwindTable) {
    let mut last = None;
    for row in table.rows() {
        assert!(last.is_none_or(|(start, entry)| start < row.start && entry != row.entry));
        assert_eq!(table.lookup(row.start), row.entry);
        last = Some((row.start, row.entry));
    }
    assert!(last.is_none_or(|(_, entry)| matches!(entry, Entry::End(_))));
    assert!(method_ranges(table).all(|range| range.start < range.end));
}
