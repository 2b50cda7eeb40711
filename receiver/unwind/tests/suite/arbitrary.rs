//! No input makes the crate panic, hang, or give rows that break the table's invariants.

use crate::support::{RA, RBP, RSP, Section, TEXT, cfa, elf, elf_with_symbols};
use object::{Object as _, ObjectSection as _};
use proptest::prelude::*;
use sidewinder_unwind::debug_file::DebugFileReference;
use sidewinder_unwind::method::method_ranges;
use sidewinder_unwind::validate::{TrustedSide, resolve_conflicts};
use sidewinder_unwind::{Entry, FileOutline, UnwindTable, code_ranges, unwind_table};

fn check(table: &UnwindTable) {
    let rows: Vec<_> = table.rows().collect();
    for pair in rows.windows(2) {
        assert!(pair[0].start < pair[1].start, "rows are sorted");
        assert_ne!(pair[0].entry, pair[1].entry, "equal neighbours are merged");
    }
    if let Some(last) = rows.last() {
        assert!(matches!(last.entry, Entry::End(_)), "the last row is an end");
    }
    for row in &rows {
        assert_eq!(table.lookup(row.start), row.entry);
    }
    for pair in method_ranges(table).collect::<Vec<_>>().windows(2) {
        assert_eq!(pair[0].end, pair[1].start);
        assert_ne!(pair[0].method, pair[1].method);
    }
}

/// The table of a file, and that of the same bytes as a file of arm64.
fn check_file(file: &[u8]) {
    let mut other = file.to_vec();
    other[18] = 183; // EM_AARCH64
    for file in [file, &other] {
        if let Ok(file) = object::File::parse(file)
            && let Ok(table) = unwind_table(&file)
        {
            check(&table);
        }
    }
}

/// An instruction that a compiler could have written, though it needn't make sense in its context.
fn instruction() -> impl Strategy<Value = Vec<u8>> {
    let register = prop_oneof![Just(RBP), Just(RSP), Just(RA), 0..40u8];
    let small = prop::collection::vec(any::<u8>(), 0..6);
    prop_oneof![
        (0..64u8).prop_map(cfa::advance),
        (register.clone(), any::<u64>()).prop_map(|(register, offset)| cfa::def_cfa(register, offset)),
        (0..200u64).prop_map(cfa::def_cfa_offset),
        register.clone().prop_map(cfa::def_cfa_register),
        (0..64u8, 0..128u8).prop_map(|(register, words)| cfa::offset(register, words)),
        (0..64u8).prop_map(cfa::restore),
        (register.clone(), small.clone()).prop_map(|(register, bytes)| cfa::expression(register, &bytes)),
        small.clone().prop_map(|bytes| cfa::def_cfa_expression(&bytes)),
        register.prop_map(cfa::undefined),
        Just(cfa::remember()),
        Just(cfa::restore_state()),
        small,
    ]
}

/// The table of all of a file's code, made from the index of its `.eh_frame`.
fn indexed(data: &[u8]) -> Option<UnwindTable> {
    let file = object::File::parse(data).ok()?;
    let outline = FileOutline::from_file::<_, &[u8]>(&file, &[]).ok()??;
    Some(outline.table_of_parts(data, &code_ranges(&file).ok()?))
}

/// The table of some functions of a file.
fn of_functions(data: &[u8]) -> Option<UnwindTable> {
    let file = object::File::parse(data).ok()?;
    let outline = FileOutline::from_file::<_, &[u8]>(&file, &[]).ok()??;
    let code = code_ranges(&file).ok()?;
    let places: Vec<_> = code.iter().flat_map(|code| [code.start, code.end]).collect();
    Some(outline.table_of_functions(data, &places))
}

/// The ranges of these sections in a file.
fn places_of(data: &[u8], names: [&str; 2]) -> Option<[std::ops::Range<usize>; 2]> {
    let file = object::File::parse(data).ok()?;
    let place = |name| {
        let (offset, bytes) = file.section_by_name(name)?.file_range()?;
        Some(usize::try_from(offset).ok()?..usize::try_from(offset + bytes).ok()?)
    };
    let [first, second] = names.map(place);
    Some([first?, second?])
}

