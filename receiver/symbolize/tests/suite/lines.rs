//! Names, files, lines and inlined calls equal `llvm-symbolizer`'s, on programs compiled for that.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::Object as _;
use sidewinder_address::Svma;
use sidewinder_symbolize::{BinaryFiles, BinaryId, Image, Lookup, Symbolizer, SymbolizerOptions};

use crate::oracle::{self, addresses, code_of, starts_by_name};

/// One function of a chain: name as the linker knows it, path, line, column.
type Line = (String, String, u32, u32);

/// A binary and its debug file.
struct Pair {
    program: PathBuf,
    debug_file: Option<PathBuf>,
    /// The file that the oracle is asked about.
    whole: PathBuf,
}

impl BinaryFiles for &Pair {
    fn content(&self) -> io::Result<Image> {
        Ok(File::open(&self.program)?.into())
    }

    fn debug_file(&self) -> Option<Image> {
        Some(File::open(self.debug_file.as_ref()?).unwrap().into())
    }

    fn package(&self) -> Option<Image> {
        let package = self.program.with_extension("dwp");
        package.exists().then(|| File::open(package).unwrap().into())
    }

    fn split_unit(&self, path: &[u8]) -> Option<Image> {
        Some(File::open(str::from_utf8(path).unwrap()).ok()?.into())
    }
}

pub(crate) fn symbolizer(budget_bytes: usize) -> Symbolizer {
    Symbolizer::new(SymbolizerOptions { budget_bytes, lines: true, inlines: true, has_no_time_limit: true })
}

fn ours(symbolizer: &mut Symbolizer, pair: &Pair, svma: u64) -> Vec<Line> {
    match symbolizer.name(BinaryId(1), pair, Svma(svma)) {
        Lookup::Unnamed { .. } => Vec::new(),
        Lookup::Named(frames) => frames
            .iter()
            .map(|frame| {
                let path = frame.path.as_ref().map_or_else(|| "??".to_owned(), ToString::to_string);
                (frame.name.system_name.to_string(), path, frame.line, frame.column)
            })
            .collect(),
    }
}

/// What the oracle says of each address, innermost first; `None` without an oracle.
fn theirs(program: &Path, addresses: &[u64]) -> Option<Vec<Vec<Line>>> {
    let chain = |answer: &str| -> Vec<Line> {
        let lines: Vec<&str> = answer.lines().collect();
        let pairs = lines.chunks_exact(2).map(|pair| {
            let mut parts = pair[1].rsplitn(3, ':');
            let (column, line): (u32, u32) =
                (parts.next().unwrap().parse().unwrap(), parts.next().unwrap().parse().unwrap());
            // Where there is no line, what the compiler has left as a column is of nothing.
            let column = if line == 0 { 0 } else { column };
            let name = pair[0].split('@').next().unwrap();
            (name.to_owned(), parts.next().unwrap().to_owned(), line, column)
        });
        pairs.collect()
    };
    let answers = oracle::answers(program, addresses, &["--inlines"])?;
    Some(answers.iter().map(|answer| chain(answer)).collect())
}

/// Why an answer may differ from the oracle's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reason {
    /// The oracle does not know stubs, and names whatever symbol comes before.
    Stub,
    /// The symbol of another name of the same function, or of the same address, holds here and another one there.
    Alias,
    /// The oracle takes the name of an object file, which `.symtab` has too, for that of a source file where nothing is
    /// known of the source.
    ObjectFile,
    /// The oracle lets a symbol without a size reach beyond its section.
    BeyondSection,
    /// Code that Go's compiler made, which no source file has: the debug information says that in several ways.
    Generated,
    /// The oracle knows no function where debug information has none, though a symbol says that it reaches there.
    SymbolOnly,
}

/// Whether two names are of functions that start at one address.
type AreAliases<'a> = &'a dyn Fn(&str, &str) -> bool;

