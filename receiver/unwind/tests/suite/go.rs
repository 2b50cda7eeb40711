//! Programs built by the Go toolchain of this machine, with and without symbols, relocatable, and with C.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use gimli::{BaseAddresses, CfaRule, DebugFrame, LittleEndian, UnwindContext, UnwindSection as _};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use sidewinder_address::Svma;
use sidewinder_unwind::{
    Architecture, CalleeSaved, Cfa, EndReason, Entry, FileOutline, PartedSources, Register, ReturnAddress,
    RowSource, Rule, SavedRegister, UnwindTable, has_only_indexed_sources, unwind_table,
};
use sidewinder_unwind_oracle::{Difference, compare};

const PROGRAM: &str = r#"
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	began := time.Now()
	fmt.Fprintln(os.Stdout, len(os.Args), time.Since(began) > 0)
}
"#;

const PROGRAM_WITH_C: &str = r#"
package main

// static int twice(int x) { return 2 * x; }
import "C"

func main() { println(C.twice(2)) }
"#;

fn go() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .chain([PathBuf::from("/usr/local/go/bin")])
        .map(|folder| folder.join("go"))
        .find(|go| go.is_file())
}

/// The program built with these arguments, or `None` on a machine without Go.
fn build(source: &str, cgo: bool, arguments: &[&str]) -> Option<Vec<u8>> {
    build_for(std::env::consts::ARCH, source, cgo, arguments)
}

