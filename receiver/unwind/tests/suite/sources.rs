//! Each source of rows, as written by the machine's own tools.
//!
//! Formats that no tool can write here are built by hand, from their specification.

use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{RA, RSP, Section, TEXT, TEXT_BYTES, cfa, elf, elf_with_symbols};
use lzma_rust2::{XzOptions, XzWriter};
use object::{File, Object as _, ObjectSection as _, ObjectSegment as _};
use sidewinder_address::Svma;
use sidewinder_unwind::debug_file::{DebugFileMatch, DebugFileReference};
use sidewinder_unwind::method::bytes_by_method;
use sidewinder_unwind::{
    Cfa, EndReason, Entry, FileOutline, PartedSources, Register, RowSource, Rule, SavedRegister,
    UnwindSources, UnwindTable, code_ranges, has_only_indexed_sources, unwind_table,
};
use tempfile::TempDir;

const LEAF: Entry = Entry::Rule(Rule::LEAF);
const END: Entry = Entry::NO_INFORMATION;

fn rows(table: &UnwindTable) -> Vec<(u64, Entry)> {
    table.rows().map(|row| (row.start.0 - TEXT, row.entry)).collect()
}

fn table_of(file: &[u8]) -> UnwindTable {
    unwind_table(&File::parse(file).unwrap()).unwrap()
}

/// A `.sframe` section under construction.
struct SFrame {
    version: u8,
    flags: u8,
    index: Vec<u8>,
    rows: Vec<u8>,
}

/// The address that [`elf`] gives the first section after the text.
const SECTION: u64 = TEXT + TEXT_BYTES as u64;

/// `fretype` and `fdetype` of a function.
const STARTS_OF_1_BYTE: u8 = 0;
const STARTS_OF_2_BYTES: u8 = 1;
const REPEATS: u8 = 16;

impl SFrame {
    fn new(version: u8) -> Self {
        Self { version, flags: 0, index: Vec::new(), rows: Vec::new() }
    }

    /// A function at `start` bytes of the text.
    fn function(&mut self, start: u64, length: u32, info: u8, rows: &[&[u8]]) {
        let from = if self.flags & 4 != 0 { SECTION + 28 + self.index.len() as u64 } else { SECTION };
        self.index.extend((((TEXT + start) as i64 - from as i64) as i32).to_le_bytes());
        self.index.extend(length.to_le_bytes());
        self.index.extend((self.rows.len() as u32).to_le_bytes());
        self.index.extend((rows.len() as u32).to_le_bytes());
        self.index.push(info);
        if self.version == 2 {
            self.index.extend([if info & REPEATS != 0 { 16 } else { 0 }, 0, 0]);
        }
        self.rows.extend(rows.concat());
    }

    fn bytes(&self) -> Vec<u8> {
        let functions = self.index.len() / if self.version == 2 { 20 } else { 17 };
        let mut bytes = vec![0xe2, 0xde, self.version, self.flags, 3, 0, 0xf8, 0];
        let fields = [functions, 0, self.rows.len(), 0, self.index.len()];
        fields.iter().for_each(|field| bytes.extend((*field as u32).to_le_bytes()));
        [bytes, self.index.clone(), self.rows.clone()].concat()
    }

    fn table(&self) -> UnwindTable {
        table_of(&elf(0, &[], &[(".sframe", &self.bytes())]))
    }
}

#[test]
fn sframe_of_both_versions_gives_the_rows_of_a_frame_pointer() {
    // Base SP (1) or FP (0), one or two offsets of 1 or 2 bytes.
    let prologue: [&[u8]; 4] =
        [&[0, 0b11, 8], &[1, 0b101, 16, 0xf0], &[4, 0b100, 16, 0xf0], &[0x40, 0b10_0011, 0x40, 0x1f]];
    let pushed = Rule { frame_pointer: SavedRegister::AtCfa(-16), ..Rule::above_stack_pointer(16) };
    let expected = [
        (0x10, LEAF),
        (0x11, Entry::Rule(pushed)),
        (0x14, Entry::Rule(Rule::FRAME_POINTER)),
        (0x50, Entry::Rule(Rule::above_stack_pointer(8000))),
        (0x60, END),
    ];
    for (version, flags) in [(1, 0), (2, 0), (2, 4)] {
        let mut sframe = SFrame { flags, ..SFrame::new(version) };
        sframe.function(0x10, 0x50, STARTS_OF_1_BYTE, &prologue);
        let table = sframe.table();
        assert_eq!(rows(&table), expected, "version {version}");
        assert_eq!(table.summary().functions[&RowSource::SFrame], 1);
    }
}

