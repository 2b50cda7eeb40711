//! Given rows checked against the machine code: planted errors are found, and findings in real files are real.

use std::collections::BTreeMap;

use crate::support::{RBP, Section, TEXT, cfa, elf};
use object::{Object as _, ObjectSection as _};
use sidewinder_address::Svma;
use sidewinder_unwind::validate::{
    Mismatch, RuleComponent, TrustedSide, Validation, resolve_conflicts, validate,
};
use sidewinder_unwind::{Cfa, Entry, Rule, UnwindRow, UnwindTable, unwind_table};
use sidewinder_unwind_oracle::contradiction::Explanation;

/// push %rbp; mov %rsp,%rbp; call; pop %rbp; ret
const FUNCTION: [u8; 11] = [0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 1, 0, 0, 0x5d, 0xc3];

fn checked(instructions: &[Vec<u8>]) -> (Vec<u8>, Validation) {
    checked_function(&FUNCTION, instructions)
}

fn checked_function(code: &[u8], instructions: &[Vec<u8>]) -> (Vec<u8>, Validation) {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0, code.len() as u64, instructions);
    let file = elf(0, code, &[(".eh_frame", &section.bytes)]);
    let parsed = object::File::parse(&*file).unwrap();
    let validation = validate(&parsed, &unwind_table(&parsed).unwrap()).unwrap();
    (file.clone(), validation)
}

#[test]
fn rows_that_state_what_the_code_does_pass() {
    let (_, validation) = checked(&[
        cfa::advance(1),
        cfa::def_cfa_offset(16),
        cfa::offset(RBP, 2),
        cfa::advance(3),
        cfa::def_cfa_register(RBP),
        cfa::advance(6),
        cfa::def_cfa(7, 8),
    ]);
    assert_eq!(validation.mismatches, []);
    assert_eq!((validation.rows, validation.instructions_right, validation.instructions_open), (4, 5, 0));
}

#[test]
fn what_follows_a_call_and_padding_with_another_row_belongs_to_other_ways() {
    // push %rax; call; nopl (%rax); ret
    let code = [0x50, 0xe8, 0, 1, 0, 0, 0x0f, 0x1f, 0x00, 0xc3];
    let rows = [cfa::advance(1), cfa::def_cfa_offset(16), cfa::advance(8), cfa::def_cfa_offset(8)];
    let (_, validation) = checked_function(&code, &rows);
    assert_eq!((validation.rows, validation.mismatches), (3, vec![]));
}

#[test]
fn each_statement_that_contradicts_the_code_is_named_with_what_the_code_does() {
    let push = [cfa::advance(1), cfa::def_cfa_offset(16), cfa::offset(RBP, 2)];
    let after = |rows: &[Vec<u8>]| {
        let (_, validation) = checked(&[&push[..], rows].concat());
        let first = validation.mismatches[0];
        (first.start.0 - TEXT, first.statement, first.code)
    };
    let framed = Some(Rule::FRAME_POINTER);
    assert_eq!(after(&[cfa::advance(3), cfa::def_cfa_offset(24)]), (4, RuleComponent::Cfa, framed));
    let forgotten = [cfa::advance(3), cfa::restore(RBP)];
    assert_eq!(after(&forgotten), (4, RuleComponent::FramePointer, framed));
    let elsewhere = [cfa::advance(3), cfa::offset(crate::support::RA, 2)];
    assert_eq!(after(&elsewhere), (4, RuleComponent::ReturnAddress, framed));
    assert_eq!(after(&[]), (10, RuleComponent::Cfa, Some(Rule::LEAF)), "the pop has no row");
}

#[test]
fn the_side_that_is_trusted_holds() {
    let (file, _) = checked(&[cfa::advance(1), cfa::def_cfa_offset(24), cfa::offset(RBP, 2)]);
    let file = object::File::parse(&*file).unwrap();
    let cfas = |trust| {
        let table = resolve_conflicts(&file, unwind_table(&file).unwrap(), trust).unwrap();
        let cfa = |at: u64| table.lookup(Svma(TEXT + at)).rule().map(|rule| rule.cfa.to_string());
        [0, 1, 4, 10].map(|at| cfa(at).unwrap())
    };
    assert_eq!(cfas(TrustedSide::Rows), ["rsp+8", "rsp+24", "rsp+24", "rsp+24"]);
    assert_eq!(cfas(TrustedSide::Code), ["rsp+8", "rsp+16", "rbp+16", "rsp+8"]);
}

