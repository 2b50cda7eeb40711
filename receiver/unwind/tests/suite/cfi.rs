//! The entry for each form of call frame information, on files built for the purpose.

use crate::support::{RA, RBP, RSP, Section, TEXT, cfa, elf, elf_with_symbols};
use sidewinder_address::{FileOffset, LoadSegment, Svma};
use sidewinder_unwind::{
    CalleeSaved, Cfa, EndReason, Entry, Register, ReturnAddress, RowSource, Rule, SavedRegister,
    UnsupportedReason, UnwindTable, load_segments, unwind_table,
};

fn table_of(sections: &[(&str, &[u8])]) -> UnwindTable {
    let file = elf(0, &[], sections);
    unwind_table(&object::File::parse(&*file).unwrap()).unwrap()
}

fn eh_frame(section: &Section) -> UnwindTable {
    table_of(&[(".eh_frame", &section.bytes)])
}

/// The table of one function of 0x100 bytes at the start of the text.
fn function(instructions: &[Vec<u8>]) -> UnwindTable {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0, 0x100, instructions);
    eh_frame(&section)
}

/// All rows, with their starts in bytes from the start of the text.
fn rows(table: &UnwindTable) -> Vec<(u64, Entry)> {
    table.rows().map(|row| (row.start.0 - TEXT, row.entry)).collect()
}

fn at(table: &UnwindTable, offset: u64) -> Entry {
    table.lookup(Svma(TEXT + offset))
}

const END: Entry = Entry::NO_INFORMATION;
const LEAF: Entry = Entry::Rule(Rule::LEAF);

fn pushed(words: i32) -> Entry {
    Entry::Rule(Rule::above_stack_pointer(8 + 8 * words))
}

fn unsupported(reason: UnsupportedReason) -> Entry {
    Entry::End(EndReason::Unsupported(reason))
}

#[test]
fn a_function_with_a_frame_pointer_has_its_prologue_body_and_epilogue() {
    let table = function(&[
        cfa::advance(1),
        cfa::def_cfa_offset(16),
        cfa::offset(RBP, 2),
        cfa::advance(3),
        cfa::def_cfa_register(RBP),
        cfa::advance(40),
        cfa::def_cfa(RSP, 8),
    ]);
    let pushed = Rule { frame_pointer: SavedRegister::AtCfa(-16), ..Rule::above_stack_pointer(16) };
    let epilogue = Rule { frame_pointer: SavedRegister::AtCfa(-16), ..Rule::LEAF };
    assert_eq!(
        rows(&table),
        [
            (0, LEAF),
            (1, Entry::Rule(pushed)),
            (4, Entry::Rule(Rule::FRAME_POINTER)),
            (44, Entry::Rule(epilogue)),
            (0x100, END),
        ]
    );
    let text: Vec<_> = table.rows().map(|row| row.to_string()).collect();
    assert_eq!(text[2], "0x401004\trbp+16\tcfa-16\tcfa-8");
    assert_eq!(text[4], "0x401100\tend\t-\t-");
}

#[test]
fn a_gap_between_functions_is_an_end_and_adjacent_functions_merge() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0x00, 0x10, &[]);
    section.fde(cie, 0x10, 0x10, &[]);
    section.fde(cie, 0x30, 0x10, &[]);
    assert_eq!(rows(&eh_frame(&section)), [(0, LEAF), (0x20, END), (0x30, LEAF), (0x40, END)]);
}

#[test]
fn functions_may_come_in_any_order_with_several_cies() {
    let mut section = Section::eh_frame();
    let plain = section.cie();
    section.fde(plain, 0x40, 0x10, &[]);
    let framed = section.cie_with("zR", &[cfa::def_cfa(RBP, 16), cfa::offset(RA, 1), cfa::offset(RBP, 2)]);
    section.fde(framed, 0x00, 0x10, &[]);
    section.fde(plain, 0x20, 0x10, &[cfa::def_cfa_offset(16)]);
    let table = eh_frame(&section);
    assert_eq!(at(&table, 0x05), Entry::Rule(Rule::FRAME_POINTER));
    assert_eq!(at(&table, 0x25), pushed(1));
    assert_eq!(at(&table, 0x45), LEAF);
}