#[test]
fn sframe_of_a_linkage_table_and_of_an_outermost_function() {
    let mut sframe = SFrame::new(2);
    sframe.function(0x100, 0x20, STARTS_OF_2_BYTES, &[&[0, 0, 0b1]]);
    sframe.function(0x00, 0x40, REPEATS, &[&[0, 0b11, 8], &[11, 0b11, 16]]);
    let plt = Entry::Rule(Rule { cfa: Cfa::Plt { threshold: 11 }, ..Rule::LEAF });
    let root = Entry::Rule(Rule::ROOT);
    assert_eq!(rows(&sframe.table()), [(0, plt), (0x40, END), (0x100, root), (0x120, END)]);
}

#[test]
fn a_broken_function_of_sframe_costs_itself_alone_and_is_counted() {
    let mut sframe = SFrame::new(2);
    sframe.function(0x00, 0x10, STARTS_OF_1_BYTE, &[&[0, 0b11, 8], &[8, 0b11, 16], &[4, 0b11, 24]]);
    sframe.function(0x10, 0x10, STARTS_OF_1_BYTE, &[&[0, 0b11, 8]]);
    sframe.function(0x20, 0x10, 7, &[&[0, 0b11, 8]]);
    let table = sframe.table();
    let malformed = Entry::End(EndReason::Malformed);
    assert_eq!(rows(&table), [(0, malformed), (0x10, LEAF), (0x20, malformed), (0x30, END)]);
    assert_eq!(table.summary().malformed[&RowSource::SFrame], 2);
}

#[test]
fn an_sframe_of_an_unknown_version_is_counted_and_gives_nothing() {
    let mut sframe = SFrame::new(2);
    sframe.function(0, 0x10, STARTS_OF_1_BYTE, &[&[0, 0b11, 8]]);
    sframe.version = 3;
    let table = sframe.table();
    assert!(table.is_empty());
    assert_eq!(table.summary().malformed[&RowSource::SFrame], 1);
}

/// Functions that push registers, have a large frame, keep a frame pointer, and are leaves.
const PROGRAM: &str = r#"
    int other(int);
    int leaf(int a) { return a * 2; }
    int pushes(int a, int b, int c) { return other(a) + other(b) + other(c) + other(a + b + c); }
    int large(int a) { volatile char bytes[40000]; bytes[a] = 1; return other(bytes[a + 1]) + other(a); }
    int variable(int a) { volatile char bytes[a]; bytes[0] = 1; return other(bytes[a - 1]); }
    int other(int a) { volatile int b = a; return b; }
    int main(int argc, char **argv) { return pushes(1, 2, argc) + large(argc) + variable(9) + leaf(argc); }
"#;

/// Compiles [`PROGRAM`], or prints why that is impossible and returns `None`.
fn compiled(compiler: &str, options: &[&str]) -> Option<(TempDir, PathBuf)> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("program.c");
    fs::write(&source, PROGRAM).unwrap();
    let out = directory.path().join("program");
    let ran = Command::new(compiler).args(options).arg(&source).arg("-o").arg(&out).output();
    if ran.is_ok_and(|ran| ran.status.success()) {
        return Some((directory, out));
    }
    eprintln!("SKIPPED: no {compiler} here that takes {options:?}");
    None
}

fn run(command: &str, arguments: &[&str]) -> bool {
    let ran = Command::new(command).args(arguments).status().is_ok_and(|status| status.success());
    if !ran {
        eprintln!("SKIPPED: {command} {arguments:?} doesn't run here");
    }
    ran
}

fn removed_section(from: &Path, section: &str) -> Option<Vec<u8>> {
    let to = from.with_extension("cut");
    let option = format!("--remove-section={section}");
    run("objcopy", &[&option, from.to_str()?, to.to_str()?]).then(|| fs::read(&to).unwrap())
}

/// Addresses of functions with the given names, and their ends.
fn functions(file: &[u8], names: &[&str]) -> Vec<Range<u64>> {
    use object::ObjectSymbol as _;
    let file = File::parse(file).unwrap();
    let symbols = file.symbols().filter(|symbol| symbol.name().is_ok_and(|name| names.contains(&name)));
    symbols.map(|symbol| symbol.address()..symbol.address() + symbol.size()).collect()
}

