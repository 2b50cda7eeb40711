use std::collections::HashSet;

use sidewinder_unwind::Sources;
use sidewinder_unwind_table::Rule;

use super::lookup;
use super::*;
use crate::intf::{self, sw_rule};
use crate::outcome::Outcome;

fn rule_at(segment: &PackedSegment, offset: u64) -> sw_rule {
    lookup::rule_at(&segment.bytes, FileOffset(offset)).unwrap()
}

type Packed = Vec<(LoadSegment, Vec<PackedSegment>)>;

fn packed_file(path: &str, packing: Packing) -> Option<(UnwindTable, Packed)> {
    let Ok(bytes) = std::fs::read(path) else {
        eprintln!("SKIPPED: no {path} here");
        return None;
    };
    let file = object::File::parse(&*bytes).unwrap();
    let table = sidewinder_unwind::unwind_table(&file).unwrap();
    let loads = sidewinder_unwind::load_segments(&file);
    let packed = loads
        .into_iter()
        .filter(|load| load.executable)
        .map(|load| (load, pack(&table, &load, packing)))
        .collect();
    Some((table, packed))
}

#[test]
fn at_each_row_and_beside_it_a_packed_table_says_what_the_rows_say() {
    for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/bin/bash"] {
        let Some((table, loads)) = packed_file(path, Packing::Auto) else { continue };
        let mut compared = 0;
        let starts: HashSet<u64> = table.rows().map(|row| row.start.0).collect();
        for (load, segments) in &loads {
            for row in table.rows() {
                for svma in [row.start.0 - 1, row.start.0, row.start.0 + 1] {
                    let Some(offset) = load.file_offset_of(Svma(svma)) else { continue };
                    let segment = segments
                        .iter()
                        .find(|s| offset.0 >= s.file_offset.0 && offset.0 < s.file_offset.0 + s.text_bytes)
                        .unwrap();
                    let row = table.row_at(Svma(svma));
                    let aligned = svma.next_multiple_of(FUNCTION_ALIGNMENT_BYTES);
                    if row.is_some_and(|row| is_padding(&row, Svma(aligned)) && starts.contains(&aligned)) {
                        continue;
                    }
                    let expected = sw_rule::new(table.lookup(Svma(svma)), Packing::Auto);
                    assert!(rule_at(segment, offset.0) == expected, "{path} at {svma:#x}");
                    if let Entry::Rule(rule) = table.lookup(Svma(svma)) {
                        let found = look_up(&segment.bytes, offset);
                        assert!(found == Some(Ok(rule)) || found == Some(Err(Outcome::UnsupportedRule)));
                    }
                    compared += 1;
                }
            }
        }
        assert!(compared > 10_000, "{path}: only {compared} places compared");
    }
}

#[test]
fn a_segment_packed_again_from_its_part_of_the_file_is_the_same() {
    let files = ["/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/bin/python3", "/usr/bin/gdb"];
    let packings = [Packing::Auto, Packing::Tables, Packing::FramePointers];
    let compared = packings
        .map(|packing| -> usize { files.iter().map(|path| packed_again_the_same(path, packing)).sum() });
    assert!(compared.iter().sum::<usize>() > 0, "no segment could be compared");
}

/// Packs segments of a file again, of its parts alone. Returns how many.
fn packed_again_the_same(path: &str, packing: Packing) -> usize {
    let Some((whole, loads)) = packed_file(path, packing) else { return 0 };
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut compared = 0;
    for (load, segments) in &loads {
        for segment in segments {
            let end = segment.file_offset.checked_add(segment.text_bytes).unwrap();
            let first = segment.file_offset.max(load.file_offset);
            let last = FileOffset(end.0.min(load.file_offset.0 + load.size) - 1);
            let part = load.svma_of(first).unwrap()..Svma(load.svma_of(last).unwrap().0 + 1);
            // Machine code is understood as a whole or not at all.
            if whole.by_machine_code().any(|code| code.start < part.end && part.start < code.end) {
                continue;
            }
            compared += 1;
            let table = Sources::<_, &[u8]>::of(&file, &[]).unwrap().table_of(&[part]);
            let again = pack_again(&table, load, packing, segment.file_offset..end);
            assert!(again.bytes == segment.bytes, "{path} at {:#x}", segment.file_offset.0);
        }
    }
    eprintln!("{path}, {packing:?}: {compared} segments");
    compared
}

#[test]
fn only_a_gap_too_small_for_an_aligned_function_is_padding() {
    let rows = |gap: u64, next: u64| {
        let row = |start, entry| Row { start: Svma(start), entry };
        let (leaf, end) = (Entry::Rule(Rule::LEAF), Entry::NO_INFORMATION);
        without_padding([row(0x1000, leaf), row(gap, end), row(next, leaf)].into_iter()).count()
    };
    assert_eq!(rows(0x1021, 0x1030), 2, "padding");
    assert_eq!(rows(0x1020, 0x1030), 3, "an aligned function fits");
    assert_eq!(rows(0x1021, 0x1028), 3, "the next function isn't aligned");
    assert_eq!(rows(0x101f, 0x1030), 3, "an aligned function lies between");
    assert_eq!(rows(0x1ff1, 0x2000), 3, "the next function is on another page");
}

#[test]
fn a_table_is_a_small_part_of_its_text() {
    for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"] {
        let Some((_, loads)) = packed_file(path, Packing::Auto) else { continue };
        let text: u64 = loads.iter().map(|(load, _)| load.size).sum();
        let bytes: usize = loads.iter().flat_map(|(_, segments)| segments).map(|s| s.bytes.len()).sum();
        assert!((bytes as f64) < 0.09 * text as f64, "{path}: {bytes} bytes for {text} of text");
    }
}

#[test]
fn with_tables_switched_off_only_proven_ranges_walk() {
    let Some((table, loads)) = packed_file("/lib/x86_64-linux-gnu/libc.so.6", Packing::FramePointers) else {
        return;
    };
    let frame_pointer = sw_rule::from(&Rule::FRAME_POINTER);
    for (load, segments) in &loads {
        for row in without_padding(table.rows()) {
            let Some(offset) = load.file_offset_of(row.start) else { continue };
            let segment = segments
                .iter()
                .find(|s| offset.0 >= s.file_offset.0 && offset.0 < s.file_offset.0 + s.text_bytes)
                .unwrap();
            let rule = rule_at(segment, offset.0);
            let is_root = matches!(row.entry, Entry::Rule(rule) if rule.is_root());
            let proven = matches!(row.entry, Entry::Rule(rule) if rule.is_frame_pointer());
            if proven {
                assert!(rule_at(segment, offset.0) == frame_pointer);
            } else if !is_root {
                assert_eq!(rule.cfa_base(), intf::SW_CFA_NONE as u8);
            }
        }
    }
}