#[test]
fn an_inner_function_hides_a_part_of_the_outer_one() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0x20, 0x10, &[cfa::def_cfa_offset(48)]);
    section.fde(cie, 0x00, 0x80, &[cfa::advance(0x28), cfa::def_cfa_offset(16)]);
    assert_eq!(rows(&eh_frame(&section)), [(0, LEAF), (0x20, pushed(5)), (0x30, pushed(1)), (0x80, END)]);
}

#[test]
fn of_two_functions_that_start_together_the_first_in_the_section_holds() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0, 0x10, &[cfa::def_cfa_offset(16)]);
    section.fde(cie, 0, 0x20, &[cfa::def_cfa_offset(24)]);
    assert_eq!(rows(&eh_frame(&section)), [(0, pushed(1)), (0x10, pushed(2)), (0x20, END)]);
}

#[test]
fn a_bad_function_costs_itself_alone_and_is_counted() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0x00, 0x10, &[]);
    // A valid row comes before the restore_state that has nothing to restore.
    section.fde(cie, 0x10, 0x10, &[cfa::advance(4), cfa::def_cfa_offset(64), cfa::restore_state()]);
    section.fde(cie, 0x20, 0x10, &[]);
    let table = eh_frame(&section);
    let malformed = Entry::End(EndReason::Malformed);
    assert_eq!(rows(&table), [(0, LEAF), (0x10, malformed), (0x20, LEAF), (0x30, END)]);
    assert_eq!(table.summary().malformed[&RowSource::EhFrame], 1);
    assert_eq!(table.summary().functions[&RowSource::EhFrame], 2);
}

#[test]
fn a_bad_cie_costs_its_own_functions_alone() {
    let mut section = Section::eh_frame();
    let bad = section.cie_with("!?", &[]);
    section.fde(bad, 0x00, 0x10, &[]);
    let good = section.cie();
    section.fde(good, 0x10, 0x10, &[]);
    let table = eh_frame(&section);
    assert_eq!(rows(&table), [(0x10, LEAF), (0x20, END)]);
    assert_eq!(table.summary().malformed_total(), 1);
}

#[test]
fn what_follows_a_terminator_is_read_and_a_truncated_entry_ends_the_section() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0x00, 0x10, &[]);
    section.terminator();
    section.fde(cie, 0x20, 0x10, &[]);
    section.bytes.extend([0xf0, 0xff, 0xff, 0x7f, 1, 2, 3]);
    let table = eh_frame(&section);
    assert_eq!(at(&table, 0x05), LEAF);
    assert_eq!(at(&table, 0x25), LEAF);
    assert_eq!(table.summary().malformed_total(), 1);
}

#[test]
fn functions_outside_the_code_are_counted_and_leave_no_rows() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0u64.wrapping_sub(TEXT), 0x10, &[]);
    section.fde(cie, 0x00, 0x10, &[]);
    let table = eh_frame(&section);
    assert_eq!(rows(&table), [(0, LEAF), (0x10, END)]);
    assert_eq!(table.summary().outside_code[&RowSource::EhFrame], 1);
}

#[test]
fn a_range_that_runs_over_the_code_ends_with_it() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0x10, u64::MAX / 2, &[]);
    assert_eq!(rows(&eh_frame(&section)), [(0x10, LEAF), (crate::support::TEXT_BYTES as u64, END)]);
}

#[test]
fn nested_remembered_states_come_back_one_by_one() {
    let mut instructions = Vec::new();
    for depth in 1..=20 {
        instructions.extend([cfa::remember(), cfa::advance(1), cfa::def_cfa_offset(8 + 8 * depth)]);
    }
    for _ in 0..20 {
        instructions.extend([cfa::advance(1), cfa::restore_state()]);
    }
    let table = function(&instructions);
    for step in 0..=20 {
        assert_eq!(at(&table, step), pushed(step as i32), "on the way down");
        assert_eq!(at(&table, 40 - step), pushed(step as i32), "on the way up");
    }
}

#[test]
fn more_nesting_than_there_is_room_for_is_malformed_and_not_misread() {
    let instructions: Vec<_> = (0..100).map(|_| cfa::remember()).collect();
    assert_eq!(at(&function(&instructions), 0), Entry::End(EndReason::Malformed));
}