const FUNCTIONS: [&str; 6] = ["leaf", "pushes", "large", "variable", "other", "main"];

fn assert_same_rows(a: &UnwindTable, b: &UnwindTable, ranges: &[Range<u64>]) {
    assert_eq!(ranges.len(), FUNCTIONS.len());
    for address in ranges.iter().cloned().flatten() {
        assert_eq!(a.lookup(Svma(address)), b.lookup(Svma(address)), "at {address:#x}");
    }
}

#[test]
fn the_assemblers_sframe_says_what_its_eh_frame_says() {
    let options = ["-O2", "-fno-stack-protector", "-fcf-protection=none", "-Wa,--gsframe"];
    let Some((_directory, path)) = compiled("gcc", &options) else { return };
    let whole = fs::read(&path).unwrap();
    if File::parse(&*whole).unwrap().section_by_name(".sframe").is_none() {
        return eprintln!("SKIPPED: this linker keeps no .sframe");
    }
    let Some(without) = removed_section(&path, ".eh_frame") else { return };
    let (by_eh_frame, by_sframe) = (table_of(&whole), table_of(&without));
    assert!(by_sframe.summary().functions[&RowSource::SFrame] >= 6);
    assert_same_rows(&by_eh_frame, &by_sframe, &functions(&whole, &FUNCTIONS));
}

/// The program with `.debug_frame` instead of `.eh_frame`, and its debug file.
fn split_program() -> Option<(TempDir, Vec<u8>, PathBuf, PathBuf)> {
    let options = ["-O2", "-g", "-fno-asynchronous-unwind-tables", "-Wl,--build-id", "-fcf-protection=none"];
    let (directory, path) = compiled("gcc", &options)?;
    let whole = fs::read(&path).unwrap();
    let debug = directory.path().join("program.debug");
    let stripped = directory.path().join("stripped");
    let [from, debug_path, to] = [&path, &debug, &stripped].map(|path| path.to_str().unwrap().to_owned());
    let link = format!("--add-gnu-debuglink={debug_path}");
    let made = run("objcopy", &["--only-keep-debug", &from, &debug_path])
        && run("objcopy", &["--strip-all", &link, &from, &to]);
    made.then_some((directory, whole, stripped, debug))
}

#[test]
fn a_separate_debug_file_is_named_proven_and_read() {
    let Some((_directory, whole, stripped, debug)) = split_program() else { return };
    let (stripped, debug) = (fs::read(stripped).unwrap(), fs::read(debug).unwrap());
    let (stripped, debug_file) = (File::parse(&*stripped).unwrap(), File::parse(&*debug).unwrap());

    let reference = DebugFileReference::from_file(&stripped).unwrap();
    let candidates: Vec<_> = reference.candidates(b"/opt/bin").collect();
    assert_eq!(candidates.len(), 4);
    assert!(candidates[0].starts_with(b"usr/lib/debug/.build-id/"));
    assert_eq!(candidates[2], b"opt/bin/.debug/program.debug");
    assert_eq!(reference.verify(&debug_file), DebugFileMatch::BuildId);

    let ranges = functions(&whole, &FUNCTIONS);
    let (alone, together) =
        (unwind_table(&stripped).unwrap(), UnwindSources::new(&stripped, &[debug_file]).unwrap().table());
    assert!(!alone.summary().functions.contains_key(&RowSource::DebugFile));
    assert!(together.summary().functions[&RowSource::DebugFile] >= 6);
    assert_same_rows(&table_of(&whole), &together, &ranges);
}

#[test]
fn a_debug_file_without_build_id_is_proven_by_the_crc_of_its_content() {
    let bytes = b"\x08\0\0\0....";
    let named = |section: &str, bytes: &[u8]| elf(0, &[], &[(section, bytes)]);
    let link = [&b"program.debug\0\0\0"[..], &0xcbf4_3926u32.to_le_bytes()].concat();
    let file = named(".gnu_debuglink", &link);
    let reference = DebugFileReference::from_file(&File::parse(&*file).unwrap()).unwrap();
    let other = named(".debug_frame", bytes);
    assert_eq!(reference.verify(&File::parse(&*other).unwrap()), DebugFileMatch::Crc(0xcbf4_3926));
    assert_eq!(DebugFileReference::from_file(&File::parse(&*other).unwrap()), None);
}