/// The same for an architecture, by Rust's name.
fn build_for(architecture: &str, source: &str, cgo: bool, arguments: &[&str]) -> Option<Vec<u8>> {
    let Some(go) = go() else {
        eprintln!("SKIPPED: no Go toolchain on this machine");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let within = |name: &str| folder.path().join(name);
    std::fs::write(within("main.go"), source).unwrap();
    std::fs::write(within("go.mod"), "module sidewinder.test/program\n\ngo 1.21\n").unwrap();
    let output = Command::new(go)
        .current_dir(folder.path())
        .env("CGO_ENABLED", if cgo { "1" } else { "0" })
        .env("GOFLAGS", "")
        .env("GOARCH", if architecture == "aarch64" { "arm64" } else { "amd64" })
        .args(["build", "-o", "program"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(std::fs::read(Path::new(&within("program"))).unwrap())
}

fn table_of(program: &[u8]) -> UnwindTable {
    unwind_table(&object::File::parse(program).unwrap()).unwrap()
}

/// Start and size of a function by its name in the symbol table.
fn function(file: &object::File<'_>, name: &str) -> (u64, u64) {
    let symbol = file.symbol_by_name(name).unwrap_or_else(|| panic!("no symbol {name}"));
    (symbol.address(), symbol.size())
}

#[test]
fn rows_equal_gos_own_debug_frame_but_for_functions_that_switch_stacks() {
    let Some(program) = build(PROGRAM, false, &[]) else { return };
    let file = object::File::parse(&*program).unwrap();
    let table = table_of(&program);
    let data = file.section_by_name(".debug_frame").unwrap().uncompressed_data().unwrap();
    let section = DebugFrame::new(&data, LittleEndian);
    let bases = BaseAddresses::default();
    let names: BTreeMap<_, _> = file
        .symbols()
        .filter(|symbol| symbol.size() > 0)
        .map(|symbol| (symbol.address(), symbol.name()))
        .collect();

    let mut context = UnwindContext::new();
    let mut entries = section.entries(&bases);
    let mut functions = 0;
    let mut different = BTreeSet::new();
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(DebugFrame::cie_from_offset).unwrap();
        functions += 1;
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let CfaRule::RegisterAndOffset { offset, .. } = *row.cfa() else { panic!("{row:?}") };
            let expected = Cfa::Register { register: Register::Rsp, offset: offset.try_into().unwrap() };
            if row.start_address() >= row.end_address() {
                continue;
            }
            for address in [row.start_address(), row.end_address() - 1] {
                if table.lookup(Svma(address)).rule().is_none_or(|rule| rule.cfa != expected) {
                    different.insert(*names[&fde.initial_address()].as_ref().unwrap());
                }
            }
        }
    }
    assert!(functions > 1000, "{functions}");
    let switching: BTreeSet<_> = [
        "gogo",
        "runtime.asmcgocall.abi0",
        "runtime.callCgoMmap.abi0",
        "runtime.callCgoMunmap.abi0",
        "runtime.callCgoSigaction.abi0",
        "runtime.cgocallback.abi0",
        "runtime.clone.abi0",
        "runtime.mcall",
        "runtime.morestack.abi0",
        "runtime.nanotime1.abi0",
        "runtime.rt0_go.abi0",
        "runtime.sigfwd.abi0",
        "runtime.sigreturn__sigaction.abi0",
        "runtime.switchToCrashStack0",
        "runtime.systemstack.abi0",
        "runtime.vgetrandom1",
        "time.now",
    ]
    .into();
    let unexpected: Vec<_> = different.difference(&switching).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

#[test]
fn stripping_takes_nothing_away() {
    let (Some(whole), Some(stripped)) =
        (build(PROGRAM, false, &[]), build(PROGRAM, false, &["-ldflags=-s -w"]))
    else {
        return;
    };
    let (whole, stripped) = (table_of(&whole), table_of(&stripped));
    assert!(whole.len() > 10_000);
    assert!(whole.rows().eq(stripped.rows()));
    assert_eq!(stripped.summary().malformed_total(), 0);
}

#[test]
fn relocatable_programs_and_those_with_c_have_their_functions() {
    for (source, cgo) in [(PROGRAM, false), (PROGRAM_WITH_C, true)] {
        for arguments in [&["-buildmode=pie"][..], &["-buildmode=pie", "-ldflags=-s -w"], &["-ldflags=-s -w"]]
        {
            let Some(program) = build(source, cgo, arguments) else { return };
            let table = table_of(&program);
            let functions = table.summary().functions.get(&RowSource::GoPclntab).copied().unwrap_or_default();
            assert!(functions > 1000, "{arguments:?}: {:?}", table.summary());
            assert_eq!(table.summary().malformed_total(), 0);
            // In each of them `_start`, `goexit`, `mstart` and similar functions are proven ends.
            let roots = table.rows().filter(|row| row.entry.rule().is_some_and(Rule::is_root)).count();
            assert!((5..30).contains(&roots), "{arguments:?}: {roots} roots");
        }
    }
}

#[test]
fn c_keeps_its_own_information_beside_go() {
    let Some(program) = build(PROGRAM_WITH_C, true, &[]) else { return };
    let file = object::File::parse(&*program).unwrap();
    let table = table_of(&program);
    let (start, size) = function(&file, "x_cgo_init");
    let inside = table.lookup(Svma(start + size / 2));
    assert!(inside.rule().is_some_and(|rule| !rule.is_root()), "{inside:?}");
    assert!(table.summary().functions.contains_key(&RowSource::EhFrame));
}

#[test]
fn the_runtimes_special_functions_are_treated_for_what_they_do() {
    let Some(program) = build(PROGRAM, false, &[]) else { return };
    let file = object::File::parse(&*program).unwrap();
    let table = table_of(&program);
    let at = |name, offset| table.lookup(Svma(function(&file, name).0 + offset));
    let last_of = |name| {
        let (start, size) = function(&file, name);
        table.lookup(Svma(start + size - 1))
    };
    let rule = |entry: Entry| *entry.rule().unwrap();

    for root in ["runtime.goexit.abi0", "runtime.mstart.abi0", "runtime.rt0_go.abi0", "_rt0_amd64_linux"] {
        assert!(rule(at(root, 0)).is_root(), "{root}");
        assert!(rule(at(root, 1)).is_root(), "{root}");
    }
    assert_eq!(at("runtime.mcall", 0), Entry::Rule(Rule::LEAF), "still on the goroutine's stack");
    assert_eq!(at("runtime.morestack.abi0", 0), Entry::Rule(Rule::LEAF));
    let mcall_calls = program_call(&file, "runtime.mcall", &[0x41, 0xff, 0xd4]);
    assert!(rule(table.lookup(Svma(mcall_calls))).is_root(), "the system stack has no more");

    assert_eq!(at("runtime.systemstack.abi0", 0), Entry::Rule(Rule::LEAF));
    let systemstack_calls = program_call(&file, "runtime.systemstack.abi0", &[0xff, 0xd7]);
    assert_eq!(table.lookup(Svma(systemstack_calls)), Entry::Rule(Rule::FRAME_POINTER), "across the stacks");
    assert_eq!(last_of("runtime.nanotime1.abi0").rule(), Some(&Rule::FRAME_POINTER));

    let sigreturn = "runtime.sigreturn__sigaction.abi0";
    let (start, _) = function(&file, sigreturn);
    for address in [start - 1, start, start + 7] {
        assert_eq!(table.lookup(Svma(address)), Entry::Rule(Rule::KERNEL_SIGNAL_FRAME));
    }
    assert!(!rule(at("runtime.sigtramp.abi0", 8)).is_root(), "the kernel called it");
    assert!(rule(at("runtime.asyncPreempt.abi0", 0)).signal_frame);
    assert!(rule(at("runtime.sigpanic", 0)).signal_frame);
    assert!(!rule(at("runtime.main", 0)).signal_frame);
}

/// The address just after the first of these bytes in a function.
fn program_call(file: &object::File<'_>, name: &str, call: &[u8]) -> u64 {
    let (start, size) = function(file, name);
    let text = file.section_by_name(".text").unwrap();
    let code = text.data_range(start, size).unwrap().unwrap();
    let at = code.windows(call.len()).position(|bytes| bytes == call).unwrap();
    start + at as u64
}

#[test]
fn a_compiled_function_saves_the_frame_pointer_first_and_restores_it_last() {
    let Some(program) = build(PROGRAM, false, &[]) else { return };
    let file = object::File::parse(&*program).unwrap();
    let table = table_of(&program);
    let (start, size) = function(&file, "main.main");
    let text = file.section_by_name(".text").unwrap();
    let code = text.data_range(start, size).unwrap().unwrap();
    let push = code.iter().position(|byte| *byte == 0x55).unwrap() as u64;
    assert_eq!(table.lookup(Svma(start + push)), Entry::Rule(Rule::LEAF));
    let after_push = Rule { frame_pointer: SavedRegister::AtCfa(-16), ..Rule::above_stack_pointer(16) };
    assert_eq!(table.lookup(Svma(start + push + 1)), Entry::Rule(after_push));
    // add $N,%rsp; pop %rbp; ret
    let pop = code.windows(2).position(|bytes| bytes == [0x5d, 0xc3]).unwrap() as u64;
    assert_eq!(table.lookup(Svma(start + pop)), Entry::Rule(after_push));
    assert_eq!(table.lookup(Svma(start + pop + 1)), Entry::Rule(Rule::LEAF));
}

/// Go writes `.debug_frame` from the same depths, but without the frame pointer and without a notion of other stacks.
#[test]
fn rows_of_arm64_equal_gos_own_debug_frame_but_for_functions_that_switch_stacks() {
    let Some(program) = build_for("aarch64", PROGRAM, false, &[]) else { return };
    let file = object::File::parse(&*program).unwrap();
    let (table, comparison) = compare(&program).unwrap();
    let summary = table.summary();
    assert!(summary.functions[&RowSource::GoPclntab] > 1500, "{summary:?}");
    assert_eq!((summary.malformed_total(), comparison.unexplained), (0, 0), "{comparison:?}");
    assert!(comparison.compared > 10_000, "{comparison:?}");
    let only = [Difference::GoRuntime, Difference::StackBegins];
    assert!(comparison.differences.keys().all(|why| only.contains(why)), "{comparison:?}");
    assert!(comparison.differences.values().sum::<u64>() < 300, "{comparison:?}");

    let arm64 = Architecture::Aarch64;
    let at = |name: &str, offset: u64| table.lookup(Svma(function(&file, name).0 + offset));
    let frame = |register, bytes: i32, above_record: i32| {
        Entry::Rule(Rule {
            cfa: Cfa::Register { register, offset: bytes + above_record },
            frame_pointer: SavedRegister::AtCfa(-bytes - 8),
            return_address: ReturnAddress::AtCfa(-bytes),
            ..arm64.leaf()
        })
    };
    // `str x30, [sp, #-192]!`, `stur x29, [sp, #-8]`: a frame of 192 bytes, with the record in the word below.
    let unsaved = Rule {
        cfa: Cfa::Register { register: Register::Sp, offset: 192 },
        return_address: ReturnAddress::AtCfa(-192),
        ..arm64.leaf()
    };
    let sigtramp = "runtime.sigtramp.abi0";
    assert_eq!([at(sigtramp, 0), at(sigtramp, 4)], [Entry::Rule(arm64.leaf()), Entry::Rule(unsaved)]);
    assert_eq!(at(sigtramp, 8), frame(Register::Sp, 192, 0));

    assert_eq!(at("runtime.mcall", 0), Entry::Rule(arm64.leaf()), "still on the goroutine's stack");
    assert_eq!(at("runtime.goexit.abi0", 0), Entry::Rule(arm64.root()));
    let last = |name: &str| {
        let (start, size) = function(&file, name);
        table.rows().filter(|row| (start..start + size).contains(&row.start.0)).last().unwrap().entry
    };
    assert_eq!(last("runtime.mcall"), Entry::Rule(arm64.root()));
    assert_eq!(at("runtime.systemstack.abi0", 12), frame(Register::X29, 16, 8), "across the stacks");

    let Entry::Rule(injected) = at("runtime.asyncPreempt.abi0", 12) else { panic!("no rule") };
    assert!(injected.signal_frame, "it returns to the instruction that was interrupted");
    assert_eq!(injected.callee_saved, CalleeSaved::AtCfa(-16), "the link register of what was interrupted");
}

/// With C, `.eh_frame` describes a part of the code, and Go's table the rest.
#[test]
fn parts_and_functions_of_go_programs_say_what_the_whole_says() {
    let builds: [(&str, bool, &[&str]); 3] = [
        (PROGRAM, false, &[]),
        (PROGRAM, false, &["-buildmode=pie", "-ldflags=-s"]),
        (PROGRAM_WITH_C, true, &[]),
    ];
    compare_parts_and_functions(std::env::consts::ARCH, &builds);
}

/// There is no C for it here.
#[test]
fn parts_and_functions_of_go_programs_for_arm64_say_what_the_whole_says() {
    let builds: [(&str, bool, &[&str]); 2] =
        [(PROGRAM, false, &[]), (PROGRAM, false, &["-buildmode=pie", "-ldflags=-s"])];
    compare_parts_and_functions("aarch64", &builds);
}

/// Programs by their source, whether C is part of it, and how they are built.
fn compare_parts_and_functions(architecture: &str, builds: &[(&str, bool, &[&str])]) {
    const NO_DEBUG_FILES: &[object::File<'static, &[u8]>] = &[];
    for &(source, cgo, arguments) in builds {
        let Some(program) = build_for(architecture, source, cgo, arguments) else { return };
        let file = object::File::parse(&*program).unwrap();
        assert!(has_only_indexed_sources(&file));
        let whole = unwind_table(&file).unwrap();
        let mut sources = PartedSources::from_file(&file, NO_DEBUG_FILES).unwrap().unwrap();
        let undescribed = sources.undescribed_code();
        let mut compared = 0;
        let mut starts = whole.rows().map(|row| row.start.0);
        let (first, last) = (starts.next().unwrap() & !0xfff, starts.last().unwrap());
        for start in (first..last).step_by(0x31000) {
            let part = Svma(start)..Svma(start + 0x31000);
            let wanted = std::slice::from_ref(&part);
            if undescribed.iter().any(|code| code.start < part.end && part.start < code.end) {
                sources.read_code(wanted);
            }
            let table = sources.table_of(wanted);
            for at in whole.rows().map(|row| row.start).filter(|at| part.contains(at)).chain([part.start]) {
                assert_eq!(table.lookup(at), whole.lookup(at), "{at} of {arguments:?}");
                compared += 1;
            }
        }
        assert!(compared > 10_000, "{compared} of {arguments:?}");

        let outline = FileOutline::from_file(&file, NO_DEBUG_FILES).unwrap().unwrap();
        let by_code: Vec<_> = whole.by_machine_code().collect();
        let is_described = |at: &Svma| !by_code.iter().any(|code| code.contains(at));
        let starts: Vec<Svma> = whole.rows().map(|row| row.start).filter(is_described).collect();
        let asked: Vec<Svma> = starts.iter().copied().step_by(997).collect();
        for some in asked.chunks(5) {
            let table = outline.table_of_functions(&*program, some);
            for at in some {
                assert_eq!(table.lookup(*at), whole.lookup(*at), "{at} of {arguments:?}");
            }
            let is_known = |at: &&Svma| table.lookup(**at) != Entry::End(EndReason::NotAsked);
            let known: Vec<_> = starts.iter().filter(is_known).collect();
            known
                .iter()
                .for_each(|at| assert_eq!(table.lookup(**at), whole.lookup(**at), "{at} of {arguments:?}"));
            assert!(known.len() < starts.len() / 10, "{} of {}", known.len(), starts.len());
        }
    }
}
