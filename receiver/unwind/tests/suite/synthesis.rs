//! Rows made from machine code alone are compared with the unwind information of the files.

use crate::support::{TEXT, elf_with_symbols};
use sidewinder_address::Svma;
use sidewinder_unwind::validate::validate;
use sidewinder_unwind::{Entry, RowSource, Rule, UnresolvedReason, UnwindRow, UnwindTable, unwind_table};
use sidewinder_unwind_oracle::stripped;

fn table_of(code: &[u8], symbols: &[(&str, u64, u64)]) -> UnwindTable {
    unwind_table(&object::File::parse(&*elf_with_symbols(0, code, &[], symbols)).unwrap()).unwrap()
}

/// The rows of a function at the start of the text: offsets and rules, up to the first unknown one.
fn rows_of(code: &[u8]) -> Vec<String> {
    let table = table_of(code, &[("f", 0, code.len() as u64)]);
    let text =
        |UnwindRow { start, entry }| format!("{} {}", start.0 - TEXT, entry.to_string().replace('\t', " "));
    table.rows().filter(|row| row.entry.rule().is_some()).map(text).collect()
}

#[test]
fn pushes_and_pops_move_the_cfa() {
    // push %rbx; sub $16,%rsp; add $16,%rsp; pop %rbx; ret
    let code = [0x53, 0x48, 0x83, 0xec, 0x10, 0x48, 0x83, 0xc4, 0x10, 0x5b, 0xc3];
    assert_eq!(
        rows_of(&code),
        [
            "0 rsp+8 same cfa-8",
            "1 rsp+16 same cfa-8",
            "5 rsp+32 same cfa-8",
            "9 rsp+16 same cfa-8",
            "10 rsp+8 same cfa-8",
        ]
    );
}

#[test]
fn a_frame_pointer_carries_the_cfa_over_what_moves_the_stack_by_a_variable() {
    // push %rbp; mov %rsp,%rbp; sub %rax,%rsp; leave; ret
    let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x29, 0xc4, 0xc9, 0xc3];
    assert_eq!(
        rows_of(&code),
        ["0 rsp+8 same cfa-8", "1 rsp+16 cfa-16 cfa-8", "4 rbp+16 cfa-16 cfa-8", "8 rsp+8 same cfa-8"]
    );
}

#[test]
fn a_realigned_stack_keeps_its_cfa_where_it_was_saved() {
    // lea 8(%rsp),%r10; and $-32,%rsp; push -8(%r10); push %rbp; mov %rsp,%rbp; push %r10; mov -8(%rbp),%r10;
    // leave; lea -8(%r10),%rsp; ret
    let code = [
        0x4c, 0x8d, 0x54, 0x24, 0x08, 0x48, 0x83, 0xe4, 0xe0, 0x41, 0xff, 0x72, 0xf8, 0x55, 0x48, 0x89, 0xe5,
        0x41, 0x52, 0x4c, 0x8b, 0x55, 0xf8, 0xc9, 0x49, 0x8d, 0x62, 0xf8, 0xc3,
    ];
    assert_eq!(
        rows_of(&code),
        [
            "0 rsp+8 same cfa-8",
            "9 r10+0 same cfa-8",
            "17 r10+0 *(rbp+0) cfa-8",
            "19 *(rsp+0) *(rbp+0) cfa-8",
            "24 r10+0 same cfa-8",
            "28 rsp+8 same cfa-8",
        ]
    );
}

