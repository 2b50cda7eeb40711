//! The instructions of call frame information: where the CFA and the registers are.

use super::*;

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