fn explain(ours: &[Line], theirs: &[Line], are_aliases: AreAliases<'_>) -> Option<Reason> {
    match (ours, theirs) {
        ([only], _) if only.0.ends_with("@plt") => Some(Reason::Stub),
        ([], [other]) if other.2 == 0 => Some(Reason::BeyondSection),
        ([one], []) if one.2 == 0 => Some(Reason::SymbolOnly),
        ([inner @ .., one], [other_inner @ .., other]) if inner == other_inner => {
            let is_object_file = one.2 == 0 && other.2 == 0 && one.1 == "??" && !other.1.contains('/');
            let is_same_place = (&one.1, one.2, one.3) == (&other.1, other.2, other.3);
            // The linker tells two forms of a function apart by a suffix that Go's own table does not have.
            let without_form = |name: &'_ str| name.strip_suffix(".abi0").unwrap_or(name).to_owned();
            let (own, others) = (without_form(&one.0), without_form(&other.0));
            // Its own table leaves out what types a function is for.
            let is_shortened = own
                .split_once("[...]")
                .is_some_and(|(before, behind)| others.starts_with(before) && others.ends_with(behind));
            let is_same = own == others || is_shortened;
            if is_same && one.1 == "<autogenerated>" {
                Some(Reason::Generated)
            } else if is_object_file && one.0 == other.0 {
                Some(Reason::ObjectFile)
            } else {
                let is_alias = is_same || are_aliases(&one.0, &other.0);
                (is_alias && (is_same_place || is_object_file)).then_some(Reason::Alias)
            }
        }
        _ => None,
    }
}

/// Compares the chains of `count` addresses, and returns how many of them have inlined calls.
fn agrees(pair: &Pair, count: usize) -> Option<usize> {
    agrees_within(pair, count, 32 << 20)
}

fn agrees_within(pair: &Pair, count: usize, budget_bytes: usize) -> Option<usize> {
    let code = code_of(&pair.program);
    let addresses = &addresses(&code)[..count];
    let Some(oracle) = theirs(&pair.whole, addresses) else {
        eprintln!("SKIPPED: llvm-symbolizer is not installed");
        return None;
    };
    let mut symbolizer = symbolizer(budget_bytes);
    let (mut equal, mut inlined) = (0, 0);
    let mut reasons = BTreeMap::<Reason, usize>::new();
    let starts = starts_by_name(&pair.whole);
    let are_aliases = |one: &str, other: &str| match (starts.get(one), starts.get(other)) {
        (Some(starts), Some(others)) => !starts.is_disjoint(others),
        _ => false,
    };
    let mut unexplained = Vec::new();
    for (svma, theirs) in addresses.iter().zip(oracle) {
        let ours = ours(&mut symbolizer, pair, *svma);
        let theirs: Vec<Line> = theirs.into_iter().filter(|line| line.0 != "??").collect();
        inlined += usize::from(theirs.len() > 1);
        if ours == theirs {
            equal += 1;
            continue;
        }
        match explain(&ours, &theirs, &are_aliases) {
            Some(reason) => *reasons.entry(reason).or_default() += 1,
            None => unexplained.push(format!("{svma:#x}\n  ours   {ours:?}\n  theirs {theirs:?}")),
        }
    }
    let name = pair.program.display();
    eprintln!("{name}: {equal} of {count} equal, {inlined} with inlined calls, {reasons:?}");
    assert!(symbolizer.held_bytes() <= budget_bytes);
    assert_eq!(unexplained, [] as [String; 0], "{name}");
    // Nothing is explained away.
    assert!(equal > count / 2, "{name}: {equal} of {count}");
    Some(inlined)
}

const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static inline int weigh(const char *text) { int sum = 0; while (*text) sum += *text++; return sum; }
static int by_weight(const void *a, const void *b) { return weigh(*(const char *const *)a) - weigh(*(const char *const *)b); }
static void __attribute__((noinline)) show(int count, char **texts) {
    for (int i = 0; i < count; i++) printf("%d %s\n", weigh(texts[i]), texts[i]);
}
int main(int count, char **texts) { qsort(texts, count, sizeof *texts, by_weight); show(count, texts); return 0; }
"#;

