//! Code that is known by other means than its call frame information: entry points, runtimes, symbols with their code.

use super::*;

#[test]
fn the_entry_point_is_a_root_as_far_as_its_function_goes() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0x00, 0x30, &[cfa::advance(4), cfa::def_cfa_offset(16)]);
    section.fde(cie, 0x30, 0x10, &[]);
    let file = elf(TEXT, &[], &[(".eh_frame", &section.bytes)]);
    let table = unwind_table(&object::File::parse(&*file).unwrap()).unwrap();
    assert_eq!(rows(&table), [(0, Entry::Rule(Rule::ROOT)), (0x30, LEAF), (0x40, END)]);
}

#[test]
fn an_entry_point_without_information_is_a_root_up_to_the_next_function() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0x20, 0x10, &[]);
    let file = elf(TEXT + 4, &[], &[(".eh_frame", &section.bytes)]);
    let table = unwind_table(&object::File::parse(&*file).unwrap()).unwrap();
    assert_eq!(rows(&table), [(4, Entry::Rule(Rule::ROOT)), (0x20, LEAF), (0x30, END)]);
}

/// The stack pointer is a sum beside the CFA where GHC's runtime system enters Haskell. Code of that file without
/// unwind information has one rule relative to it, except for one more word around calls.
#[test]
fn haskell_goes_on_at_the_c_stack_that_it_was_entered_from() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    // 16440 in SLEB128; likewise below.
    let sum = [0x77, 0xb8, 0x80, 0x01];
    let (rbp, ra) = ([0x77, 0x88, 0x80, 0x01], [0x77, 0xb0, 0x80, 0x01]);
    let enters = [
        cfa::def_cfa(7, 0),
        cfa::val_expression(7, &sum),
        cfa::expression(6, &rbp),
        cfa::expression(RA, &ra),
    ];
    section.fde(cie, 0x00, 0x10, &enters);
    let mut code = [0x90; 0x100];
    // jmp *(%rbp); sub $8,%rsp; call; add $8,%rsp; jmp *(%rbp)
    let haskell = [
        0xff, 0x65, 0x00, 0x48, 0x83, 0xec, 0x08, 0xe8, 1, 2, 3, 4, 0x48, 0x83, 0xc4, 0x08, 0xff, 0x65, 0x00,
    ];
    code[0x20..0x20 + haskell.len()].copy_from_slice(&haskell);
    let file = elf(0, &code, &[(".eh_frame", &section.bytes)]);
    let table = unwind_table(&object::File::parse(&*file).unwrap()).unwrap();

    let above = |offset| Cfa::Register { register: Register::Rsp, offset };
    let place = |offset| (Register::Rsp, offset);
    let ((register, fp), (_, ra)) = (place(16392), place(16432));
    let entered = Rule {
        cfa: above(16440),
        frame_pointer: SavedRegister::At { register, offset: fp },
        return_address: ReturnAddress::At { register, offset: ra },
        ..Rule::LEAF
    };
    let haskell = |offset| {
        Entry::Rule(Rule { cfa: above(offset), frame_pointer: SavedRegister::AtCfa(-48), ..Rule::LEAF })
    };
    assert_eq!(table.lookup(Svma(TEXT)), Entry::Rule(entered));
    let rows: Vec<_> = rows(&table).into_iter().filter(|(at, _)| (0x20..0x33).contains(at)).collect();
    assert_eq!(table.lookup(Svma(TEXT + 0x20)), haskell(16440));
    assert_eq!(rows, [(0x27, haskell(16448)), (0x30, haskell(16440))]);
}

#[test]
fn the_dynamic_linker_says_where_rbx_is_as_far_as_its_frames_depend_on_it() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    let saves = |words| cfa::offset(3, words);
    section.fde(cie, 0x00, 0x10, &[cfa::advance(4), cfa::def_cfa_offset(16), saves(2)]);
    let plain = eh_frame(&section);
    let rbx = |table: &UnwindTable, offset| at(table, offset).rule().unwrap().callee_saved;
    assert_eq!([rbx(&plain, 0), rbx(&plain, 4)], [CalleeSaved::Unknown; 2], "no rule asks for it");
    section.fde(cie, 0x20, 0x10, &[cfa::def_cfa_register(3)]);
    let linker = eh_frame(&section);
    assert_eq!([rbx(&linker, 0), rbx(&linker, 4)], [CalleeSaved::Same, CalleeSaved::AtCfa(-16)]);
}

