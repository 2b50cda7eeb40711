//! Names are compared with those of `llvm-symbolizer`, on real files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind};
use sidewinder_address::Svma;
use sidewinder_symbolize::{Symbol, SymbolLimits, SymbolTable};

const ADDRESSES: usize = 10_000;

/// Why our name may differ from the oracle's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reason {
    /// Both start at the same address; the oracle takes the table's last name, we take the best known.
    Alias,
    /// The oracle considers only the last symbol before an address, so it misses a function after another one that is
    /// nested in it.
    OuterFunction,
    /// The oracle names code after data, after a label inside a function, or after a symbol without a size inside one
    /// with a size.
    NoFunction,
    /// The oracle lets a symbol without a size extend beyond its section.
    BeyondSection,
    /// The oracle does not read `.dynsym` if there is a `.symtab`.
    DynamicOnly,
    /// The oracle does not recognise stubs.
    Stub,
}

/// One symbol, as read by an independent parser.
struct Known {
    name: String,
    start: u64,
    size: u64,
    is_function: bool,
    is_dynamic: bool,
}

struct Subject {
    symbols: Vec<Known>,
    code: Vec<(u64, u64)>,
}

impl Subject {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let file = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
        let code = file
            .sections()
            .filter(|section| matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.0 & 6 == 6))
            .map(|section| (section.address(), section.address() + section.size()))
            .collect();
        let known = |is_dynamic: bool| {
            move |symbol: object::read::elf::ElfSymbol<'_, '_, _>| Known {
                name: without_version(symbol.name().unwrap_or_default()).to_owned(),
                start: symbol.address(),
                size: symbol.size(),
                is_function: symbol.kind() == SymbolKind::Text
                    || (symbol.kind() == SymbolKind::Unknown && !symbol.is_local()),
                is_dynamic,
            }
        };
        let full = file.symbols().map(known(false));
        let symbols = full.chain(file.dynamic_symbols().map(known(true))).collect();
        Self { symbols, code }
    }

    fn section(&self, svma: u64) -> Option<(u64, u64)> {
        self.code.iter().copied().find(|(start, end)| (*start..*end).contains(&svma))
    }

    /// Why the names may differ, if they may.
    fn explain(&self, svma: u64, ours: Option<&Symbol>, theirs: Option<&str>) -> Option<Reason> {
        let holds =
            |symbol: &&Known| symbol.start <= svma && (symbol.size == 0 || svma - symbol.start < symbol.size);
        let named: Vec<_> =
            self.symbols.iter().filter(|symbol| Some(&*symbol.name) == theirs).filter(holds).collect();
        let Some(ours) = ours else {
            let is_cut_off =
                |symbol: &&Known| symbol.size == 0 && self.section(symbol.start) != self.section(svma);
            return if named.iter().any(is_cut_off) {
                Some(Reason::BeyondSection)
            } else {
                named.iter().any(|symbol| !symbol.is_function).then_some(Reason::NoFunction)
            };
        };
        let start = ours.start.0;
        if ours.name.ends_with("@plt") {
            return Some(Reason::Stub);
        }
        let is_ours = |symbol: &&Known| symbol.start == start && symbol.name == ours.name;
        let own = self.symbols.iter().filter(is_ours).find(holds).expect("our name is one of the file's");
        if named.iter().any(|symbol| symbol.start == start) {
            Some(Reason::Alias)
        } else if own.is_dynamic {
            Some(Reason::DynamicOnly)
        } else if theirs.is_none() {
            (own.size > 0).then_some(Reason::OuterFunction)
        } else {
            let is_weaker = |symbol: &&Known| !symbol.is_function || (symbol.size == 0 && own.size > 0);
            named.iter().any(is_weaker).then_some(Reason::NoFunction)
        }
    }
}

/// The ranges of a file's code.
pub(crate) fn code_of(path: &Path) -> Vec<(u64, u64)> {
    Subject::read(path).code
}

/// The starts of the functions with each name in a file.
pub(crate) fn starts_by_name(path: &Path) -> BTreeMap<String, BTreeSet<u64>> {
    let mut starts = BTreeMap::<String, BTreeSet<u64>>::new();
    for symbol in Subject::read(path).symbols {
        starts.entry(without_version(&symbol.name).to_owned()).or_default().insert(symbol.start);
    }
    starts
}