#[test]
fn frames_of_40_kilobytes_and_2_gigabytes_keep_their_offset() {
    let big = i32::MAX - 7;
    let table = function(&[
        cfa::def_cfa_offset(40_000),
        cfa::advance(1),
        cfa::def_cfa_offset(big as u64),
        cfa::advance(1),
        cfa::def_cfa_offset(1 << 31),
        cfa::advance(1),
        cfa::def_cfa_offset((1 << 32) + 16),
    ]);
    assert_eq!(at(&table, 0), Entry::Rule(Rule::above_stack_pointer(40_000)));
    assert_eq!(at(&table, 1), Entry::Rule(Rule::above_stack_pointer(big)));
    assert_eq!(at(&table, 2), unsupported(UnsupportedReason::OffsetTooLarge));
    assert_eq!(at(&table, 3), unsupported(UnsupportedReason::OffsetTooLarge), "not 16");
}

#[test]
fn both_linkage_tables_are_recognised() {
    let plt = |literal| [0x77, 8, 0x80, 0, 0x3f, 0x1a, literal, 0x2a, 0x33, 0x24, 0x22];
    let table = function(&[
        cfa::def_cfa_expression(&plt(0x3b)),
        cfa::advance(16),
        cfa::def_cfa_expression(&plt(0x3a)),
    ]);
    assert_eq!(at(&table, 0), Entry::Rule(Rule { cfa: Cfa::Plt { threshold: 11 }, ..Rule::LEAF }));
    assert_eq!(at(&table, 16), Entry::Rule(Rule { cfa: Cfa::Plt { threshold: 10 }, ..Rule::LEAF }));
}

#[test]
fn a_signal_frame_is_read_from_the_kernels_context() {
    let mut section = Section::eh_frame();
    let cie = section.cie_with("zRS", &[cfa::def_cfa(RSP, 8), cfa::offset(RA, 1)]);
    let place = |low, high| [0x77, low, high];
    section.fde(
        cie,
        0,
        0x10,
        &[
            cfa::def_cfa_expression(&[0x77, 0xa0, 0x01, 0x06]),
            cfa::expression(RBP, &place(0xf8, 0x00)),
            cfa::expression(RSP, &place(0xa0, 0x01)),
            cfa::expression(RA, &place(0xa8, 0x01)),
        ],
    );
    assert_eq!(at(&eh_frame(&section), 0), Entry::Rule(Rule::KERNEL_SIGNAL_FRAME));
}

#[test]
fn registers_hold_what_vfork_longjmp_and_assembly_keep_there() {
    let table = function(&[
        cfa::in_register(RA, 5),
        cfa::advance(1),
        cfa::restore(RA),
        cfa::def_cfa(10, 0),
        cfa::advance(1),
        // longjmp: the caller's stack pointer, frame pointer and pc are in registers.
        cfa::in_register(RSP, 8),
        cfa::in_register(RBP, 9),
        cfa::in_register(RA, 1),
    ]);
    let vfork = Rule { return_address: ReturnAddress::InRegister(Register::Rdi), ..Rule::LEAF };
    assert_eq!(at(&table, 0), Entry::Rule(vfork));
    let r10 = Cfa::Register { register: Register::R10, offset: 0 };
    assert_eq!(at(&table, 1), Entry::Rule(Rule { cfa: r10, ..Rule::LEAF }));
    let longjmp = Rule {
        cfa: Cfa::Register { register: Register::R8, offset: 0 },
        frame_pointer: SavedRegister::InRegister(Register::R9),
        return_address: ReturnAddress::InRegister(Register::Rdx),
        ..Rule::LEAF
    };
    assert_eq!(at(&table, 2), Entry::Rule(longjmp));
}

#[test]
fn a_stack_pointer_of_its_own_takes_the_cfas_place() {
    let table = function(&[
        // setcontext: the CFA is a structure in memory that holds everything.
        cfa::def_cfa(5, 16),
        vec![0x11, RSP, 0x6c],
        vec![0x11, RBP, 0x71],
        vec![0x11, RA, 0x6b],
        cfa::advance(1),
        cfa::def_cfa_expression(&[0x77, 0x08, 0x06]),
    ]);
    let register = Register::Rdi;
    let setcontext = Rule {
        cfa: Cfa::Deref { register, offset: 176, addend: 0 },
        frame_pointer: SavedRegister::At { register, offset: 136 },
        return_address: ReturnAddress::At { register, offset: 184 },
        ..Rule::LEAF
    };
    assert_eq!(at(&table, 0), Entry::Rule(setcontext));
    assert_eq!(at(&table, 1), unsupported(UnsupportedReason::StackPointer), "twice removed");
}

