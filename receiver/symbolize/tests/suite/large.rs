//! Large files, and files built so that reading them never ends: memory stays within the budget.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ObjectSymbol};
use proptest::prelude::*;
use sidewinder_address::Svma;
use sidewinder_symbolize::{BinaryFiles, BinaryId, Image, Lookup, Symbolizer};

use crate::elf::{FUNC, GLOBAL, Made, TEXT, elf};
use crate::lines::{runs, symbolizer};

const BUDGET_BYTES: usize = 32 << 20;

const SOURCE: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
    static inline int twice(int x) { return x * 2 + rand(); }\n\
    int __attribute__((noinline)) work(int x) { return twice(x) + 1; }\n\
    int main(int count, char **texts) { (void)texts; printf(\"%d\", work(count)); return 0; }\n";

/// A program with debug information and the address of `work`.
fn program() -> Option<(tempfile::TempDir, PathBuf, Svma)> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.c"), SOURCE).unwrap();
    if !runs(folder.path(), &["gcc", "-g", "-O2", "-o", "p", "p.c"]) {
        return None;
    }
    let path = folder.path().join("p");
    let bytes = std::fs::read(&path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let work = file.symbols().find(|symbol| symbol.name() == Ok("work")).unwrap().address();
    Some((folder, path, Svma(work)))
}

/// Enlarges the debug information of a program by repeating its units, which don't depend on their position.
fn enlarge(folder: &Path, program: &Path, bytes: usize) {
    let content = std::fs::read(program).unwrap();
    let file = object::File::parse(&*content).unwrap();
    let units = file.section_by_name(".debug_info").unwrap().uncompressed_data().unwrap();
    let mut out = BufWriter::new(File::create(folder.join("units")).unwrap());
    for _ in 0..bytes / units.len() {
        out.write_all(&units).unwrap();
    }
    out.into_inner().unwrap();
    runs(folder, &["objcopy", "--update-section", ".debug_info=units", "p"]);
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn chain(symbolizer: &mut Symbolizer, files: impl BinaryFiles, svma: Svma) -> Vec<(String, u32)> {
    match symbolizer.name(BinaryId(1), files, svma) {
        Lookup::Unnamed { why, .. } => panic!("{why:?}"),
        Lookup::Named(frames) => {
            frames.iter().map(|frame| (frame.name.system_name.to_string(), frame.line)).collect()
        }
    }
}

#[test]
fn lines_come_from_hundreds_of_megabytes_of_debug_information_in_a_few() {
    let Some((folder, program, work)) = program() else { return };
    enlarge(folder.path(), &program, 300 << 20);
    assert!(program.metadata().unwrap().len() > 300 << 20);
    let before = resident_bytes();
    let mut symbolizer = symbolizer(BUDGET_BYTES);
    let chain = chain(&mut symbolizer, || File::open(&program), work);
    assert_eq!(chain.last().unwrap().0, "work");
    assert!(chain.iter().all(|(_, line)| *line > 0), "{chain:?}");
    assert!(symbolizer.held_bytes() <= BUDGET_BYTES);
    // Other tests run concurrently with this one.
    assert!(resident_bytes() < before + (128 << 20), "{before} bytes before");
}

#[test]
fn compressed_debug_information_is_read_in_pieces() {
    let Some((folder, program, work)) = program() else { return };
    enlarge(folder.path(), &program, 64 << 20);
    let plain = std::fs::read(&program).unwrap();
    let all = |symbolizer: &mut Symbolizer| -> Vec<_> {
        (0..8).map(|at| chain(symbolizer, || File::open(&program), Svma(work.0 + at))).collect()
    };
    let expected = all(&mut symbolizer(BUDGET_BYTES));
    assert!(expected[0].iter().all(|(_, line)| *line > 0), "{expected:?}");
    for format in ["zlib", "zstd"] {
        std::fs::write(&program, &plain).unwrap();
        runs(folder.path(), &["objcopy", &format!("--compress-debug-sections={format}"), "p"]);
        assert!(program.metadata().unwrap().len() < 16 << 20);
        let before = resident_bytes();
        let mut symbolizer = symbolizer(BUDGET_BYTES);
        assert_eq!(all(&mut symbolizer), expected, "{format}");
        assert!(symbolizer.held_bytes() <= BUDGET_BYTES);
        // Other tests run concurrently with this one.
        assert!(resident_bytes() < before + (128 << 20), "{before} bytes before");
    }
}

#[test]
fn compressed_debug_information_without_room_is_left_out_and_counted() {
    let Some((folder, program, work)) = program() else { return };
    enlarge(folder.path(), &program, 8 << 20);
    let plain = std::fs::read(&program).unwrap();
    // Zstandard refers back to data two MiB before.
    for (format, budget_bytes) in [("zlib", 200 << 10), ("zstd", 4 << 20)] {
        std::fs::write(&program, &plain).unwrap();
        runs(folder.path(), &["objcopy", &format!("--compress-debug-sections={format}"), "p"]);
        let mut symbolizer = symbolizer(budget_bytes);
        assert_eq!(chain(&mut symbolizer, || File::open(&program), work), [("work".to_owned(), 0)]);
        assert_eq!(symbolizer.stats().files_without_lines, 1, "{format}");
        assert!(symbolizer.held_bytes() < budget_bytes);
    }
}

/// Decompression of it is bounded, and hitting the bound is counted.
#[test]
fn debug_information_that_unpacks_without_end_is_left_in_time() {
    let Some((folder, program, work)) = program() else { return };
    enlarge(folder.path(), &program, 512 << 20);
    runs(folder.path(), &["objcopy", "--compress-debug-sections=zlib", "p"]);
    let mut symbolizer = symbolizer(BUDGET_BYTES);
    assert_eq!(chain(&mut symbolizer, || File::open(&program), work).last().unwrap().0, "work");
    assert_eq!(symbolizer.stats().files_without_lines, 1);
    assert!(symbolizer.held_bytes() <= BUDGET_BYTES);
}

#[test]
fn of_two_million_symbols_as_many_are_kept_as_there_is_room_for_and_the_rest_is_counted() {
    const SYMBOLS: usize = 2_000_000;
    let names: Vec<String> = (0..SYMBOLS).map(|number| format!("f{number}")).collect();
    // Four bytes each would exceed the size of the text in the headers.
    let symbols: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, name)| Made(GLOBAL, FUNC, name, (number % 4096) as u64, 1))
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), elf(&symbols, &[], "")).unwrap();
    let mut symbolizer = symbolizer(BUDGET_BYTES);
    let named = chain(&mut symbolizer, || File::open(file.path()), Svma(TEXT + 7));
    assert!(named[0].0.starts_with('f'));
    assert!(symbolizer.held_bytes() <= BUDGET_BYTES);
    assert!(symbolizer.stats().symbols_left_out > 0 && symbolizer.stats().symbols_left_out < SYMBOLS as u64);
}