fn without_version(name: &str) -> &str {
    name.find('@').filter(|at| *at > 0).map_or(name, |at| &name[..at])
}

/// The oracle's name for each address; `None` without an oracle.
fn ask_oracle(path: &Path, addresses: &[u64]) -> Option<Vec<Option<String>>> {
    // Separate debug files may be installed; they are tested elsewhere.
    let no_debug_files = tempfile::tempdir().unwrap();
    let directory = no_debug_files.path().to_str().unwrap();
    let answers = answers(path, addresses, &["--no-inlines", "--debug-file-directory", directory])?;
    let names = answers.iter().map(|answer| answer.lines().next().unwrap_or("??"));
    Some(names.map(|name| (name != "??").then(|| without_version(name).to_owned())).collect())
}

/// The oracle's output for each address, with additional arguments: mangled names, each followed by its source
/// position.
pub(crate) fn answers(program: &Path, addresses: &[u64], arguments: &[&str]) -> Option<Vec<String>> {
    let mut child = Command::new("llvm-symbolizer")
        .args(["--functions=linkage", "--no-demangle"])
        .args(arguments)
        .arg("--obj")
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut questions = child.stdin.take().unwrap();
    let text: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || questions.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers: Vec<_> = output.split("\n\n").take(addresses.len()).map(str::to_owned).collect();
    assert_eq!(answers.len(), addresses.len(), "{output}");
    Some(answers)
}

/// Addresses all over the code, the same in each run.
pub(crate) fn addresses(code: &[(u64, u64)]) -> Vec<u64> {
    let total: u64 = code.iter().map(|(start, end)| end - start).sum();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let random = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    random
        .take(ADDRESSES)
        .map(|number| {
            let mut at = number % total;
            for (start, end) in code {
                if at < end - start {
                    return start + at;
                }
                at -= end - start;
            }
            unreachable!()
        })
        .collect()
}

/// Compares all names, and returns how many of them are in each language.
fn agrees(path: &Path) -> Option<BTreeMap<String, usize>> {
    let subject = Subject::read(path);
    let addresses = addresses(&subject.code);
    let Some(oracle) = ask_oracle(path, &addresses) else {
        eprintln!("SKIPPED: llvm-symbolizer is not installed");
        return None;
    };
    let table = SymbolTable::read(File::open(path).unwrap(), SymbolLimits::default()).unwrap();
    assert_eq!(table.cut(), sidewinder_symbolize::OmittedSymbols::default());
    let mut equal = 0;
    let mut reasons = BTreeMap::<Reason, usize>::new();
    let mut languages = BTreeMap::<String, usize>::new();
    for (svma, theirs) in addresses.iter().zip(&oracle) {
        let ours = table.lookup(Svma(*svma)).unwrap();
        if let Some(symbol) = &ours {
            *languages.entry(format!("{:?}", symbol.language)).or_default() += 1;
        }
        if ours.as_ref().map(|symbol| &symbol.name) == theirs.as_ref() {
            equal += 1;
            continue;
        }
        match subject.explain(*svma, ours.as_ref(), theirs.as_deref()) {
            Some(reason) => *reasons.entry(reason).or_default() += 1,
            None => panic!("{}: {svma:#x}: {ours:?}, the oracle says {theirs:?}", path.to_string_lossy()),
        }
    }
    eprintln!("{}: {equal} of {ADDRESSES} equal, {reasons:?}, {languages:?}", path.to_string_lossy());
    assert!(equal > ADDRESSES / 2, "{}: {equal} equal, {reasons:?}", path.to_string_lossy());
    Some(languages)
}

/// Compiles a program; returns `None` and prints a message without the compiler.
fn compile(name: &str, source: &str, compiler: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), source).unwrap();
    let out = folder.path().join("program");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).arg("-o").arg(&out).arg(name).current_dir(folder.path());
    match command.output() {
        Ok(output) if output.status.success() => Some((folder, out)),
        Ok(output) => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            eprintln!("SKIPPED: {}: {error}", compiler[0]);
            None
        }
    }
}

/// The file of a library that this process itself has mapped.
fn mapped(part: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(5))
        .find(|path| path.contains(part))
        .map(PathBuf::from)
}