/// V8's builtins remove their arguments, and return through a copy of the return address.
#[test]
fn arguments_are_removed_from_below_the_return_address() {
    // push %rbp; mov %rsp,%rbp; mov %rbp,%rdi; mov %rbp,%rsp; pop %rbp; pop %r10; lea (%rsp,%r11,8),%rsp; push %r10; ret
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0xfd, 0x48, 0x8b, 0xe5, 0x5d, 0x41, 0x5a, 0x4a, 0x8d, 0x24, 0xdc,
        0x41, 0x52, 0xc3,
    ];
    assert_eq!(
        rows_of(&code),
        [
            "0 rsp+8 same cfa-8",
            "1 rsp+16 cfa-16 cfa-8",
            "4 rbp+16 cfa-16 cfa-8",
            "11 rsp+8 same cfa-8",
            "13 rsp+0 same r10",
            "19 rsp+8 same cfa-8",
        ]
    );
    // pop %r10; add $16,%rsp; push %r10; ret
    let code = [0x41, 0x5a, 0x48, 0x83, 0xc4, 0x10, 0x41, 0x52, 0xc3];
    assert_eq!(rows_of(&code), ["0 rsp+8 same cfa-8", "2 rsp+0 same r10", "8 rsp+8 same cfa-8"]);
}

/// A call overwrites what is below the stack pointer.
#[test]
fn a_return_address_that_was_dropped_has_no_row() {
    // add $8,%rsp; call *%rax; hlt
    assert_eq!(rows_of(&[0x48, 0x83, 0xc4, 0x08, 0xff, 0xd0, 0xf4]), ["0 rsp+8 same cfa-8"]);
}

/// As musl's `__libc_start_main`, and the function that its threads begin in.
#[test]
fn a_function_that_is_only_pointed_to_needs_no_return() {
    // lea g(%rip),%rax; jmp *%rax; g: push %rbx; call *%rax; call h; h, which is aligned: ud2
    let code = |pointed_to: u8| {
        let mut code = vec![0x48, 0x8d, 0x05, pointed_to - 7, 0, 0, 0, 0xff, 0xe0];
        code.resize(16, 0xcc);
        code.extend([0x53, 0xff, 0xd0, 0xe8, 8, 0, 0, 0, 0x90]);
        code.resize(32, 0xcc);
        code.extend([0x0f, 0x0b]);
        code
    };
    let cfa = |code: &[u8], at: u64| {
        let table = table_of(code, &[("f", 0, 9)]);
        table.lookup(Svma(TEXT + at)).rule().map(|rule| rule.cfa.to_string())
    };
    let [start, after_push, at_call] = [16, 17, 19].map(|at| cfa(&code(16), at));
    assert_eq!([start, after_push, at_call].map(Option::unwrap), ["rsp+8", "rsp+16", "rsp+16"]);
    // Nothing points there, and no return proves it.
    assert_eq!(cfa(&code(17), 19), None);
}

/// Behind a call that is the last of a function, one that is pointed to begins.
#[test]
fn what_is_pointed_to_behind_a_call_is_another_function() {
    // lea g(%rip),%rax; jmp *%rax; f2: push %rbx; nops; call *%rax; g: push %rbx; pop %rbx; ret
    let mut code = vec![0x48, 0x8d, 0x05, 25, 0, 0, 0, 0xff, 0xe0];
    code.resize(16, 0xcc);
    code.push(0x53);
    code.resize(30, 0x90);
    code.extend([0xff, 0xd0, 0x53, 0x5b, 0xc3]);
    let table = table_of(&code, &[("f", 0, 9), ("f2", 16, 16)]);
    let cfa = |at: u64| table.lookup(Svma(TEXT + at)).rule().map(|rule| rule.cfa.to_string());
    assert_eq!([30, 32, 33, 34].map(cfa).map(Option::unwrap), ["rsp+16", "rsp+8", "rsp+16", "rsp+8"]);
}