#[test]
fn a_realigned_stack_is_found_through_the_frame_pointer() {
    let table =
        function(&[cfa::def_cfa_expression(&[0x76, 0x78, 0x06]), cfa::expression(RBP, &[0x76, 0x00])]);
    let rule = Rule {
        cfa: Cfa::Deref { register: Register::Rbp, offset: -8, addend: 0 },
        frame_pointer: SavedRegister::At { register: Register::Rbp, offset: 0 },
        return_address: ReturnAddress::AtCfa(-8),
        ..Rule::LEAF
    };
    assert_eq!(at(&table, 0), Entry::Rule(rule));
}

#[test]
fn an_undefined_return_address_is_a_proven_end_even_beside_what_cannot_be_stated() {
    let table = function(&[cfa::undefined(RA), cfa::advance(1), cfa::def_cfa_expression(&[0x30])]);
    assert_eq!(rows(&table), [(0, Entry::Rule(Rule::ROOT)), (0x100, END)]);
}

#[test]
fn what_cannot_be_stated_ends_with_its_reason_and_the_rule_before_does_not_leak() {
    type Case = (Vec<u8>, UnsupportedReason);
    let literal = &[0x30];
    let cases: [Case; 7] = [
        (cfa::def_cfa_expression(literal), UnsupportedReason::CfaExpression),
        (cfa::def_cfa(RA, 8), UnsupportedReason::CfaRegister),
        (cfa::expression(RBP, literal), UnsupportedReason::FramePointerExpression),
        (cfa::val_expression(RBP, literal), UnsupportedReason::FramePointerRule),
        (cfa::expression(RA, literal), UnsupportedReason::ReturnAddressExpression),
        (cfa::val_expression(RA, literal), UnsupportedReason::ReturnAddressExpression),
        (vec![0x08, RA], UnsupportedReason::ReturnAddressRule),
    ];
    for (instruction, reason) in cases {
        let table = function(&[
            cfa::remember(),
            cfa::advance(4),
            instruction,
            cfa::advance(4),
            cfa::restore_state(),
            cfa::def_cfa_offset(16),
        ]);
        assert_eq!(rows(&table), [(0, LEAF), (4, unsupported(reason)), (8, pushed(1)), (0x100, END)]);
        assert_eq!(table.summary().unsupported_rows[&reason], 1);
    }
}

#[test]
fn a_cfa_register_after_an_expression_has_the_offset_from_before() {
    let table = function(&[
        cfa::def_cfa_offset(56),
        cfa::advance(4),
        cfa::def_cfa_expression(&[0x77, 0x98, 0x04, 0x06, 0x23, 56]),
        cfa::advance(4),
        cfa::def_cfa_register(RSP),
        cfa::advance(4),
        cfa::def_cfa_offset(48),
    ]);
    let saved = Cfa::Deref { register: Register::Rsp, offset: 536, addend: 56 };
    assert_eq!(
        rows(&table),
        [
            (0, pushed(6)),
            (4, Entry::Rule(Rule { cfa: saved, ..Rule::LEAF })),
            (8, pushed(6)),
            (12, pushed(5)),
            (0x100, END)
        ],
        "as libgcrypt's assembly wants it, and GCC's and LLVM's unwinders do"
    );
}

#[test]
fn a_cfa_offset_within_an_expression_waits_for_a_register() {
    let table = function(&[
        cfa::def_cfa_expression(&[0x76, 0x78, 0x06]),
        cfa::advance(4),
        cfa::def_cfa_offset(32),
        cfa::advance(4),
        cfa::def_cfa_register(RSP),
    ]);
    let saved = Cfa::Deref { register: Register::Rbp, offset: -8, addend: 0 };
    assert_eq!(
        rows(&table),
        [(0, Entry::Rule(Rule { cfa: saved, ..Rule::LEAF })), (8, pushed(3)), (0x100, END)]
    );
}