#[test]
fn a_debug_file_of_another_build_is_none() {
    let Some((_directory, _, stripped, _)) = split_program() else { return };
    let options = ["-O1", "-g", "-Wl,--build-id"];
    let Some((_other_directory, other)) = compiled("gcc", &options) else { return };
    let (stripped, other) = (fs::read(stripped).unwrap(), fs::read(other).unwrap());
    let reference = DebugFileReference::from_file(&File::parse(&*stripped).unwrap()).unwrap();
    assert_eq!(reference.verify(&File::parse(&*other).unwrap()), DebugFileMatch::Mismatch);
}

pub(crate) fn xz(data: &[u8]) -> Vec<u8> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
    writer.write_all(data).unwrap();
    writer.finish().unwrap()
}

#[test]
fn mini_debug_info_gives_frames_and_names() {
    let mut debug_frame = Section::debug_frame();
    let cie = debug_frame.cie_with("", &[cfa::def_cfa(RSP, 8), cfa::offset(RA, 1)]);
    debug_frame.fde(cie, 0x40, 0x20, &[]);
    let inside = elf_with_symbols(0, &[], &[(".debug_frame", &debug_frame.bytes)], &[("_start", 0x80, 0x10)]);
    let file = elf(0, &[], &[(".gnu_debugdata", &xz(&inside))]);
    let table = table_of(&file);
    let root = Entry::Rule(Rule::ROOT);
    assert_eq!(rows(&table), [(0x40, LEAF), (0x60, END), (0x80, root), (0x90, END)]);
    assert_eq!(table.summary().functions[&RowSource::MiniDebugInfo], 1);
}

#[test]
fn mini_debug_info_that_is_broken_is_counted_and_costs_itself_alone() {
    let mut eh_frame = Section::eh_frame();
    let cie = eh_frame.cie();
    eh_frame.fde(cie, 0, 0x10, &[]);
    let mut cut_off = xz(b"\x7fELF");
    cut_off.truncate(20);
    for broken in [&b"not xz"[..], &cut_off] {
        let file = elf(0, &[], &[(".eh_frame", &eh_frame.bytes), (".gnu_debugdata", broken)]);
        let table = table_of(&file);
        assert_eq!(rows(&table), [(0, LEAF), (0x10, END)]);
        assert_eq!(table.summary().malformed[&RowSource::MiniDebugInfo], 1);
    }
}

#[test]
fn a_compressed_debug_frame_is_read() {
    let options = ["-O2", "-g", "-gz", "-fno-asynchronous-unwind-tables", "-fcf-protection=none"];
    let Some((_directory, compressed)) = compiled("gcc", &options) else { return };
    let compressed = fs::read(compressed).unwrap();
    let table = table_of(&compressed);
    assert_eq!(table.summary().malformed_total(), 0);
    let large = &functions(&compressed, &["large"])[0];
    let frames = large.clone().filter_map(|at| table.lookup(Svma(at)).rule().copied());
    let is_large =
        |rule: &Rule| matches!(rule.cfa, Cfa::Register { register: Register::Rsp, offset: 39_000.. });
    assert!(frames.filter(is_large).count() > 0, "a frame of nearly 40 kB");
}

#[test]
fn static_and_static_pie_and_musl_programs_have_rules_for_their_functions_and_a_start() {
    let ways: [(&str, &[&str]); 6] = [
        ("gcc", &["-O2", "-static"]),
        ("gcc", &["-O2", "-static-pie"]),
        ("gcc", &["-O2", "-pie"]),
        ("clang", &["-O2", "-static"]),
        ("musl-gcc", &["-O2", "-static"]),
        ("musl-gcc", &["-O2"]),
    ];
    for (compiler, options) in ways {
        let Some((_directory, path)) = compiled(compiler, options) else { continue };
        let data = fs::read(path).unwrap();
        let file = File::parse(&*data).unwrap();
        let table = unwind_table(&file).unwrap();
        assert_eq!(table.summary().malformed_total(), 0);
        assert_eq!(table.lookup(Svma(file.entry())), Entry::Rule(Rule::ROOT), "{compiler} {options:?}");
        let ranges = functions(&data, &FUNCTIONS);
        assert_eq!(ranges.len(), FUNCTIONS.len());
        for address in ranges.into_iter().flatten() {
            assert!(table.lookup(Svma(address)).rule().is_some(), "{compiler} {options:?} at {address:#x}");
        }
    }
}