/// Of a stripped musl: `__clone` follows a system call that does not return, which doesn't look like the end of a function.
#[test]
fn a_thread_of_musl_begins_in_its_clone_without_a_name() {
    // f: call clone; ret; g: mov $60,%eax; syscall; clone
    let mut code = vec![0xe8, 18, 0, 0, 0, 0xc3];
    code.resize(16, 0xcc);
    code.extend([0xb8, 60, 0, 0, 0, 0x0f, 0x05]);
    const CLONE: u64 = 23;
    code.extend([
        0x31, 0xc0, 0xb0, 0x38, 0x49, 0x89, 0xfb, 0x48, 0x89, 0xd7, 0x4c, 0x89, 0xc2, 0x4d, 0x89, 0xc8, 0x4c,
        0x8b, 0x54, 0x24, 0x08, 0x4d, 0x89, 0xd9, 0x48, 0x83, 0xe6, 0xf0, 0x48, 0x83, 0xee, 0x08, 0x48, 0x89,
        0x0e, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0x0f, 0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1, 0x89, 0xc7, 0x31, 0xc0,
        0xb0, 0x3c, 0x0f, 0x05, 0xf4, 0xc3,
    ]);
    let table = table_of(&code, &[("f", 0, 6)]);
    let rule = |at: u64| table.lookup(Svma(TEXT + CLONE + at)).to_string().replace('\t', " ");
    assert_eq!([0, 36, 55 + 1].map(rule), ["rsp+8 same cfa-8"; 3], "the caller's");
    for at in [41, 45, 47, 55] {
        assert!(rule(at).ends_with("undefined"), "{at}: {}", rule(at));
    }
    assert_eq!(table.lookup(Svma(TEXT + CLONE + 37)), Entry::Rule(Rule::AFTER_CLONE));
}

/// Free Pascal fills with zeros up to the next function, and its linker leaves no symbols.
#[test]
fn functions_after_zeros_are_found_without_symbols() {
    // call f; ret; zeros up to f: push %rbx; pop %rbx; ret
    for function in 6..16 {
        let mut code = vec![0xe8, function - 5, 0, 0, 0, 0xc3];
        code.resize(function.into(), 0);
        code.extend([0x53, 0x5b, 0xc3]);
        let table = table_of(&code, &[]);
        let cfa = |at: u8| table.lookup(Svma(TEXT + u64::from(at))).rule().map(|rule| rule.cfa.to_string());
        let found = [cfa(0), cfa(function), cfa(function + 1), cfa(function + 2)].map(Option::unwrap);
        assert_eq!(found, ["rsp+8", "rsp+8", "rsp+16", "rsp+8"], "{function}");
    }
}

#[test]
fn ways_that_disagree_on_the_stack_pointer_give_no_row() {
    // test %edi,%edi; je +1; push %rax; nop; jmp self
    let code = [0x85, 0xff, 0x74, 0x01, 0x50, 0x90, 0xeb, 0xfd];
    assert_eq!(rows_of(&code), ["0 rsp+8 same cfa-8"]);
    let table = table_of(&code, &[("f", 0, code.len() as u64)]);
    assert_eq!(table.summary().unresolved_bytes.get(&UnresolvedReason::StackPointer), Some(&3));
}

/// As browsers have.
#[test]
fn more_code_than_can_be_analyzed_in_seconds_has_no_rows_and_is_counted() {
    // push %rbx; pop %rbx; ret
    let code = [0x53, 0x5b, 0xc3].repeat(11 << 20);
    let table = table_of(&code, &[("f", 0, 3)]);
    assert_eq!(table.rows().filter(|row| row.entry.rule().is_some()).count(), 0);
    let unresolved: Vec<_> = table.summary().unresolved_bytes.iter().collect();
    assert_eq!(unresolved, [(&UnresolvedReason::TooMuchCode, &(code.len() as u64))]);
}

#[test]
fn a_function_that_returns_with_another_stack_pointer_is_not_believed() {
    // push %rax; ret
    assert!(rows_of(&[0x50, 0xc3]).is_empty());
}

#[test]
fn what_follows_a_call_that_does_not_return_belongs_to_other_ways() {
    // push %rbx; test %edi,%edi; je 1f; pop %rbx; jmp 2f; 1: call g; 2: ret; then g: ud2
    let code = [
        0x53, 0x85, 0xff, 0x74, 0x03, 0x5b, 0xeb, 0x05, 0xe8, 0x08, 0, 0, 0, 0xc3, 0x90, 0x90, 0x90, 0x90,
        0x90, 0x90, 0x90, 0x0f, 0x0b,
    ];
    assert_eq!(
        rows_of(&code),
        [
            "0 rsp+8 same cfa-8",
            "1 rsp+16 same cfa-8",
            "6 rsp+8 same cfa-8",
            "8 rsp+16 same cfa-8",
            "13 rsp+8 same cfa-8"
        ]
    );
}