#[test]
fn a_remembered_state_holds_the_cfa_and_all_that_matters_of_the_registers() {
    let table = function(&[
        cfa::def_cfa(RBP, 16),
        cfa::offset(RBP, 2),
        cfa::remember(),
        cfa::advance(4),
        cfa::def_cfa_expression(&[0x77, 0x08, 0x06]),
        cfa::expression(RBP, &[0x77, 0x10]),
        cfa::in_register(RA, 5),
        cfa::advance(4),
        cfa::restore_state(),
    ]);
    assert_eq!(at(&table, 0), Entry::Rule(Rule::FRAME_POINTER));
    let elsewhere = Rule {
        cfa: Cfa::Deref { register: Register::Rsp, offset: 8, addend: 0 },
        frame_pointer: SavedRegister::At { register: Register::Rsp, offset: 16 },
        return_address: ReturnAddress::InRegister(Register::Rdi),
        ..Rule::LEAF
    };
    assert_eq!(at(&table, 4), Entry::Rule(elsewhere));
    assert_eq!(at(&table, 8), Entry::Rule(Rule::FRAME_POINTER));
}

#[test]
fn restore_goes_back_to_what_the_cie_said_be_it_nothing() {
    let table = function(&[
        cfa::offset(RBP, 2),
        cfa::in_register(RA, 5),
        cfa::advance(1),
        cfa::restore(RBP),
        cfa::restore(RA),
    ]);
    assert_ne!(at(&table, 0), LEAF);
    assert_eq!(at(&table, 1), LEAF);
}

#[test]
fn what_is_said_of_other_registers_costs_nothing() {
    // The pc is given by an expression, as in the slow paths of glibc's locks, and there are rules for vector
    // registers.
    let table = function(&[
        cfa::val_expression(3, &[0x30]),
        cfa::expression(17, &[0x30]),
        cfa::val_offset(12, 1),
        cfa::undefined(0),
        cfa::args_size(16),
        cfa::same_value(RBP),
        cfa::val_offset(RSP, 0),
    ]);
    assert_eq!(rows(&table), [(0, LEAF), (0x100, END)]);
    let many: Vec<_> = (17..120).map(|register| cfa::expression(register, &[0x30])).collect();
    assert_eq!(rows(&function(&many)), [(0, LEAF), (0x100, END)], "any number of them");
}

#[test]
fn offsets_may_be_signed_and_above_the_cfa() {
    let table =
        function(&[cfa::offset_extended_sf(RBP, 2), cfa::advance(1), cfa::offset_extended_sf(RBP, -3)]);
    let with = |offset| Entry::Rule(Rule { frame_pointer: SavedRegister::AtCfa(offset), ..Rule::LEAF });
    assert_eq!(rows(&table), [(0, with(-16)), (1, with(24)), (0x100, END)]);
}

#[test]
fn advances_of_each_width_and_a_set_location_start_rows() {
    let row = |words: u64| cfa::def_cfa_offset(8 + 8 * words);
    let table = function(&[
        vec![0x02, 0x10],
        row(1),
        vec![0x03, 0x10, 0],
        row(2),
        vec![0x04, 0x10, 0, 0, 0],
        row(3),
        [&[0x01][..], &(TEXT + 0x80).to_le_bytes()].concat(),
        row(4),
    ]);
    let expected =
        [(0, LEAF), (0x10, pushed(1)), (0x20, pushed(2)), (0x30, pushed(3)), (0x80, pushed(4)), (0x100, END)];
    assert_eq!(rows(&table), expected);
    let backwards = function(&[vec![0x02, 0x10], [&[0x01][..], &TEXT.to_le_bytes()].concat()]);
    assert_eq!(at(&backwards, 0), Entry::End(EndReason::Malformed));
}

#[test]
fn augmentations_of_each_kind_are_read_or_refused_alone() {
    let instructions = [cfa::def_cfa(RSP, 8), cfa::offset(RA, 1)];
    let mut section = Section::eh_frame();
    // A language's own data and personality, which walks don't need, in the order of the augmentation string.
    let personality = [&[0x00], &0x1234u64.to_le_bytes()[..]].concat();
    let data = [&[0x00][..], &personality, &[0x00]].concat();
    let cie = section.cie_with_data("zLPR", &data, &instructions);
    section.fde_with_data(cie, 0x00, 0x10, &0x5678u64.to_le_bytes(), &[]);
    let cie = section.cie_with_data("zR?", &[0x00, 0x07], &instructions);
    section.fde(cie, 0x20, 0x10, &[]);
    let cie = section.cie();
    section.fde(cie, 0x30, 0x10, &[]);
    let table = eh_frame(&section);
    assert_eq!(at(&table, 0x08), LEAF, "zLPR");
    assert_eq!(at(&table, 0x28), END, "an unknown letter, whose data may mean anything");
    assert_eq!(at(&table, 0x38), LEAF, "the one after it");
    assert_eq!(table.summary().malformed_total(), 1);
}

