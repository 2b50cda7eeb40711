//! Compares the tables that the BPF programs read, packed from the rows of real files, with those rows.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;

use sidewinder_address::{FileOffset, LoadSegment, Svma};
use sidewinder_bpf::{Outcome, PackedSegment, Packing, pack, repack};
use sidewinder_unwind::{
    EndReason, Entry, Rule, UnwindRow, UnwindSources, UnwindTable, load_segments, unwind_table,
};

/// The alignment of functions, in bytes.
const FUNCTION_ALIGNMENT_BYTES: u64 = 16;
const PAGE_BYTES: u64 = 4096;

type Packed = Vec<(LoadSegment, Vec<PackedSegment>)>;

fn packed_file(path: &str, packing: Packing) -> Option<(UnwindTable, Packed)> {
    let Ok(bytes) = std::fs::read(path) else {
        eprintln!("SKIPPED: no {path} here");
        return None;
    };
    let file = object::File::parse(&*bytes).unwrap();
    let table = unwind_table(&file).unwrap();
    let packed = load_segments(&file)
        .into_iter()
        .filter(|load| load.executable)
        .map(|load| (load, pack(&table, &load, packing)))
        .collect();
    Some((table, packed))
}

fn look_up(segments: &[PackedSegment], at: FileOffset) -> Result<Rule, Outcome> {
    segments.iter().find_map(|segment| segment.look_up(at)).unwrap()
}

/// Whether a row is the end of a function followed only by padding: packed tables omit it.
fn is_padding(row: &UnwindRow, starts: &HashSet<u64>) -> bool {
    let start = row.start.0;
    let aligned = (start + 1).next_multiple_of(FUNCTION_ALIGNMENT_BYTES);
    row.entry == Entry::NO_INFORMATION
        && !start.is_multiple_of(FUNCTION_ALIGNMENT_BYTES)
        && !aligned.is_multiple_of(PAGE_BYTES)
        && starts.contains(&aligned)
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
                    if table.row_at(Svma(svma)).is_some_and(|row| is_padding(&row, &starts)) {
                        continue;
                    }
                    let found = look_up(segments, offset);
                    let is_right = match table.lookup(Svma(svma)) {
                        // Some rules have no form that the programs support.
                        Entry::Rule(rule) => found == Ok(rule) || found == Err(Outcome::UnsupportedRule),
                        Entry::End(EndReason::NoInformation) => found == Err(Outcome::NoRule),
                        Entry::End(EndReason::NotAsked) => found == Err(Outcome::NoTable),
                        Entry::End(EndReason::Malformed | EndReason::Unsupported(_)) => {
                            found == Err(Outcome::UnsupportedRule)
                        }
                    };
                    assert!(is_right, "{path} at {svma:#x}: {found:?}");
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

/// Packs segments of a file again, from parts of it only. Returns how many.
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
            // Machine code can only be analyzed as a whole.
            if whole.by_machine_code().any(|code| code.start < part.end && part.start < code.end) {
                continue;
            }
            compared += 1;
            let table = UnwindSources::<_, &[u8]>::new(&file, &[]).unwrap().table_of(&[part]);
            let again = repack(&table, load, packing, segment.file_offset..end);
            assert!(again.bytes == segment.bytes, "{path} at {:#x}", segment.file_offset.0);
        }
    }
    eprintln!("{path}, {packing:?}: {compared} segments");
    compared
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
    let starts: HashSet<u64> = table.rows().map(|row| row.start.0).collect();
    for (load, segments) in &loads {
        for row in table.rows().filter(|row| !is_padding(row, &starts)) {
            let Some(offset) = load.file_offset_of(row.start) else { continue };
            let found = look_up(segments, offset);
            match row.entry {
                Entry::Rule(rule) if rule.is_frame_pointer() => assert_eq!(found, Ok(Rule::FRAME_POINTER)),
                Entry::Rule(rule) if rule.is_root() => {}
                _ => assert!(found.is_err(), "at {}: {found:?}", row.start),
            }
        }
    }
}
