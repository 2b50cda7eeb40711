//! Many files within one budget.

use std::cell::Cell;
use std::io;

use sidewinder_address::{FileOffset, Svma};
use sidewinder_symbolize::{
    BinaryId, Language, Lookup, SymbolName, Symbolizer, SymbolizerOptions, UnnamedReason, unnamed_frame,
};

use crate::elf::{FUNC, GLOBAL, Made, NOTYPE, TEXT, elf};

fn symbolizer(budget_bytes: usize) -> Symbolizer {
    Symbolizer::new(SymbolizerOptions { budget_bytes, lines: false, inlines: false, has_no_time_limit: true })
}

const MANGLED: &str = "_ZN3app4work17h0123456789abcdefE";

fn app() -> Vec<u8> {
    elf(&[Made(GLOBAL, FUNC, MANGLED, 0, 0x20), Made(GLOBAL, FUNC, "plain", 0x20, 0x20)], &[], "")
}

fn named(lookup: Lookup) -> SymbolName {
    match lookup {
        Lookup::Named(frames) => frames[0].name.clone(),
        Lookup::Unnamed { why, .. } => panic!("{why:?}"),
    }
}

fn why_not(lookup: &Lookup) -> UnnamedReason {
    match lookup {
        Lookup::Unnamed { why, .. } => *why,
        Lookup::Named(name) => panic!("{name:?}"),
    }
}

#[test]
fn a_name_comes_in_both_spellings() {
    let mut symbolizer = symbolizer(1 << 20);
    let name = named(symbolizer.name(BinaryId(1), || Ok(app()), Svma(TEXT + 8)));
    assert_eq!((&*name.demangled, &*name.system_name, name.language), ("app::work", MANGLED, Language::Rust));
    let name = named(symbolizer.name(BinaryId(1), || Ok(app()), Svma(TEXT + 0x28)));
    assert_eq!(&*name.demangled, "plain");
}

#[test]
fn a_file_is_opened_once_whether_that_succeeds_or_not() {
    let opened = Cell::new(0);
    let mut symbolizer = symbolizer(1 << 20);
    for _ in 0..10 {
        let open = || {
            opened.set(opened.get() + 1);
            Ok(app())
        };
        named(symbolizer.name(BinaryId(1), open, Svma(TEXT)));
        let fail = || {
            opened.set(opened.get() + 1);
            Err::<Vec<u8>, _>(io::ErrorKind::PermissionDenied.into())
        };
        let lookup = symbolizer.name(BinaryId(2), fail, Svma(TEXT));
        assert_eq!(why_not(&lookup), UnnamedReason::NotOpened(io::ErrorKind::PermissionDenied));
    }
    assert_eq!(opened.get(), 2);
    symbolizer.forget(BinaryId(2));
    named(symbolizer.name(BinaryId(2), || Ok(app()), Svma(TEXT)));
}

#[test]
fn once_it_reads_no_more_what_is_held_is_named_and_nothing_is_opened() {
    let mut symbolizer = symbolizer(1 << 20);
    named(symbolizer.name(BinaryId(1), || Ok(app()), Svma(TEXT)));
    symbolizer.stop_reading();
    let open = || -> io::Result<Vec<u8>> { panic!("it was opened") };
    let name = named(symbolizer.name(BinaryId(1), open, Svma(TEXT + 0x28)));
    assert_eq!(&*name.demangled, "plain");
    assert_eq!(why_not(&symbolizer.name(BinaryId(2), open, Svma(TEXT))), UnnamedReason::NoRoom);
    assert_eq!(symbolizer.stats().name_lookups.no_room, 1);
}

#[test]
fn every_look_up_is_counted_once_under_its_reason() {
    let mut symbolizer = symbolizer(1 << 20);
    let files = [
        (1, app(), TEXT),
        (1, app(), TEXT + 0x40),
        (2, elf(&[], &[], ""), TEXT),
        (3, b"text".to_vec(), TEXT),
        (1, app(), TEXT + 1),
    ];
    for (file, bytes, svma) in files {
        symbolizer.name(BinaryId(file), || Ok(bytes.clone()), Svma(svma));
    }
    symbolizer.name(BinaryId(4), || Err::<Vec<u8>, _>(io::ErrorKind::NotFound.into()), Svma(0));
    let stats = symbolizer.stats();
    assert_eq!(
        (stats.name_lookups.named, stats.name_lookups.not_covered, stats.name_lookups.no_symbols),
        (2, 1, 1)
    );
    assert_eq!((stats.name_lookups.file_broken, stats.name_lookups.file_not_opened), (1, 1));
}