#[test]
fn any_bytes_in_place_of_others_in_an_indexed_file_give_sorted_rows() {
    let whole = std::fs::read("/bin/sh").unwrap_or_default();
    let Some(places) = places_of(&whole, [".eh_frame_hdr", ".eh_frame"]) else { return };
    assert!(indexed(&whole).is_some_and(|table| table.len() > 100));
    let change = (any::<bool>(), any::<u32>(), any::<[u8; 4]>());
    proptest!(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }, |(
        changes in prop::collection::vec(change, 1..40),
        head in prop::option::of(any::<[u8; 12]>()),
    )| {
        let mut data = whole.clone();
        for (is_index, at, bytes) in changes {
            let place = &places[usize::from(!is_index)];
            let at = place.start + at as usize % (place.len() - 4);
            data[at..at + 4].copy_from_slice(&bytes);
        }
        if let Some(head) = head {
            data[places[0].start + 4..places[0].start + 12].copy_from_slice(&head[4..]);
        }
        if let Some(table) = indexed(&data) {
            check(&table);
        }
        if let Some(table) = of_functions(&data) {
            check(&table);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_sections_give_sorted_rows(
        eh_frame in prop::collection::vec(any::<u8>(), 0..512),
        debug_frame in prop::collection::vec(any::<u8>(), 0..512),
        pclntab in prop::collection::vec(any::<u8>(), 0..512),
    ) {
        let sections: [(&str, &[u8]); 3] =
            [(".eh_frame", &eh_frame), (".debug_frame", &debug_frame), (".gopclntab", &pclntab)];
        check_file(&elf(TEXT, &[], &sections));
    }

    #[test]
    fn functions_that_overlap_at_will_give_sorted_rows(
        functions in prop::collection::vec(
            (0..0x300u64, 0..0x200u64, prop::collection::vec(instruction(), 0..12)),
            1..12,
        ),
    ) {
        let mut section = Section::eh_frame();
        let cie = section.cie();
        for (start, length, instructions) in &functions {
            section.fde(cie, *start, *length, instructions);
        }
        check_file(&elf(TEXT + 0x80, &[], &[(".eh_frame", &section.bytes)]));
    }

    #[test]
    fn a_go_table_with_any_bytes_after_its_header_gives_sorted_rows(
        offsets in prop::collection::vec(0..256u64, 8),
        rest in prop::collection::vec(any::<u8>(), 0..512),
    ) {
        let mut table = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        offsets.iter().for_each(|word| table.extend(word.to_le_bytes()));
        table.extend(&rest);
        check_file(&elf(TEXT, &[], &[(".gopclntab", &table)]));
    }

    #[test]
    fn an_sframe_with_any_functions_and_rows_gives_sorted_rows(
        version in 1..=2u8,
        flags in 0..8u8,
        functions in prop::collection::vec((-0x5000..0i32, 0..0x200u32, 0..64u32, 0..6u32, any::<u8>()), 1..12),
        rows in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        let mut index = Vec::new();
        for (start, length, rows, count, info) in &functions {
            index.extend(start.to_le_bytes());
            [length, rows, count].iter().for_each(|field| index.extend(field.to_le_bytes()));
            index.push(*info);
            index.resize(index.len() + if version == 2 { 3 } else { 0 }, 0);
        }
        let mut section = vec![0xe2, 0xde, version, flags, 3, 0, 0xf8, 0];
        let fields = [functions.len(), 0, rows.len(), 0, index.len()];
        fields.iter().for_each(|field| section.extend((*field as u32).to_le_bytes()));
        section.extend([index, rows].concat());
        check_file(&elf(TEXT, &[], &[(".sframe", &section)]));
    }

    #[test]
    fn any_bytes_as_a_debug_link_name_no_path_that_leads_out(
        link in prop::collection::vec(prop_oneof![Just(b'/'), Just(b'.'), Just(0), any::<u8>()], 0..64),
        mini_debug_info in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let sections: [(&str, &[u8]); 2] = [(".gnu_debuglink", &link), (".gnu_debugdata", &mini_debug_info)];
        let file = elf(TEXT, &[], &sections);
        check_file(&file);
        let reference = DebugFileReference::from_file(&object::File::parse(&*file).unwrap());
        for path in reference.iter().flat_map(|reference| reference.candidates(b"/usr/bin")) {
            let mut parts = path.split(|byte| *byte == b'/');
            prop_assert!(path.starts_with(b"usr/") && parts.all(|part| !part.is_empty() && part != b".."));
        }
    }

    #[test]
    fn a_file_with_broken_bytes_gives_sorted_rows(
        broken in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut section = Section::eh_frame();
        let cie = section.cie();
        section.fde(cie, 0, 0x40, &[cfa::advance(1), cfa::def_cfa_offset(16), cfa::offset(RBP, 2)]);
        let mut file = elf(TEXT, &[], &[(".eh_frame", &section.bytes)]);
        // Only headers and sections: the code has no influence.
        let interesting: Vec<_> = (0..file.len()).filter(|at| !(120..0x5000).contains(at)).collect();
        for (at, byte) in &broken {
            let at = interesting[at.index(interesting.len())];
            file[at] = *byte;
        }
        check_file(&file);
    }
}

/// An instruction that moves the stack pointer or jumps, or arbitrary bytes.
fn machine_instruction() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0x50..0x60u8).prop_map(|code| vec![code]), // push, pop
        (any::<u8>(), any::<bool>()).prop_map(|(by, add)| vec![
            0x48,
            0x83,
            if add { 0xc4 } else { 0xec },
            by
        ]),
        any::<u8>().prop_map(|mask| vec![0x48, 0x83, 0xe4, mask]), // and %rsp
        (0x70..0x80u8, any::<u8>()).prop_map(|(code, by)| vec![code, by]), // jcc
        any::<u8>().prop_map(|by| vec![0xeb, by]),                 // jmp
        (0..0x80u8).prop_map(|by| vec![0xe8, by, 0, 0, 0]),        // call
        (0xc0..=0xffu8).prop_map(|registers| vec![0x48, 0x89, registers]), // mov
        (0..0x40u8, any::<u8>(), any::<u8>()).prop_map(|(a, b, c)| vec![0x48, 0x8d, 0x40 | a, b, c]), // lea
        Just(vec![0xc3]),
        Just(vec![0xc9]),
        Just(vec![0x48, 0x39, 0xe0]), // cmp %rsp,%rax
        prop::collection::vec(any::<u8>(), 0..8),
    ]
}