#[test]
fn cases_of_a_jump_through_a_table_are_believed_where_a_return_proves_them() {
    // push %rbx; jmp *%rax; pop %rbx; ret; ud2; then a case that never returns: nop; hlt
    let code = [0x53, 0xff, 0xe0, 0x5b, 0xc3, 0x0f, 0x0b, 0x31, 0xc0, 0xf4];
    let table = table_of(&code, &[("f", 0, code.len() as u64)]);
    let cfa = |at: u64| match table.lookup(Svma(TEXT + at)) {
        Entry::Rule(rule) => rule.cfa.to_string(),
        Entry::End(reason) => reason.to_string(),
    };
    assert_eq!([cfa(1), cfa(3), cfa(4), cfa(7)], ["rsp+16", "rsp+16", "rsp+8", "no information"]);
}

/// LLVM's linker writes no unwind information for linkage tables. A call of an entry makes it a function, up to its
/// first jump.
#[test]
fn an_entry_of_a_linkage_table_that_is_called_has_one_rule_throughout() {
    const TABLE: usize = 0x40;
    // push 0x2002(%rip); jmp *0x2004(%rip); nopl 0(%rax), and an entry: jmp *0x2006(%rip); push $0; jmp to the table
    let table = [
        0xff, 0x35, 0x02, 0x20, 0, 0, 0xff, 0x25, 0x04, 0x20, 0, 0, 0x0f, 0x1f, 0x40, 0, //
        0xff, 0x25, 0x06, 0x20, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff,
    ];
    // sub $8,%rsp; call the entry; add $8,%rsp; ret
    let mut code =
        vec![0x48, 0x83, 0xec, 8, 0xe8, (TABLE + 16 - 9) as u8, 0, 0, 0, 0x48, 0x83, 0xc4, 8, 0xc3];
    code.resize(TABLE, 0xcc);
    code.extend(table);
    let mut file = elf_with_symbols(0, &code, &[(".plt", &table)], &[("f", 0, 14)]);
    // The section's header places it in the text.
    let headers = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    let (address, offset) = (headers + 2 * 64 + 16, headers + 2 * 64 + 24);
    file[address..address + 8].copy_from_slice(&(TEXT + TABLE as u64).to_le_bytes());
    file[offset..offset + 8].copy_from_slice(&(0x1000 + TABLE as u64).to_le_bytes());

    let table = unwind_table(&object::File::parse(&*file).unwrap()).unwrap();
    let rule_at = |at: usize| table.lookup(Svma(TEXT + (TABLE + at) as u64)).to_string().replace('\t', " ");
    let entry: Vec<String> = [16, 22, 27].map(rule_at).into();
    assert_eq!(entry, ["plt same cfa-8"; 3]);
    assert_eq!([0, 6].map(rule_at), ["rsp+16 same cfa-8", "rsp+24 same cfa-8"]);
}

#[test]
fn padding_between_functions_gets_no_row_of_its_own() {
    // ret, padding, ret
    let mut code = [0x90; 33];
    (code[0], code[32]) = (0xc3, 0xc3);
    assert_eq!(rows_of(&code), ["0 rsp+8 same cfa-8"]);
    let table = table_of(&code, &[("f", 0, 1), ("g", 32, 1)]);
    assert_eq!(table.len(), 2, "one rule and the end");
    assert_eq!(table.summary().functions.get(&RowSource::MachineCode), Some(&2));
}

#[test]
fn a_file_that_is_described_throughout_has_nothing_made_of_its_code() {
    let data = std::fs::read("/proc/self/exe").unwrap();
    let table = unwind_table(&object::File::parse(&*data).unwrap()).unwrap();
    let described = table.summary().functions.get(&RowSource::EhFrame).copied().unwrap_or(0);
    let made = table.summary().functions.get(&RowSource::MachineCode).copied().unwrap_or(0);
    assert!(made * 100 < described, "{made} functions of {described}");
}

