//! Files of arm64: the same crate makes their tables, on any machine.

use std::fs;
use std::process::Command;

use object::{Object as _, ObjectSymbol as _};
use sidewinder_address::Svma;
use sidewinder_unwind::validate::{RuleComponent, TrustedSide, resolve_conflicts, validate};
use sidewinder_unwind::{
    Architecture, Cfa, EndReason, Entry, Register, ReturnAddress, RowSource, Rule, SavedRegister,
    UnresolvedReason, UnsupportedReason, UnwindTable, unwind_table,
};

use crate::support::{Section, TEXT, TEXT_BYTES, cfa, elf_with_symbols};

const ARM64: Architecture = Architecture::Aarch64;
const LEAF: Entry = Entry::Rule(ARM64.leaf());
const END: Entry = Entry::NO_INFORMATION;

const EM_AARCH64: u8 = 183;
const SP: u8 = 31;
const X29: u8 = 29;
const X30: u8 = 30;
/// `DW_CFA_AARCH64_negate_ra_state`, and the same `_with_pc`.
const SIGNED: u8 = 0x2d;
const SIGNED_WITH_PC: u8 = 0x2c;

fn file(entry: u64, code: &[u8], sections: &[(&str, &[u8])], symbols: &[(&str, u64, u64)]) -> Vec<u8> {
    let mut file = elf_with_symbols(entry, code, sections, symbols);
    file[18] = EM_AARCH64;
    file
}

fn table_of(file: &[u8]) -> UnwindTable {
    unwind_table(&object::File::parse(file).unwrap()).unwrap()
}

/// The table of one function of 0x100 bytes at the start of the text.
fn function(instructions: &[Vec<u8>]) -> UnwindTable {
    named_function("function", 0, instructions)
}

/// The same, of a file with this entry point.
fn named_function(name: &str, entry: u64, instructions: &[Vec<u8>]) -> UnwindTable {
    let mut section = Section::eh_frame();
    section.return_address = X30;
    let cie = section.cie_with("zR", &[cfa::def_cfa(SP, 0)]);
    section.fde(cie, 0, 0x100, instructions);
    table_of(&file(entry, &[], &[(".eh_frame", &section.bytes)], &[(name, 0, 0x100)]))
}

fn rows(table: &UnwindTable) -> Vec<(u64, Entry)> {
    table.rows().map(|row| (row.start.0 - TEXT, row.entry)).collect()
}

/// A frame of 32 bytes with a frame record at its start.
fn framed(register: Register) -> Entry {
    Entry::Rule(Rule {
        cfa: Cfa::Register { register, offset: 32 },
        frame_pointer: SavedRegister::AtCfa(-32),
        return_address: ReturnAddress::AtCfa(-24),
        ..ARM64.leaf()
    })
}

/// `paciasp; stp x29, x30, [sp, #-32]!; mov x29, sp; ...; ldp x29, x30, [sp], #32; autiasp; ret`.
#[test]
fn a_leaf_returns_by_the_link_register_and_a_frame_by_its_record() {
    let table = function(&[
        cfa::advance(4),
        vec![SIGNED],
        cfa::advance(4),
        cfa::def_cfa_offset(32),
        cfa::offset(X29, 4),
        cfa::offset(X30, 3),
        cfa::advance(4),
        cfa::def_cfa_register(X29),
        cfa::advance(40),
        cfa::restore(X30),
        cfa::restore(X29),
        cfa::def_cfa(SP, 0),
        cfa::advance(4),
        vec![SIGNED],
    ]);
    assert_eq!(table.summary().malformed_total(), 0);
    let expected =
        [(0, LEAF), (8, framed(Register::Sp)), (12, framed(Register::X29)), (52, LEAF), (0x100, END)];
    assert_eq!(rows(&table), expected);
}

#[test]
fn rows_end_at_an_instruction_that_is_not_known() {
    let table = function(&[
        cfa::advance(4),
        cfa::def_cfa_offset(16),
        cfa::advance(4),
        vec![SIGNED_WITH_PC],
        cfa::advance(4),
        cfa::def_cfa_offset(32),
    ]);
    let above = Rule { cfa: Cfa::Register { register: Register::Sp, offset: 16 }, ..ARM64.leaf() };
    let unknown = Entry::End(EndReason::Unsupported(UnsupportedReason::Instruction));
    assert_eq!(rows(&table), [(0, LEAF), (4, Entry::Rule(above)), (8, unknown), (0x100, END)]);
    assert_eq!(table.summary().unsupported_rows[&UnsupportedReason::Instruction], 1);
}

#[test]
fn a_lost_return_address_is_a_root() {
    let table = function(&[cfa::undefined(X30)]);
    assert_eq!(rows(&table), [(0, Entry::Rule(ARM64.root())), (0x100, END)]);
}