const CPP: &str = r#"
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
static inline int twice(int x) { return x * 2 + (int)std::to_string(x).size(); }
namespace shop {
template <class T> struct Cart {
    std::vector<T> held;
    int sum() const { int sum = 0; for (auto one : held) sum += twice(one); return sum; }
};
}
int main(int count, char **texts) {
    std::map<std::string, int> seen;
    for (int i = 0; i < count; i++) seen[texts[i]] = twice(i);
    shop::Cart<int> cart;
    for (auto &pair : seen) cart.held.push_back(pair.second);
    std::sort(cart.held.begin(), cart.held.end(), [](int a, int b) { return twice(a) > twice(b); });
    std::cout << cart.sum() << "\n";
}
"#;

const RUST: &str = r#"
fn main() {
    let mut seen: std::collections::HashMap<_, _> = std::env::vars().collect();
    seen.retain(|key, _| key.len() > 2);
    println!("{seen:?}");
}
"#;

const GO: &str = r#"
package main

import (
	"fmt"
	"os"
	"sort"
)

func main() {
	words := os.Environ()
	sort.Slice(words, func(a, b int) bool { return words[a] < words[b] })
	fmt.Println("hello", words)
}
"#;

/// What `memory_limit_mib: 48` leaves for names in files.
const SIDECAR_BYTES: usize = 9 << 19;

/// How a program's debug information is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    Inside,
    /// In a file of its own, of which the program has nothing.
    Beside,
    /// As [`Kept::Beside`], and compressed in this format.
    Compressed(&'static str),
    /// Split off by unit, and these put together.
    Package,
    /// Nowhere: nothing but what Go's own table says is left.
    Nowhere,
}

struct Case<'a> {
    language: &'static str,
    source: &'static str,
    compiler: &'a [&'a str],
    kept: Kept,
}

const fn case(
    source: &'static str,
    language: &'static str,
    compiler: &'static [&'static str],
    kept: Kept,
) -> Case<'static> {
    Case { language, source, compiler, kept }
}

/// The first of each language, which come first, are compared in any case.
const CASES: [Case<'_>; 22] = [
    case(C, "c", &["gcc", "-g", "-O2"], Kept::Inside),
    case(CPP, "cpp", &["g++", "-g", "-O2"], Kept::Beside),
    case(RUST, "rs", &["rustc", "-g", "-O"], Kept::Inside),
    case(GO, "go", &["go", "build", "-ldflags=-compressdwarf=false"], Kept::Inside),
    case(CPP, "cpp", &["clang++", "-g", "-O2", "-gsplit-dwarf", "-gdwarf-5"], Kept::Inside),
    case(GO, "go", &["go", "build", "-buildmode=pie", "-ldflags=-compressdwarf=false"], Kept::Nowhere),
    case(GO, "go", &["go", "build", "-ldflags=-compressdwarf=false"], Kept::Nowhere),
    case(C, "c", &["gcc", "-g", "-O2", "-gdwarf-4", "-static"], Kept::Inside),
    case(C, "c", &["gcc", "-g", "-O0", "-gdwarf-5"], Kept::Beside),
    case(C, "c", &["clang", "-g", "-O2", "-gdwarf-4"], Kept::Inside),
    case(C, "c", &["clang", "-g", "-O2", "-gdwarf-5", "-ffunction-sections"], Kept::Compressed("zlib")),
    case(CPP, "cpp", &["g++", "-g", "-O2", "-gdwarf-4"], Kept::Inside),
    case(CPP, "cpp", &["g++", "-g", "-O1", "-gdwarf-5", "-static"], Kept::Inside),
    case(CPP, "cpp", &["g++", "-g", "-O2", "-gsplit-dwarf", "-gdwarf-4"], Kept::Inside),
    case(CPP, "cpp", &["g++", "-g", "-O3", "-flto"], Kept::Inside),
    case(CPP, "cpp", &["clang++", "-g", "-O2", "-gdwarf-4"], Kept::Compressed("zlib")),
    case(CPP, "cpp", &["clang++", "-g", "-O3", "-gdwarf-5", "-flto"], Kept::Beside),
    case(CPP, "cpp", &["clang++", "-g", "-O2", "-gsplit-dwarf", "-gdwarf-5"], Kept::Package),
    case(RUST, "rs", &["rustc", "-g", "-O", "-Clto=fat"], Kept::Beside),
    case(RUST, "rs", &["rustc", "-Cdebuginfo=line-tables-only", "-O"], Kept::Inside),
    case(RUST, "rs", &["rustc", "-g"], Kept::Compressed("zstd")),
    case(GO, "go", &["go", "build", "-buildmode=pie", "-ldflags=-compressdwarf=false"], Kept::Inside),
];