/// The table with one row's CFA moved by a word.
fn with_wrong_row(table: &UnwindTable, row: &UnwindRow) -> Option<UnwindTable> {
    let rule = *row.entry.rule()?;
    let Cfa::Register { register, offset } = rule.cfa else { return None };
    let wrong = Rule { cfa: Cfa::Register { register, offset: offset + 8 }, ..rule };
    let end = table.row_after(row.start)?.start;
    let planted =
        Mismatch { start: row.start, end, row: *row, statement: RuleComponent::Cfa, code: Some(wrong) };
    Some(table.with_corrections(planted.correction()))
}

#[test]
fn one_wrong_row_is_found_wherever_it_is_planted() {
    let Ok(data) = std::fs::read("/usr/bin/ls") else { return eprintln!("SKIPPED: no /usr/bin/ls") };
    let file = object::File::parse(&*data).unwrap();
    let table = unwind_table(&file).unwrap();
    assert_eq!(validate(&file, &table).unwrap().mismatches, []);
    let text = file.section_by_name(".text").unwrap().address();
    let is_compiled = |row: &UnwindRow| {
        let is_claim = |rule: &Rule| !rule.is_root() && matches!(rule.cfa, Cfa::Register { .. });
        row.start.0 >= text && row.entry.rule().is_some_and(is_claim)
    };
    let rows: Vec<UnwindRow> = table.rows().filter(is_compiled).collect();
    let (mut planted, mut found) = (0, 0);
    for row in rows.iter().step_by(rows.len() / 20) {
        let Some(wrong) = with_wrong_row(&table, row) else { continue };
        planted += 1;
        found += u32::from(validate(&file, &wrong).unwrap().rows_wrong > 0);
    }
    assert!(planted >= 20);
    assert_eq!(found, planted);
}

/// At most `rows_wrong` rows of a file contradict its code, and each is explained.
fn check(path: &str, rows_wrong: u64) {
    let Ok(data) = std::fs::read(path) else { return eprintln!("SKIPPED: {path} isn't on this machine") };
    let file = object::File::parse(&*data).unwrap();
    let validation = validate(&file, &unwind_table(&file).unwrap()).unwrap();
    let mut explained = BTreeMap::<Explanation, u64>::new();
    for mismatch in &validation.mismatches {
        let explanation = Explanation::from_mismatch(mismatch);
        assert!(explanation.is_some(), "{path}: {mismatch}");
        *explained.entry(explanation.unwrap()).or_default() += 1;
    }
    eprintln!("{path}: {} of {} rows, {explained:?}", validation.rows_wrong, validation.rows);
    assert!(validation.rows_wrong <= rows_wrong, "{path}: {:#?}", validation.mismatches);
    assert!(validation.functions_unresolved <= 1, "{path}: {}", validation.functions_unresolved);
    let judged = validation.instructions_right + validation.instructions_open;
    assert!(
        validation.instructions_open * 20 <= judged,
        "{path}: {} undecided",
        validation.instructions_open
    );
}

macro_rules! real_files {
    ($($name:ident: $path:literal, $rows:literal;)+) => {
        $(#[test]
        fn $name() {
            check($path, $rows);
        })+
    };
}

real_files! {
    the_rows_of_the_c_library_are_right_but_for_its_assembly: "/lib/x86_64-linux-gnu/libc.so.6", 3;
    the_rows_of_libcrypto_are_right_but_for_its_assembly: "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 40;
    the_rows_of_the_cpp_library_are_right: "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 0;
    the_rows_of_python_are_right: "/usr/bin/python3", 0;
    the_rows_of_bash_are_right: "/usr/bin/bash", 0;
    the_rows_of_a_rust_program_are_right_but_for_split_epilogues: "/proc/self/exe", 20;
}

#[test]
#[ignore = "takes a minute without optimization"]
fn the_rows_of_libllvm_are_right_but_for_split_epilogues() {
    check("/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", 150);
}

#[test]
fn a_row_without_a_rule_claims_nothing() {
    let file = elf(TEXT, &FUNCTION, &[]);
    let file = object::File::parse(&*file).unwrap();
    let table = unwind_table(&file).unwrap();
    assert_eq!(validate(&file, &table).unwrap(), Validation::default());
    assert!(matches!(table.lookup(Svma(TEXT + 0x3000)), Entry::End(_)));
}