#[test]
fn libc() {
    let Some(path) = mapped("/libc.so") else {
        eprintln!("SKIPPED: no libc is mapped");
        return;
    };
    agrees(&path);
}

#[test]
fn python() {
    // The interpreter is in the program or in a library, depending on how it was built: take the larger.
    let script = "import os; print(max({line.split()[-1] for line in open('/proc/self/maps') \
                  if 'python' in line and ' r-xp ' in line}, key=os.path.getsize))";
    let Ok(output) = Command::new("python3").args(["-c", script]).output() else {
        eprintln!("SKIPPED: python3 is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    agrees(Path::new(String::from_utf8_lossy(&output.stdout).trim()));
}

#[test]
fn a_c_program_linked_statically() {
    let source = "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n";
    let Some((_folder, path)) = compile("program.c", source, &["cc", "-O2", "-static"]) else { return };
    agrees(&path);
}

#[test]
fn a_cpp_program_linked_statically() {
    let source = "#include <iostream>\n#include <map>\n#include <string>\n\
        int main() { std::map<std::string, int> m; m[\"a\"] = 1; for (auto& p : m) std::cout << p.first << p.second; }\n";
    let Some((_folder, path)) = compile("program.cpp", source, &["c++", "-O2", "-static"]) else { return };
    if let Some(languages) = agrees(&path) {
        assert!(languages["Cpp"] > 1000, "{languages:?}");
    }
}

#[test]
fn a_rust_program() {
    let source = "fn main() { let m: std::collections::HashMap<_, _> = std::env::vars().collect(); println!(\"{m:?}\"); }\n";
    let Some((_folder, path)) = compile("program.rs", source, &["rustc", "-O"]) else { return };
    if let Some(languages) = agrees(&path) {
        assert!(languages["Rust"] > ADDRESSES / 2, "{languages:?}");
    }
}

#[test]
fn a_go_program() {
    let source = "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hello\") }\n";
    let Some((_folder, path)) = compile("program.go", source, &["go", "build"]) else { return };
    if let Some(languages) = agrees(&path) {
        assert!(languages["Go"] > ADDRESSES * 9 / 10, "{languages:?}");
    }
}

/// The stubs of a file by address, as listed by `objdump`; `None` without it.
fn stubs(path: &Path) -> Option<BTreeMap<u64, String>> {
    let sections = ["-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got"];
    let output = Command::new("objdump").arg("-d").args(sections).arg(path).output().ok()?;
    let output = String::from_utf8(output.stdout).unwrap();
    let labels = output.lines().filter_map(|line| line.strip_suffix(">:")?.split_once(" <"));
    let named = labels.filter(|(_, name)| name.ends_with("@plt") && !name.starts_with("*ABS*"));
    Some(named.map(|(address, name)| (u64::from_str_radix(address, 16).unwrap(), name.to_owned())).collect())
}

#[test]
fn stubs_are_named_as_objdump_names_them() {
    let source = "#include <stdio.h>\n#include <string.h>\n#include <stdlib.h>\nint main(int c, char **v) {\n\
        char *copy = malloc(100); atexit(abort); puts(strncpy(copy, v[0], c)); return 0; }\n";
    let linked: [&[&str]; 4] = [
        &["gcc", "-O2"],
        &["gcc", "-O2", "-fcf-protection=none", "-Wl,-z,lazy"],
        &["gcc", "-O2", "-fcf-protection", "-Wl,-z,lazy", "-Wl,-z,ibtplt"],
        &["gcc", "-O2", "-s", "-Wl,-z,now", "-no-pie"],
    ];
    for compiler in linked {
        let Some((_folder, path)) = compile("program.c", source, compiler) else { return };
        let Some(stubs) = stubs(&path) else {
            eprintln!("SKIPPED: objdump is not installed");
            return;
        };
        assert!(stubs.values().any(|name| name == "puts@plt"), "{compiler:?}: {stubs:?}");
        let table = SymbolTable::read(File::open(&path).unwrap(), SymbolLimits::default()).unwrap();
        for (svma, name) in stubs {
            let ours =
                [svma, svma + 6].map(|svma| table.lookup(Svma(svma)).unwrap().map(|symbol| symbol.name));
            assert_eq!(ours, [Some(name.clone()), Some(name)], "{compiler:?} {svma:#x}");
        }
    }
}