#[test]
fn the_budget_holds_and_what_was_evicted_comes_back() {
    const BUDGET_BYTES: usize = 64 << 10;
    let names: Vec<_> = (0..100).map(|number| format!("function_{number}_{}", "x".repeat(100))).collect();
    let symbols: Vec<_> =
        names.iter().zip(0..).map(|(name, at)| Made(GLOBAL, FUNC, name, at * 16, 16)).collect();
    let file = elf(&symbols, &[], "");
    let mut symbolizer = symbolizer(BUDGET_BYTES);
    for round in 0..3 {
        for id in 0..200 {
            let at = Svma(TEXT + u64::from(id * 7 + round) % 100 * 16);
            symbolizer.name(BinaryId(id), || Ok(file.clone()), at);
            assert!(symbolizer.held_bytes() <= BUDGET_BYTES, "{}", symbolizer.held_bytes());
        }
    }
    let stats = symbolizer.stats();
    // With more files than fit, some look-ups give names, and the rest is counted.
    assert_eq!(stats.name_lookups.named + stats.name_lookups.no_room, 600);
    assert!(stats.symbol_tables_reads <= stats.name_lookups.named, "{stats:?}");
    assert!(stats.name_lookups.named > 200, "{stats:?}");
    assert!(stats.symbol_tables_evictions > 150, "{stats:?}");
}

#[test]
fn two_large_tables_do_not_evict_each_other() {
    let names: Vec<_> = (0..250).map(|number| format!("f{number}")).collect();
    let symbols: Vec<_> =
        names.iter().zip(0..).map(|(name, at)| Made(GLOBAL, FUNC, name, at * 16, 16)).collect();
    let file = elf(&symbols, &[], "");
    // Either table would take more than half of the budget.
    let mut symbolizer = symbolizer(7 << 10);
    for id in (0..20).map(|turn| turn % 2) {
        named(symbolizer.name(BinaryId(id), || Ok(file.clone()), Svma(TEXT)));
    }
    let stats = symbolizer.stats();
    assert_eq!((stats.symbol_tables_reads, stats.symbol_tables_evictions), (2, 0));
    assert!(stats.symbols_left_out > 0, "{stats:?}");
}

#[test]
fn files_do_not_stay_open_without_bound() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), app()).unwrap();
    let mut symbolizer = symbolizer(64 << 20);
    for id in 0..600 {
        named(symbolizer.name(BinaryId(id), || std::fs::File::open(file.path()), Svma(TEXT)));
    }
    let is_ours = |entry: io::Result<std::fs::DirEntry>| {
        entry.and_then(|entry| std::fs::read_link(entry.path())).is_ok_and(|target| target == file.path())
    };
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| is_ours(entry).then_some(())).count();
    assert!((200..=300).contains(&open), "{open} files are open");
}

#[test]
fn one_table_too_large_for_the_budget_is_cut_and_counted() {
    let names: Vec<_> = (0..250).map(|number| format!("f{number}")).collect();
    let symbols: Vec<_> =
        names.iter().zip(0..).map(|(name, at)| Made(GLOBAL, FUNC, name, at * 16, 16)).collect();
    let mut symbolizer = symbolizer(4096);
    named(symbolizer.name(BinaryId(1), || Ok(elf(&symbols, &[], "")), Svma(TEXT)));
    assert!(symbolizer.stats().symbols_left_out > 100);
    assert!(symbolizer.held_bytes() <= 4096);
}

#[test]
fn what_has_no_name_is_called_by_its_file() {
    assert_eq!(unnamed_frame("/usr/lib/libfoo.so.1", FileOffset(0x1234)), "libfoo.so.1+0x1234");
    assert_eq!(unnamed_frame("[vdso]", FileOffset(1)), "[vdso]+0x1");
}

#[test]
fn what_lies_behind_a_function_is_not_named_after_it() {
    let mut symbolizer = symbolizer(1 << 20);
    let file = || Ok(elf(&[Made(GLOBAL, FUNC, "one", 0, 0x20)], &[], ""));
    named(symbolizer.name(BinaryId(1), file, Svma(TEXT + 0x1f)));
    assert_eq!(why_not(&symbolizer.name(BinaryId(1), file, Svma(TEXT + 0x20))), UnnamedReason::NotCovered);

    let file =
        || Ok(elf(&[Made(GLOBAL, FUNC, "one", 0, 0x20), Made(GLOBAL, NOTYPE, "label", 0, 0)], &[], ""));
    assert_eq!(&*named(symbolizer.name(BinaryId(2), file, Svma(TEXT + 0x1f))).system_name, "one");
    assert_eq!(&*named(symbolizer.name(BinaryId(2), file, Svma(TEXT + 0x20))).system_name, "label");
}