/// In stripped copies of files, at least `agreeing_percent` of the code agrees, and at most 0.1% is wrong.
fn check(path: &str, agreeing_percent: f64) {
    let Ok(data) = std::fs::read(path) else { return eprintln!("SKIPPED: {path} isn't on this machine") };
    let file = object::File::parse(&*data).unwrap();
    let stated = unwind_table(&file).unwrap();
    let contradictions = validate(&file, &stated).unwrap().mismatches;
    let comparison = stripped::compare(&data, &stated, &contradictions).unwrap();
    eprintln!("{path}: {comparison}");
    assert!(comparison.wrong_percent() <= 0.1, "{path}: {:#?}", comparison.examples);
    let agreeing = comparison.agreeing_percent();
    assert!(agreeing >= agreeing_percent, "{path}: {agreeing:.2}% agree");
}

macro_rules! blind_copies {
    ($($name:ident: $path:literal, $percent:literal;)+) => {
        $(#[test]
        fn $name() {
            check($path, $percent);
        })+
    };
}

blind_copies! {
    a_blind_ls_is_recovered: "/usr/bin/ls", 90.0;
    a_blind_bash_is_recovered: "/usr/bin/bash", 95.0;
    a_blind_c_library_is_recovered: "/lib/x86_64-linux-gnu/libc.so.6", 90.0;
    a_blind_cpp_library_is_recovered: "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 85.0;
    a_blind_libcrypto_is_recovered: "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 70.0;
    a_blind_python_is_recovered: "/usr/bin/python3", 90.0;
    a_blind_rust_program_is_recovered: "/proc/self/exe", 60.0;
}

/// An entry point of any length and name: code reached from it by jumps runs in its frame, and the functions it calls
/// do not.
#[test]
fn all_that_jumps_reach_from_the_entry_point_begins_a_stack() {
    let mut code = [0x90; 0x200];
    let put = |code: &mut [u8], at: usize, bytes: &[u8]| code[at..at + bytes.len()].copy_from_slice(bytes);
    put(&mut code, 0x00, &[0xe9, 0xfb, 0, 0, 0]); // jmp 0x100
    put(&mut code, 0x80, &[0x31, 0xc0, 0xc3]); // a function: xor %eax,%eax; ret
    // test %edi,%edi; je 0x180; call 0x80; jmp 0x100
    put(&mut code, 0x100, &[0x85, 0xff, 0x74, 0x7c, 0xe8, 0x77, 0xff, 0xff, 0xff, 0xeb, 0xf5]);
    put(&mut code, 0x180, &[0x53, 0xeb, 0xfd]); // push %rbx; jmp 0x180
    let file = elf_with_symbols(TEXT, &code, &[], &[]);
    let table = unwind_table(&object::File::parse(&*file).unwrap()).unwrap();
    for at in [0x00, 0x100, 0x102, 0x108, 0x109, 0x180, 0x181] {
        assert_eq!(table.lookup(Svma(TEXT + at)), Entry::Rule(Rule::ROOT), "{at:#x}");
    }
    assert_eq!(table.lookup(Svma(TEXT + 0x80)), Entry::Rule(Rule::LEAF), "it is called");
}

/// What is known of an entry point by itself ends where its first instructions do.
#[test]
fn an_entry_point_without_jumps_begins_a_stack_to_its_end() {
    let mut code = [0x31, 0xc0].repeat(0x40); // xor %eax,%eax
    code.extend([0xeb, 0xfe]); // a jump to itself
    code.resize(0x200, 0x90);
    let file = elf_with_symbols(TEXT, &code, &[], &[]);
    let table = unwind_table(&object::File::parse(&*file).unwrap()).unwrap();
    for at in [0x00, 0x3e, 0x40, 0x42, 0x7e, 0x80] {
        assert_eq!(table.lookup(Svma(TEXT + at)), Entry::Rule(Rule::ROOT), "{at:#x}");
    }
}