#[test]
fn a_segment_that_goes_on_at_the_start_of_the_address_space_is_no_code() {
    let mut file = elf(TEXT, &[0xc3], &[]);
    const VADDR: usize = 64 + 16;
    file[VADDR..VADDR + 8].copy_from_slice(&0xffff_ffff_ffff_f000_u64.to_le_bytes());
    let file = File::parse(&*file).unwrap();
    assert!(matches!(unwind_table(&file), Err(sidewinder_unwind::UnwindTableError::NoCode)));
}

#[test]
fn whoever_clones_is_known_in_the_call_that_the_c_library_leaves_undescribed() {
    let Ok(data) = fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
        return eprintln!("SKIPPED: no glibc here");
    };
    let file = File::parse(&*data).unwrap();
    let table = unwind_table(&file).unwrap();
    // mov $435,%eax; syscall
    let call = [0xb8, 0xb3, 1, 0, 0, 0x0f, 0x05];
    let mut calls = 0;
    for segment in file.segments().filter(|segment| segment.permissions().executable()) {
        let bytes = segment.data().unwrap();
        for at in (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&call)) {
            let returns_to = Svma(segment.address() + (at + call.len()) as u64);
            calls += 1;
            assert_eq!(table.lookup(returns_to), Entry::Rule(Rule::AFTER_CLONE), "{returns_to:?}");
        }
    }
    assert!(calls > 0, "this C library makes no threads by clone3");
}