/// The program, and a modified copy of its debug file.
struct Changed<'a>(&'a Path, Vec<u8>);

impl BinaryFiles for &Changed<'_> {
    fn content(&self) -> io::Result<Image> {
        Ok(File::open(self.0)?.into())
    }

    fn debug_file(&self) -> Option<Image> {
        Some(self.1.clone().into())
    }
}

#[test]
fn debug_information_of_any_bytes_is_survived() {
    let Some((folder, program, work)) = program() else { return };
    runs(folder.path(), &["objcopy", "--only-keep-debug", "p", "p.debug"]);
    runs(folder.path(), &["strip", "--strip-debug", "p"]);
    let whole = std::fs::read(folder.path().join("p.debug")).unwrap();
    let mut sections: Vec<std::ops::Range<usize>> = Vec::new();
    {
        let file = object::File::parse(&*whole).unwrap();
        for section in
            file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug")))
        {
            let (start, size) = section.file_range().unwrap();
            sections.push(start as usize..(start + size) as usize);
        }
    }
    let changes = prop::collection::vec(
        (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u64>(), 1_usize..9),
        1..6,
    );
    proptest!(ProptestConfig::with_cases(300), |(changes in changes)| {
        let mut bytes = whole.clone();
        for (section, at, value, width) in changes {
            let section = sections[section.index(sections.len())].clone();
            let at = section.start + at.index(section.len());
            bytes.iter_mut().skip(at).zip(value.to_le_bytes()).take(width).for_each(|(to, from)| *to = from);
        }
        let changed = Changed(&program, bytes);
        let mut symbolizer = symbolizer(4 << 20);
        for at in 0..8 {
            // The symbol is the program's own, whatever its debug file contains.
            let frames = chain(&mut symbolizer, &changed, Svma(work.0 + at));
            prop_assert_eq!(&*frames.last().unwrap().0, "work");
        }
        prop_assert!(symbolizer.held_bytes() <= 4 << 20);
    });
}

#[test]
fn a_debug_file_that_shrinks_gives_names_without_lines_and_no_signal() {
    let Some((_folder, program, work)) = program() else { return };
    let mut symbolizer = symbolizer(1 << 20);
    let whole = chain(&mut symbolizer, || File::open(&program), work);
    assert!(whole[0].1 > 0);
    let file = File::options().write(true).open(&program).unwrap();
    file.set_len(4096).unwrap();
    for at in 1..64 {
        let _ = symbolizer.name(BinaryId(1), || File::open(&program), Svma(work.0 + at));
    }
}

#[test]
fn a_sparse_file_of_units_without_end_is_left_in_time() {
    let Some((_folder, program, work)) = program() else { return };
    // A terabyte of zeros in place of the units: each is a unit of length 0.
    let content = std::fs::read(&program).unwrap();
    let sections = u64::from_le_bytes(content[40..48].try_into().unwrap());
    let file = object::File::parse(&*content).unwrap();
    let index = file.section_by_name(".debug_info").unwrap().index().0 as u64;
    let mut out = File::options().write(true).open(&program).unwrap();
    out.seek(SeekFrom::Start(sections + index * 64 + 24)).unwrap();
    out.write_all(&(1_u64 << 21).to_le_bytes()).unwrap();
    out.write_all(&(1_u64 << 40).to_le_bytes()).unwrap();
    out.set_len(1 << 41).unwrap();
    let mut symbolizer = symbolizer(BUDGET_BYTES);
    assert_eq!(chain(&mut symbolizer, || File::open(&program), work)[0].0, "work");
    assert!(symbolizer.held_bytes() <= BUDGET_BYTES);
}