/// Runs a command in a folder; `false`, loudly, where there is no such program.
pub(crate) fn runs(folder: &Path, command: &[&str]) -> bool {
    match Command::new(command[0]).args(&command[1..]).current_dir(folder).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            eprintln!("SKIPPED: {}: {error}", command[0]);
            false
        }
    }
}

/// Compiles a program; `None` without a compiler.
fn made(case: &Case<'_>) -> Option<(tempfile::TempDir, Pair)> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let source = format!("program.{}", case.language);
    std::fs::write(at(&source), case.source).unwrap();
    let mut command = case.compiler.to_vec();
    command.extend(["-o", "program", &source]);
    let runs = |command: &[&str]| runs(folder.path(), command);
    if !runs(&command) {
        return None;
    }
    let mut debug_file = None;
    std::fs::copy(at("program"), at("whole")).unwrap();
    match case.kept {
        Kept::Inside => {}
        Kept::Nowhere => {
            runs(&["objcopy", "--strip-all", "program"]);
        }
        Kept::Beside | Kept::Compressed(_) => {
            let format = if let Kept::Compressed(format) = case.kept { format } else { "none" };
            let compress = format!("--compress-debug-sections={format}");
            runs(&["objcopy", "--only-keep-debug", &compress, "program", "program.debug"]);
            runs(&["objcopy", "--strip-all", "--add-gnu-debuglink=program.debug", "program"]);
            debug_file = Some(at("program.debug"));
        }
        Kept::Package => {
            runs(&["llvm-dwp", "-e", "program", "-o", "program.dwp"]);
            std::fs::copy(at("program.dwp"), at("whole.dwp")).unwrap();
            for entry in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
                if entry.path().extension().is_some_and(|extension| extension == "dwo") {
                    std::fs::remove_file(entry.path()).unwrap();
                }
            }
        }
    }
    let (program, whole) = (at("program"), at("whole"));
    Some((folder, Pair { program, debug_file, whole }))
}

/// `make names-oracle` compares all of them; of the others, a tenth of the addresses of the first seven.
#[test]
fn lines_and_inlined_calls_are_those_of_llvm_symbolizer() {
    let is_whole = std::env::var_os("SIDEWINDER_WHOLE_ORACLE").is_some();
    let (cases, count) = if is_whole { (CASES.len(), 10_000) } else { (7, 1_000) };
    for case in &CASES[..cases] {
        eprintln!("{:?} {:?}", case.compiler, case.kept);
        let Some((_folder, pair)) = made(case) else { continue };
        let is_optimised = !case.compiler.contains(&"-O0") && !case.compiler.contains(&"-static");
        if let Some(inlined) = agrees(&pair, count) {
            assert!(!is_optimised || inlined > count / 10, "{inlined} of {count} with inlined calls");
        }
    }
}