#[test]
fn a_segment_ends_with_its_file_whatever_it_says() {
    let mut file = elf(TEXT, &[0xc3], &[]);
    const SIZES: usize = 64 + 32;
    file[SIZES..SIZES + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    file[SIZES + 8..SIZES + 16].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let length = file.len() as u64;
    let file = File::parse(&*file).unwrap();
    let ends: Vec<u64> =
        sidewinder_unwind::load_segments(&file).iter().map(|load| load.file_offset.0 + load.size).collect();
    assert_eq!(ends, [length]);
    assert!(unwind_table(&file).is_ok());
}

#[test]
fn a_name_is_known_wherever_among_many_it_lies() {
    /// Bytes of names that are read at once.
    const WINDOW_BYTES: usize = 64 << 10;
    const KNOWN: &str = "__restore_rt";
    let code = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    let mut before = vec!["y".repeat(5000)];
    before.extend((0..15).map(|number| format!("{number:03}{}", "x".repeat(4000))));
    let before_bytes: usize = before.iter().map(|name| name.len() + 1).sum();
    let behind: Vec<String> = (0..50).map(|number| format!("{number:03}{}", "z".repeat(4000))).collect();
    for distance in 0..32 {
        // The known name begins a few bytes before the end of the first window, or up to a few bytes after it.
        let first = "w".repeat(WINDOW_BYTES - before_bytes - 16 + distance);
        let names = [&first].into_iter().chain(&before).map(String::as_str).chain([KNOWN]);
        let names = names.chain(behind.iter().map(String::as_str));
        let symbols = names.map(|name| (name, if name == KNOWN { 0 } else { 0x40 }, 9));
        let file = elf_with_symbols(0, &code, &[], &symbols.collect::<Vec<_>>());
        let found = table_of(&file).lookup(Svma(TEXT));
        assert_eq!(found, Entry::Rule(Rule::KERNEL_SIGNAL_FRAME), "at {distance}");
    }
}

const NO_DEBUG_FILES: &[File<'static, &[u8]>] = &[];

/// The parts in which a file is read, in an unusual order.
fn parts(table: &UnwindTable, bytes: u64) -> Vec<Range<Svma>> {
    let mut starts = table.rows().map(|row| row.start.0);
    let (first, last) = (starts.next().unwrap() & !0xfff, starts.last().unwrap() + 0x1000);
    let parts = (first..last).step_by(bytes as usize).map(|start| Svma(start)..Svma(start + bytes));
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    parts
}

/// Libraries of arm64 in C and C++, which come with its cross compiler: 1.6 and 8 MB.
const FILES_OF_ARM64: [&str; 2] =
    ["/usr/aarch64-linux-gnu/lib/libc.so.6", "/usr/aarch64-linux-gnu/lib/libasan.so.8"];

/// Those of them that are on this machine.
fn files_of_arm64() -> Vec<&'static Path> {
    let paths: Vec<_> = FILES_OF_ARM64.map(Path::new).into_iter().filter(|path| path.is_file()).collect();
    if paths.len() < FILES_OF_ARM64.len() {
        eprintln!(
            "SKIPPED: gcc-aarch64-linux-gnu is not installed, of {FILES_OF_ARM64:?} there is {paths:?}"
        );
    }
    paths
}

#[test]
fn parts_say_what_the_whole_says() {
    let program = std::env::current_exe().unwrap();
    let (compared, described) =
        compare_parts(&[&program, Path::new("/bin/sh"), Path::new("/usr/bin/openssl")]);
    assert!(compared > 0 && described > 1000, "{compared}, {described}");
}

#[test]
fn parts_of_arm64_say_what_the_whole_says() {
    let paths = files_of_arm64();
    let (compared, described) = compare_parts(&paths);
    assert!(compared == paths.len() && described >= paths.len() * 1000, "{compared}, {described}");
}

/// Compares the parts of files with the whole. Returns how many files were compared, and rows in parts that are described.
fn compare_parts(paths: &[&Path]) -> (usize, usize) {
    let (mut compared, mut described) = (0, 0);
    for path in paths {
        let Ok(data) = fs::read(path) else { continue };
        let file = File::parse(&*data).unwrap();
        let whole = unwind_table(&file).unwrap();
        if !has_only_indexed_sources(&file) {
            continue;
        }
        let mut sources = PartedSources::from_file(&file, NO_DEBUG_FILES).unwrap().unwrap();
        let parts = parts(&whole, 0x31000);
        let undescribed = sources.undescribed_code();
        let is_described = |part: &Range<Svma>| {
            !undescribed.iter().any(|code| code.start < part.end && part.start < code.end)
        };
        let (mut rows, mut by_machine_code) = (0, Vec::new());
        for part in parts {
            let wanted = std::slice::from_ref(&part);
            // No other parts need it.
            if !is_described(&part) {
                sources.read_code(wanted);
            }
            let table = sources.table_of(wanted);
            by_machine_code.extend(table.by_machine_code().map(|code| (code.start, code.end)));
            for at in whole.rows().map(|row| row.start).filter(|at| part.contains(at)) {
                assert_eq!(table.lookup(at), whole.lookup(at), "{}: {at}", path.to_string_lossy());
                rows += 1;
                described += usize::from(is_described(&part));
            }
            assert_eq!(table.lookup(part.start), whole.lookup(part.start), "{}", path.to_string_lossy());
        }
        by_machine_code.sort_unstable();
        by_machine_code.dedup();
        let whole_code: Vec<_> = whole.by_machine_code().map(|code| (code.start, code.end)).collect();
        assert_eq!(by_machine_code, whole_code, "{}", path.to_string_lossy());
        assert_eq!(rows, whole.len(), "{}", path.to_string_lossy());
        compared += 1;
    }
    (compared, described)
}

#[test]
fn parts_found_by_the_index_of_eh_frame_say_what_the_whole_says() {
    let program = std::env::current_exe().unwrap();
    let library = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let compared =
        compare_parts_by_index(&[&program, library, Path::new("/bin/sh"), Path::new("/usr/bin/openssl")]);
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn parts_of_arm64_found_by_the_index_of_eh_frame_say_what_the_whole_says() {
    let paths = files_of_arm64();
    let compared = compare_parts_by_index(&paths);
    assert!(compared >= paths.len() * 10_000, "{compared}");
}

/// The number of rows of files that are compared with those that the index leads to.
fn compare_parts_by_index(paths: &[&Path]) -> usize {
    let mut compared = 0;
    for path in paths {
        let Ok(data) = fs::read(path) else { continue };
        let file = File::parse(&*data).unwrap();
        let whole = unwind_table(&file).unwrap();
        let outline = FileOutline::from_file(&file, NO_DEBUG_FILES).unwrap().unwrap();
        let parts = parts(&whole, 0x11000);
        // Of the rows from machine code, it has only those of linkage tables.
        let by_code: Vec<_> = whole.by_machine_code().collect();
        for pair in parts.chunks(2) {
            let table = outline.table_of_parts(&*data, pair);
            let is_compared = |at: &Svma| {
                pair.iter().any(|part| part.contains(at)) && !by_code.iter().any(|code| code.contains(at))
            };
            for at in whole.rows().map(|row| row.start).chain([pair[0].start]).filter(is_compared) {
                assert_eq!(table.lookup(at), whole.lookup(at), "{}: {at}", path.to_string_lossy());
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn a_table_of_some_functions_says_of_these_what_the_whole_says_and_of_others_that_nobody_asked() {
    let program = std::env::current_exe().unwrap();
    let paths = [&program, Path::new("/lib/x86_64-linux-gnu/libc.so.6")];
    for path in paths.into_iter().chain(files_of_arm64()) {
        let Ok(data) = fs::read(path) else { continue };
        let file = File::parse(&*data).unwrap();
        let whole = unwind_table(&file).unwrap();
        let outline = FileOutline::from_file(&file, NO_DEBUG_FILES).unwrap().unwrap();
        let by_code: Vec<_> = whole.by_machine_code().collect();
        let is_by_code = |at: Svma| by_code.iter().any(|code| code.contains(&at));
        let starts: Vec<Svma> = whole.rows().map(|row| row.start).filter(|at| !is_by_code(*at)).collect();
        let asked: Vec<Svma> = starts.iter().copied().step_by(97).collect();
        let not_asked = Entry::End(EndReason::NotAsked);
        for some in asked.chunks(13) {
            let table = outline.table_of_functions(&*data, some);
            for at in some {
                assert_eq!(table.lookup(*at), whole.lookup(*at), "{}: {at}", path.to_string_lossy());
            }
            let known = starts.iter().filter(|at| table.lookup(**at) != not_asked);
            let mut count = 0;
            for at in known {
                assert_eq!(table.lookup(*at), whole.lookup(*at), "{}: {at}", path.to_string_lossy());
                count += 1;
            }
            assert!(count < starts.len() / 2, "{}: {count} of {}", path.to_string_lossy(), starts.len());
        }
    }
}

#[test]
fn linkage_tables_and_the_start_are_known_by_index_too() {
    let options = ["-O2", "-Wl,-z,lazy", "-Wl,--no-ld-generated-unwind-info"];
    let Some((_folder, program)) = compiled("cc", &options) else { return };
    let data = fs::read(program).unwrap();
    let file = File::parse(&*data).unwrap();
    let whole = unwind_table(&file).unwrap();
    let outline = FileOutline::from_file(&file, NO_DEBUG_FILES).unwrap().unwrap();
    let code = code_ranges(&file).unwrap();
    let table = outline.table_of_parts(&*data, &code);
    let plt = file.section_by_name(".plt").unwrap();
    for at in [file.entry(), plt.address(), plt.address() + 6].map(Svma) {
        assert!(matches!(table.lookup(at), Entry::Rule(_)), "{at}");
        assert_eq!(table.lookup(at), whole.lookup(at), "{at}");
    }
}

/// Some linkers put data into the segment of the code.
#[test]
fn what_is_counted_as_code_is_what_sections_call_code_and_each_byte_of_it_has_one_mode() {
    const CODE_BYTES: u64 = 0x123;
    // push %rbp; mov %rsp,%rbp; leave; ret
    let mut data = elf(TEXT, &[0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3], &[]);
    let headers = u64::from_le_bytes(data[40..48].try_into().unwrap()) as usize;
    let text = headers + 64;
    data[text + 8..text + 16].copy_from_slice(&object::elf::SHF_EXECINSTR.0.to_le_bytes());
    data[text + 32..text + 40].copy_from_slice(&CODE_BYTES.to_le_bytes());
    let bytes_of_modes = |data: &[u8]| {
        let file = File::parse(data).unwrap();
        let code = code_ranges(&file).unwrap();
        let table = unwind_table(&file).unwrap();
        let bytes: u64 = code.iter().map(|range| range.end.0 - range.start.0).sum();
        assert_eq!(bytes_by_method(&table, &code).values().sum::<u64>(), bytes);
        bytes
    };
    assert_eq!(bytes_of_modes(&data), CODE_BYTES);
    // Without section headers only the segment is left.
    data[40..48].fill(0);
    data[60..64].fill(0);
    assert_eq!(bytes_of_modes(&data), TEXT_BYTES as u64);
}