#[test]
fn the_kernels_signal_return_is_known_by_name_and_code_and_marks_of_code_are_no_names() {
    let mut code = [0; 0x40];
    let call = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
    code[0x10..0x18].copy_from_slice(&call);
    code[0x20..0x28].copy_from_slice(&call);
    let symbols = [("$x", 0x10, 8), ("__kernel_rt_sigreturn", 0x10, 8), ("sigreturn", 0x20, 8)];
    let table = table_of(&file(0, &code, &[], &symbols));
    let signal_frame = Entry::Rule(ARM64.kernel_signal_frame());
    // From the byte that a walk looks up, to the address at which a thread in the call is.
    // The other function is one like any.
    let expected = [(0x0f, signal_frame), (0x19, END), (0x20, LEAF), (TEXT_BYTES as u64, END)];
    assert_eq!(rows(&table), expected);
}

#[test]
fn the_entry_point_ends_where_its_code_does() {
    // `mov x29, xzr; b; nop`.
    let code: Vec<u8> =
        [0xaa1f_03fd_u32, 0x1400_0010, 0xd503_201f].iter().flat_map(|word| word.to_le_bytes()).collect();
    let table = table_of(&file(TEXT, &code, &[], &[]));
    assert_eq!(rows(&table), [(0, LEAF), (4, Entry::Rule(ARM64.root())), (8, END)]);
}

/// The dynamic linker leaves its own return address in the register, to which `.eh_frame` of glibc's `_start` leads.
#[test]
fn the_first_instruction_of_a_program_is_as_it_is_described() {
    let cleared = [cfa::advance(4), cfa::undefined(X30)];
    let root = Entry::Rule(ARM64.root());
    let expected = [(0, LEAF), (4, root), (0x100, END)];
    for name in ["_start", "main"] {
        assert_eq!(rows(&named_function(name, TEXT, &cleared)), expected, "{name}");
        let stated_wrongly = named_function(name, TEXT, &[]);
        assert_eq!(
            rows(&stated_wrongly),
            expected,
            "{name}: what follows begins a stack, whatever is stated of it"
        );
    }
}

#[test]
fn machine_code_is_counted_and_never_taken_for_another_architectures() {
    // `push %rbp; mov %rsp,%rbp; pop %rbp; ret` of x86-64.
    let code = [0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0x90, 0x90];
    let bytes = file(0, &code.repeat(8), &[], &[]);
    let table = table_of(&bytes);
    assert!(table.is_empty());
    assert_eq!(table.summary().unresolved_bytes.keys().collect::<Vec<_>>(), [&UnresolvedReason::NotReached]);
}

const PUSH: u32 = 0xa9be_7bfd; // stp x29, x30, [sp, #-32]!
const POP: u32 = 0xa8c2_7bfd; // ldp x29, x30, [sp], #32
const RET: u32 = 0xd65f_03c0;
const NOP: u32 = 0xd503_201f;

/// The rows from code alone, with a symbol of the function at its start.
fn rows_by_code(words: &[u32]) -> Vec<(u64, Entry)> {
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    rows(&table_of(&file(0, &code, &[], &[("function", 0, code.len() as u64)])))
}

#[test]
fn functions_are_followed_along_all_paths() {
    let return_early = 0xb400_0080; // cbz x0, 16 bytes on
    assert_eq!(
        rows_by_code(&[return_early, PUSH, 0xd63f_0020, POP, RET]),
        [(0, LEAF), (8, framed(Register::Sp)), (16, LEAF), (TEXT_BYTES as u64, END)]
    );
    // `mov x29, sp; sub sp, sp, x1; blr x1; mov sp, x29`: room of any size.
    let room = [PUSH, 0x9100_03fd, 0xcb21_63ff, 0xd63f_0020, 0x9100_03bf, POP, RET];
    let with_room = rows_by_code(&room);
    assert_eq!(with_room[2..4], [(12, framed(Register::X29)), (20, framed(Register::Sp))]);
    assert_eq!(rows_by_code(&[PUSH, 0xd63f_0020, RET]), [], "a return with a frame");
}

/// The second function is known by nothing but that its first instruction saves the return address that the call before it would
/// have overwritten.
#[test]
fn a_call_before_the_first_instruction_of_a_function_does_not_return() {
    let inside = framed(Register::Sp);
    assert_eq!(
        rows_by_code(&[PUSH, NOP, 0xd63f_0020, PUSH, 0xd63f_0020, POP, RET]),
        [(0, LEAF), (4, inside), (12, LEAF), (16, inside), (24, LEAF), (TEXT_BYTES as u64, END)]
    );
}

