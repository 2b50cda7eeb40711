//! The entry for each form of call frame information, on files built for the purpose.

mod known_code;
mod rules;

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
fn a_file_without_code_or_for_another_processor_has_no_table() {
    let mut file = elf(0, &[], &[]);
    file[64 + 4] = 4; // PF_R alone
    let error = unwind_table(&object::File::parse(&*file).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "no executable segment");
    file[18] = 243; // EM_RISCV
    let error = unwind_table(&object::File::parse(&*file).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "unsupported architecture Riscv64");
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