/// Of the version that is installed, of those that Debian installs beside it, and of those in `SIDEWINDER_GO`, such as
/// `go1.21.13,go1.24.13`, which are downloaded.
#[test]
fn what_the_tables_of_other_versions_of_go_say_is_what_llvm_symbolizer_says() {
    let installed = std::fs::read_dir("/usr/lib").unwrap().filter_map(|entry| {
        let go = entry.ok()?.path();
        go.file_name()?.to_str()?.starts_with("go-1.").then(|| go.join("bin/go").display().to_string())
    });
    let others = std::env::var("SIDEWINDER_GO").unwrap_or_default();
    let others = others.split(',').filter(|version| !version.is_empty());
    let programs = installed
        .map(|go| (go, "GOTOOLCHAIN=local".to_owned()))
        .chain(others.map(|version| ("go".to_owned(), format!("GOTOOLCHAIN={version}"))));
    for (go, toolchain) in programs {
        for mode in ["exe", "pie"] {
            eprintln!("{go} {toolchain} {mode}");
            let mode = format!("-buildmode={mode}");
            let compiler = ["env", &toolchain, &go, "build", &mode, "-ldflags=-compressdwarf=false"];
            let case = Case { language: "go", source: GO, compiler: &compiler, kept: Kept::Nowhere };
            let Some((_folder, pair)) = made(&case) else { continue };
            if let Some(inlined) = agrees(&pair, 1_000) {
                assert!(inlined > 100, "{inlined} of 1000 with inlined calls");
            }
        }
    }
}

/// The C library with the debug file that Debian installs for it, which is compressed.
#[test]
fn lines_of_the_c_library_are_those_of_llvm_symbolizer_in_the_room_that_a_sidecar_has_for_names() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut mapped = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
    let Some(program) = mapped.find(|path| path.contains("/libc.so")).map(PathBuf::from) else {
        eprintln!("SKIPPED: no libc is mapped");
        return;
    };
    let bytes = std::fs::read(&program).unwrap();
    let id = object::File::parse(&*bytes).unwrap().build_id().unwrap().unwrap().to_owned();
    let hexadecimal: String = id[1..].iter().map(|byte| format!("{byte:02x}")).collect();
    let debug = PathBuf::from(format!("/usr/lib/debug/.build-id/{:02x}/{hexadecimal}.debug", id[0]));
    if !debug.exists() {
        eprintln!("SKIPPED: libc6-dbg is not installed");
        return;
    }
    let count = if std::env::var_os("SIDEWINDER_WHOLE_ORACLE").is_some() { 10_000 } else { 500 };
    let pair = Pair { program, debug_file: Some(debug.clone()), whole: debug };
    agrees_within(&pair, count, SIDECAR_BYTES);
}

#[test]
fn lines_and_inlined_calls_can_be_left_out() {
    let Some((_folder, pair)) = made(&CASES[0]) else { return };
    let addresses = addresses(&code_of(&pair.program));
    let frames_of = |lines, inlines| {
        let options = SymbolizerOptions { budget_bytes: 8 << 20, lines, inlines, has_no_time_limit: true };
        let mut symbolizer = Symbolizer::new(options);
        addresses.iter().flat_map(|svma| ours(&mut symbolizer, &pair, *svma)).collect::<Vec<_>>()
    };
    let [whole, without_inlines, without_lines, names] =
        [(true, true), (true, false), (false, true), (false, false)]
            .map(|(lines, inlines)| frames_of(lines, inlines));
    let lines = |frames: &[Line]| frames.iter().filter(|frame| frame.2 > 0).count();
    assert!(whole.len() > without_inlines.len() && lines(&whole) > addresses.len() / 2);
    assert!(lines(&without_inlines) > 0 && without_lines.len() == whole.len());
    assert_eq!((lines(&without_lines), lines(&names), names.len()), (0, 0, without_inlines.len()));
}