/// Instructions of arm64 that move the stack pointer, save and restore registers, and branch; and any words.
fn machine_word() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        (0..0x80u32).prop_map(|by| 0xa980_7bfd | by << 15), // stp x29, x30, [sp, #N]!
        (0..0x80u32).prop_map(|by| 0xa8c0_7bfd | by << 15), // ldp x29, x30, [sp], #N
        (0..0x20u32, 0..0x20u32).prop_map(|(to, from)| 0xf900_0000 | from << 5 | to), // str
        (0..0x20u32, 0..0x20u32).prop_map(|(to, from)| 0xf940_0000 | from << 5 | to), // ldr
        (any::<bool>(), 0..0x1000u32, 0..0x20u32).prop_map(|(subtracts, by, to)| {
            0x9100_0000 | u32::from(subtracts) << 30 | by << 10 | to << 5 | to
        }),
        Just(0x9100_03fd), // mov x29, sp
        Just(0x9100_03bf), // mov sp, x29
        Just(0x927c_ed3f), // and sp, x9, #-16
        (0..0x20u32, 0..0x20u32).prop_map(|(to, from)| 0xaa00_03e0 | from << 16 | to), // mov
        (0..0x40u32).prop_map(|by| 0x5400_0000 | by << 5), // b.eq
        any::<u8>().prop_map(|by| 0x1400_0000 | (i32::from(by.cast_signed()).cast_unsigned() & 0x03ff_ffff)), // b
        (0..0x40u32).prop_map(|by| 0x9400_0000 | by), // bl
        Just(0xd65f_03c0),
        Just(0xd61f_0200), // br x16
        any::<u32>(),
    ];
    word.prop_map(|word| word.to_le_bytes().to_vec())
}

/// Code, and the number of its architecture in the header of an ELF file.
fn machine_code() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let code = |machine, instruction| {
        prop::collection::vec(instruction, 0..200).prop_map(move |code| (machine, code.concat()))
    };
    prop_oneof![code(62, machine_instruction().boxed()), code(183, machine_word().boxed())]
}

/// The offset of that number.
const E_MACHINE: usize = 18;

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_code_gives_sorted_rows(
        (machine, code) in machine_code(),
        starts in prop::collection::vec(0..0x200u64, 0..8),
    ) {
        let symbols: Vec<_> = starts.iter().map(|start| ("f", *start, 1)).collect();
        let mut file = elf_with_symbols(TEXT, &code, &[], &symbols);
        file[E_MACHINE] = machine;
        check_file(&file);
    }

    #[test]
    fn arbitrary_code_under_arbitrary_rows_is_checked_to_the_end(
        (machine, code) in machine_code(),
        rows in prop::collection::vec(instruction(), 0..12),
        trust_code in any::<bool>(),
    ) {
        let mut section = Section::eh_frame();
        let cie = section.cie();
        section.fde(cie, 0, code.len() as u64, &rows);
        let mut file = elf(TEXT + 0x3000, &code, &[(".eh_frame", &section.bytes)]);
        file[E_MACHINE] = machine;
        let trust = if trust_code { TrustedSide::Code } else { TrustedSide::Rows };
        let file = object::File::parse(&*file).unwrap();
        check(&resolve_conflicts(&file, unwind_table(&file).unwrap(), trust).unwrap());
    }
}