#[test]
fn a_pair_of_instructions_points_to_a_function() {
    // `adrp x0, 0; add x0, x0, #0x1c; ret; nop...; stp; brk`: it doesn't return.
    let text = u32::try_from(TEXT & 0xfff).unwrap();
    let add = 0x9100_0000 | (text + 0x1c) << 10;
    let words = [0x9000_0000, add, RET, NOP, NOP, NOP, NOP, PUSH, 0xd420_0020];
    assert_eq!(rows_by_code(&words)[..], [(0, LEAF), (0x20, framed(Register::Sp)), (TEXT_BYTES as u64, END)]);
}

/// `stp x29, x30, [sp, #-32]!; bl; ldp x29, x30, [sp], #32; ret`, of which the rows keep the frame until after the return.
#[test]
fn a_row_that_the_code_contradicts_is_found_and_the_code_may_be_trusted() {
    let code: Vec<u8> = [0xa9be_7bfd_u32, 0x9400_0100, 0xa8c2_7bfd, 0xd65f_03c0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let mut section = Section::eh_frame();
    section.return_address = X30;
    let cie = section.cie_with("zR", &[cfa::def_cfa(SP, 0)]);
    let pushed = [cfa::advance(4), cfa::def_cfa_offset(32), cfa::offset(X29, 4), cfa::offset(X30, 3)];
    section.fde(cie, 0, 0x10, &pushed);
    let bytes = file(0, &code, &[(".eh_frame", &section.bytes)], &[]);
    let parsed = object::File::parse(&*bytes).unwrap();
    let table = table_of(&bytes);
    assert_eq!(rows(&table), [(0, LEAF), (4, framed(Register::Sp)), (0x10, END)]);

    let validation = validate(&parsed, &table).unwrap();
    let [mismatch] = &*validation.mismatches else { panic!("{:?}", validation.mismatches) };
    assert_eq!((mismatch.start.0, mismatch.end.0), (TEXT + 0xc, TEXT + 0x10));
    assert_eq!(mismatch.statement, RuleComponent::Cfa);
    assert_eq!(mismatch.code, Some(ARM64.leaf()));
    assert_eq!((validation.rows, validation.rows_wrong, validation.instructions_right), (2, 1, 3));

    let trusted = |side| rows(&resolve_conflicts(&parsed, table_of(&bytes), side).unwrap());
    assert_eq!(trusted(TrustedSide::Rows), rows(&table));
    let by_code = [(0, LEAF), (4, framed(Register::Sp)), (0xc, LEAF), (0x10, END)];
    assert_eq!(trusted(TrustedSide::Code), by_code);
}

/// Functions of a frame in a program without libraries, and the file without its `.eh_frame`.
#[test]
fn the_assemblers_sframe_says_what_its_eh_frame_says() {
    let directory = tempfile::tempdir().unwrap();
    let [source, whole, cut] = ["c.c", "whole", "cut"].map(|name| directory.path().join(name));
    fs::write(
        &source,
        "void other(char *); long leaf(long a) { return a * 3; }\n\
         long pushes(long a) { char b[64]; other(b); return leaf(a) + b[3]; }\n\
         long variable(long a) { char b[a]; other(b); return b[a / 2]; }\n\
         void other(char *a) { __asm__ volatile(\"\" :: \"r\"(a) : \"memory\"); }\n\
         void _start(void) { pushes(1); variable(2); for (;;) {} }\n",
    )
    .unwrap();
    let options = ["-O2", "-fno-inline", "-nostdlib", "-static", "-Wa,--gsframe", "-o"];
    let compile = Command::new("aarch64-linux-gnu-gcc").arg(&source).args(options).arg(&whole).output();
    if !compile.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: no aarch64-linux-gnu-gcc here whose assembler knows --gsframe");
    }
    let mut without = Command::new("aarch64-linux-gnu-objcopy");
    without.arg("--remove-section=.eh_frame").arg(&whole).arg(&cut);
    assert!(without.status().unwrap().success());
    let [whole, cut] = [whole, cut].map(|path| fs::read(path).unwrap());
    let parsed = object::File::parse(&*whole).unwrap();
    if parsed.section_by_name(".sframe").is_none() {
        return eprintln!("SKIPPED: this linker keeps no .sframe");
    }
    let (by_eh_frame, by_sframe) = (table_of(&whole), table_of(&cut));
    assert!(by_sframe.summary().functions[&RowSource::SFrame] >= 5, "{:?}", by_sframe.summary());
    let mut compared = 0;
    for symbol in parsed.symbols() {
        if ["leaf", "pushes", "variable", "other"].contains(&symbol.name().unwrap_or_default()) {
            for at in (symbol.address()..symbol.address() + symbol.size()).step_by(4) {
                assert_eq!(by_eh_frame.lookup(Svma(at)), by_sframe.lookup(Svma(at)), "at {at:#x}");
                compared += 1;
            }
        }
    }
    assert!(compared > 20);
}