/// The table of code with these symbols and without call frame information.
fn code_with_symbols(code: &[u8], symbols: &[(&str, u64, u64)]) -> UnwindTable {
    let file = elf_with_symbols(0, code, &[], symbols);
    unwind_table(&object::File::parse(&*file).unwrap()).unwrap()
}

#[test]
fn a_signal_return_without_information_is_known_by_name_and_code() {
    let mut code = [0x90; 0x40];
    code[0x10..0x19].copy_from_slice(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]);
    let table = code_with_symbols(&code, &[("__restore_rt", 0x10, 9)]);
    let signal_frame = Entry::Rule(Rule::KERNEL_SIGNAL_FRAME);
    assert_eq!(rows(&table), [(0x0f, signal_frame), (0x19, END)], "from the byte that a walk looks up");
    assert!(code_with_symbols(&code, &[("__restore_rt", 0x20, 9)]).is_empty(), "the code says otherwise");
}

#[test]
fn a_clone_without_information_has_a_caller_and_a_child() {
    let mut code = [0x90; 0x20];
    // mov $56,%eax; syscall; test %eax,%eax; jnz parent; xor %ebp,%ebp; call *%r9; hlt; parent: ret
    code[..18].copy_from_slice(&[
        0xb8, 56, 0, 0, 0, 0x0f, 0x05, 0x85, 0xc0, 0x75, 6, 0x31, 0xed, 0x41, 0xff, 0xd1, 0xf4, 0xc3,
    ]);
    const AFTER_CLONE: Entry = Entry::Rule(Rule::AFTER_CLONE);
    let table = code_with_symbols(&code, &[("__clone", 0, 18)]);
    assert_eq!(
        rows(&table),
        [(0, LEAF), (7, AFTER_CLONE), (11, Entry::Rule(Rule::ROOT)), (17, LEAF), (18, END)]
    );
}

#[test]
fn a_coroutine_ends_where_makecontext_lets_it_return() {
    let mut code = [0xcc; 0x60];
    // makecontext: lea start_context(%rip),%rdi; ret
    code[..8].copy_from_slice(&[0x48, 0x8d, 0x3d, 0x39, 0, 0, 0, 0xc3]);
    code[0x40..0x43].copy_from_slice(&[0x48, 0x89, 0xdc]);
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0x40, 0x1a, &[]);
    let sections: [(&str, &[u8]); 1] = [(".eh_frame", &section.bytes)];
    let file = elf_with_symbols(0, &code, &sections, &[("makecontext", 0, 8)]);
    let table = unwind_table(&object::File::parse(&*file).unwrap()).unwrap();
    assert_eq!(rows(&table), [(0, LEAF), (0x3f, Entry::Rule(Rule::ROOT)), (0x5a, END)]);
}

/// The last part of the function that makes Boost.Context's coroutines is what they begin with, and return to.
#[test]
fn a_coroutine_begins_in_make_fcontext() {
    // ret; lea 16(%rip),%rcx; lea 8(%rip),%rcx; ret; push %rbp; jmp *%rbx; xor %rdi,%rdi; call _exit; hlt
    let make_fcontext = [
        0x90, 0x48, 0x8d, 0x0d, 0x0c, 0, 0, 0, 0x48, 0x8d, 0x0d, 0x08, 0, 0, 0, 0x90, 0x90, 0x90, 0x90, 0xc3,
        0x55, 0xff, 0xe3, 0x48, 0x31, 0xff, 0xe8, 1, 2, 3, 4, 0xf4,
    ];
    let table = code_with_symbols(&make_fcontext, &[("make_fcontext", 0, make_fcontext.len() as u64)]);
    let returns_to = 23;
    assert_eq!(at(&table, returns_to - 1), Entry::Rule(Rule::ROOT));
    assert_eq!(at(&table, 0x14), Entry::Rule(Rule::ROOT));
    assert_ne!(at(&table, 0x13), Entry::Rule(Rule::ROOT), "it is called itself");
}