#[test]
fn a_return_address_without_any_rule_is_not_taken_for_an_end() {
    let mut section = Section::eh_frame();
    let cie = section.cie_with("zR", &[cfa::def_cfa(RSP, 8)]);
    section.fde(cie, 0, 0x10, &[]);
    assert_eq!(at(&eh_frame(&section), 0), unsupported(UnsupportedReason::ReturnAddressRule));
}

#[test]
fn debug_frame_fills_what_eh_frame_leaves_open() {
    let mut eh = Section::eh_frame();
    let cie = eh.cie();
    eh.fde(cie, 0x10, 0x10, &[]);
    let mut debug = Section::debug_frame();
    let cie = debug.cie_with("", &[cfa::def_cfa(RSP, 8), cfa::offset(RA, 1)]);
    debug.fde(cie, 0x00, 0x40, &[cfa::def_cfa_offset(16)]);
    let table = table_of(&[(".eh_frame", &eh.bytes), (".debug_frame", &debug.bytes)]);
    assert_eq!(rows(&table), [(0, pushed(1)), (0x10, LEAF), (0x20, pushed(1)), (0x40, END)]);
    assert_eq!(table.summary().functions[&RowSource::DebugFrame], 1);
}

#[test]
fn lengths_of_64_bits_are_read() {
    let mut section = Section::eh_frame();
    let cie = section.cie();
    let short = section.fde(cie, 0, 0x10, &[]);
    // The same FDE with an escaped length: its pointer to the CIE is relative to a position 8 bytes later.
    let body = section.bytes.split_off(short);
    let length = u64::from(u32::from_le_bytes(body[..4].try_into().unwrap()));
    section.bytes.extend(u32::MAX.to_le_bytes());
    section.bytes.extend(length.to_le_bytes());
    section.bytes.extend(((short + 12 - cie) as u32).to_le_bytes());
    section.bytes.extend(&body[8..]);
    assert_eq!(rows(&eh_frame(&section)), [(0, LEAF), (0x10, END)]);
}

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

#[test]
fn a_file_without_code_or_for_another_processor_has_no_table() {
    let mut file = elf(0, &[], &[]);
    file[64 + 4] = 4; // PF_R alone
    let error = unwind_table(&object::File::parse(&*file).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "no executable segment");
    file[18] = 183; // EM_AARCH64
    let error = unwind_table(&object::File::parse(&*file).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "unsupported architecture Aarch64");
}

#[test]
fn a_file_behind_a_read_cache_gives_the_same_rows() {
    use std::io::Write as _;

    let mut section = Section::eh_frame();
    let cie = section.cie();
    section.fde(cie, 0, 0x10, &[cfa::advance(4), cfa::def_cfa_offset(16)]);
    let bytes = elf(TEXT, &[], &[(".eh_frame", &section.bytes)]);
    let mut on_disk = tempfile::tempfile().unwrap();
    on_disk.write_all(&bytes).unwrap();
    let cache = object::ReadCache::new(on_disk);
    let cached = object::File::parse(&cache).unwrap();
    let in_memory = object::File::parse(&*bytes).unwrap();
    assert_eq!(rows(&unwind_table(&cached).unwrap()), rows(&unwind_table(&in_memory).unwrap()));
    assert_eq!(load_segments(&cached), load_segments(&in_memory));
}

#[test]
fn load_segments_are_those_of_the_headers() {
    let file = elf(0, &[], &[]);
    let text = LoadSegment {
        file_offset: FileOffset(0x1000),
        svma: Svma(TEXT),
        size: crate::support::TEXT_BYTES as u64,
        executable: true,
    };
    assert_eq!(load_segments(&object::File::parse(&*file).unwrap()), [text]);
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
