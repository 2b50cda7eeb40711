//! Thread-local variables of real programs and libraries, in every TLS model of compilers and linkers, compared with the
//! addresses that the programs print.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what goes wrong in a test fails it")]

mod common;

use std::fs::File;
use std::path::Path;
use std::process::Command;

use common::{Talker, compile};
use sidewinder_address::Avma;
use sidewinder_process::tls::{TlsLocation, TlsSymbol, read_constant};
use sidewinder_process::{ForeignMemory, ProcRoot, ProcessDir, ProcessMemory, read_executable_mappings};

const NAME: &[u8] = b"otel_thread_ctx_v1";

/// A library with the variable and optionally others, so many that there is no room for them in static blocks when the
/// library is loaded at run time.
const LIBRARY: &str = "
#ifdef LARGE
__thread char large[1 << 20];
#endif
__thread char before[40] = { 1 };
#ifdef PROTECTED
__attribute__((visibility(\"protected\")))
#endif
__thread void *otel_thread_ctx_v1;
_Alignas(64) __thread char behind[3];
void *where(void) { before[0]++; behind[0]++; return &otel_thread_ctx_v1; }
";

/// Prints the addresses of control blocks and copies of two threads, one of which started before the library was loaded.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#ifdef OWN
_Alignas(32) __thread char before[5] = { 1 };
__thread void *otel_thread_ctx_v1;
static void *where(void) { before[0]++; return &otel_thread_ctx_v1; }
#elif defined(LINKED)
void *where(void);
#elif defined(USED)
extern __thread void *otel_thread_ctx_v1;
static void *where(void) { return &otel_thread_ctx_v1; }
#else
static void *(*where)(void);
#endif
static volatile int loaded;
static void say(void) { void *thread; __asm__("mov %%fs:0, %0" : "=r"(thread)); printf("%p %p\n", thread, where()); fflush(stdout); }
static pthread_barrier_t said;
static void *run(void *unused) { while (!loaded) usleep(1000); say(); pthread_barrier_wait(&said); pause(); return 0; }
int main(int argc, char **argv) {
    pthread_t thread; pthread_barrier_init(&said, 0, 2); pthread_create(&thread, 0, run, 0);
#ifdef OPENED
    where = (void *(*)(void))dlsym(dlopen(argv[1], RTLD_NOW), "where");
    if (!where) return 1;
#endif
    loaded = 1; pthread_barrier_wait(&said); say(); pause();
}
"#;

/// The locations from all executable mappings of a process.
fn locations(talker: &Talker) -> Vec<TlsLocation> {
    let open = || ProcessDir::open(&ProcRoot::default(), talker.pid()).unwrap();
    let memory = ProcessMemory::new(open());
    let mut found = Vec::new();
    let mut mappings = Vec::new();
    read_executable_mappings(open().file("maps").unwrap(), |mapping| mappings.push(mapping)).unwrap();
    for mapping in mappings {
        let Some(path) = mapping.backing.file() else { continue };
        let file = File::open(Path::new(std::str::from_utf8(path.path()).unwrap())).unwrap();
        let Some(symbol) = TlsSymbol::read(&file, NAME).unwrap() else { continue };
        let bias = symbol.bias_of(&mapping).unwrap();
        found.extend(symbol.locate(bias, &memory).ok());
    }
    found.sort_by_key(|location| format!("{location:?}"));
    found.dedup();
    found
}

/// Resolves a location as a thread does, through the vectors of glibc or musl.
fn address_of(location: TlsLocation, thread: u64, memory: &ProcessMemory, is_musl: bool) -> u64 {
    match location {
        TlsLocation::Static { offset } => thread.wrapping_add_signed(offset),
        TlsLocation::Dynamic { module, offset } => {
            let vector = memory.word(Avma(thread + 8)).unwrap();
            memory.word(Avma(vector + module * if is_musl { 8 } else { 16 })).unwrap() + offset
        }
        TlsLocation::Indirect { .. } => panic!("{location:?}: no variable is there"),
    }
}

/// Runs a program and compares each location with the addresses that its threads print.
fn check(what: &str, command: &mut Command, is_musl: bool, is_static: bool) {
    let mut talker = Talker::start(command);
    let said: Vec<Vec<u64>> = (0..2)
        .map(|_| {
            let line = talker.hear();
            line.split(' ').map(|word| u64::from_str_radix(&word[2..], 16).unwrap()).collect()
        })
        .collect();
    let found = locations(&talker);
    assert_eq!(found.len(), 1, "{what}: {found:?}");
    assert_eq!(matches!(found[0], TlsLocation::Static { .. }), is_static, "{what}: {found:?}");
    let memory = ProcessMemory::new(ProcessDir::open(&ProcRoot::default(), talker.pid()).unwrap());
    for thread in &said {
        let [pointer, address] = thread[..] else { panic!("{what}: {said:?}") };
        assert_eq!(address_of(found[0], pointer, &memory, is_musl), address, "{what}: {found:?}");
    }
}

#[test]
fn a_variable_of_the_program_is_found() {
    let directory = tempfile::tempdir().unwrap();
    for (what, arguments) in [
        ("exported by a PIE", &["-DOWN", "-pie", "-fPIE", "-rdynamic"][..]),
        ("exported by a program at a fixed address", &["-DOWN", "-no-pie", "-rdynamic"]),
        ("of a static program", &["-DOWN", "-static", "-no-pie", "-w"]),
        ("of a static PIE", &["-DOWN", "-static-pie", "-fPIE", "-rdynamic", "-w"]),
        ("of a program that is not optimised", &["-DOWN", "-O0", "-fPIE", "-pie", "-rdynamic"]),
        (
            "by descriptors that the linker has replaced",
            &["-DOWN", "-fPIC", "-mtls-dialect=gnu2", "-rdynamic"],
        ),
    ] {
        let program = compile(directory.path(), "program", PROGRAM, arguments);
        check(what, &mut Command::new(program), false, true);
    }
}

#[test]
fn a_variable_of_a_library_is_found_however_it_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    let [search, path] = [format!("-L{folder}"), format!("-Wl,-rpath,{folder}")];
    let opener = compile(directory.path(), "opener", PROGRAM, &["-DOPENED"]);
    for (what, arguments, is_static_when_linked, is_static_when_opened) in [
        ("general dynamic", &["-O1"][..], false, false),
        ("of its own", &["-O1", "-Wl,-Bsymbolic"], false, false),
        ("protected", &["-O1", "-DPROTECTED"], false, false),
        (
            "protected descriptors of much",
            &["-O1", "-DPROTECTED", "-DLARGE", "-mtls-dialect=gnu2"],
            true,
            false,
        ),
        ("descriptors", &["-O1", "-mtls-dialect=gnu2"], true, true),
        ("descriptors of much", &["-O1", "-mtls-dialect=gnu2", "-DLARGE"], true, false),
        ("descriptors of its own", &["-O1", "-mtls-dialect=gnu2", "-Wl,-Bsymbolic"], true, true),
        (
            "descriptors of its own of much",
            &["-O1", "-mtls-dialect=gnu2", "-DLARGE", "-Wl,-Bsymbolic"],
            true,
            false,
        ),
        ("local dynamic", &["-O1", "-ftls-model=local-dynamic"], false, false),
        (
            "local dynamic descriptors",
            &["-O1", "-ftls-model=local-dynamic", "-mtls-dialect=gnu2"],
            true,
            true,
        ),
        (
            "local dynamic descriptors of much",
            &["-O1", "-DLARGE", "-ftls-model=local-dynamic", "-mtls-dialect=gnu2"],
            true,
            false,
        ),
        ("initial exec", &["-O1", "-ftls-model=initial-exec"], true, true),
    ] {
        let arguments = [&["-shared", "-fPIC"], arguments].concat();
        let library = compile(directory.path(), "libwhere.so", LIBRARY, &arguments);
        let linked = compile(directory.path(), "linked", PROGRAM, &["-DLINKED", &search, "-lwhere", &path]);
        check(&format!("{what}, linked"), &mut Command::new(linked), false, is_static_when_linked);
        check(&format!("{what}, opened"), Command::new(&opener).arg(library), false, is_static_when_opened);
    }
    // Only the program has a slot for the variable, which the library defines.
    let alone = "__thread void *otel_thread_ctx_v1;";
    compile(directory.path(), "libwhere.so", alone, &["-shared", "-fPIC"]);
    let used = compile(directory.path(), "used", PROGRAM, &["-DUSED", &search, "-lwhere", &path]);
    check("used by the program", &mut Command::new(used), false, true);
}

#[test]
fn a_variable_is_found_with_musl_too() {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no musl-gcc (package musl-tools)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let compile = |name: &str, source: &str, arguments: &[&str]| {
        let (input, output) = (directory.path().join("input.c"), directory.path().join(name));
        std::fs::write(&input, source).unwrap();
        let compiler = Command::new("musl-gcc").arg("-o").arg(&output).arg(&input).args(arguments).status();
        assert!(compiler.unwrap().success(), "{name} {arguments:?}");
        output
    };
    let own = compile("own", PROGRAM, &["-DOWN", "-rdynamic"]);
    check("musl, of the program", &mut Command::new(own), true, true);
    let whole = compile("whole", PROGRAM, &["-DOWN", "-static"]);
    check("musl, of a static program", &mut Command::new(whole), true, true);
    let opener = compile("opener", PROGRAM, &["-DOPENED"]);
    for dialect in ["gnu", "gnu2"] {
        let dialect_flag = format!("-mtls-dialect={dialect}");
        let library = compile("libwhere.so", LIBRARY, &["-shared", "-fPIC", &dialect_flag]);
        check(&format!("musl, opened, {dialect}"), Command::new(&opener).arg(&library), true, false);
        let folder = directory.path().to_str().unwrap();
        let [search, path] = [format!("-L{folder}"), format!("-Wl,-rpath,{folder}")];
        let linked = compile("linked", PROGRAM, &["-DLINKED", &search, "-lwhere", &path]);
        check(&format!("musl, linked, {dialect}"), &mut Command::new(linked), true, dialect == "gnu2");
    }
}

#[test]
fn other_files_have_no_such_variable() {
    let directory = tempfile::tempdir().unwrap();
    let source = "__thread void *otel_thread_ctx_v12; __thread int x_otel_thread_ctx_v1;\n\
                  void *otel_thread_ctx_v1(void) { return &otel_thread_ctx_v12; }";
    let library = compile(directory.path(), "other.so", source, &["-shared", "-fPIC"]);
    assert_eq!(TlsSymbol::read(&File::open(library).unwrap(), NAME).unwrap(), None);
    let text = directory.path().join("text");
    std::fs::write(&text, "#!/bin/sh\n").unwrap();
    assert_eq!(TlsSymbol::read(&File::open(text).unwrap(), NAME).unwrap(), None);
}

#[test]
fn a_constant_is_read_that_a_library_exports() {
    let directory = tempfile::tempdir().unwrap();
    let source = "unsigned version = 0x01020304; const unsigned fixed = 7; unsigned long wide = 1; extern unsigned other;\n\
                  static unsigned own = 1; __thread unsigned of_thread = 1; unsigned *use(void) { return &own + other; }";
    let library = compile(directory.path(), "constants.so", source, &["-shared", "-fPIC"]);
    let library = File::open(library).unwrap();
    let read = |name: &str| read_constant(&library, name.as_bytes()).unwrap();
    assert_eq!(read("version"), Some(0x0102_0304));
    assert_eq!(read("fixed"), Some(7));
    for name in ["wide", "other", "own", "of_thread", "use", "none", "sion"] {
        assert_eq!(read(name), None, "{name}");
    }
}

/// For each prefix of a library, and for each byte changed, the parser terminates, with a result or without.
#[test]
fn broken_files_are_read_to_their_end() {
    let directory = tempfile::tempdir().unwrap();
    let source = [LIBRARY, "unsigned constant = 1;"].concat();
    let library = compile(directory.path(), "libwhere.so", &source, &["-shared", "-fPIC"]);
    let whole = std::fs::read(library).unwrap();
    assert!(TlsSymbol::read(&&whole[..], NAME).unwrap().is_some());
    for end in (0..whole.len()).step_by(97) {
        let _ = TlsSymbol::read(&&whole[..end], NAME).unwrap();
        let _ = read_constant(&&whole[..end], b"constant").unwrap();
    }
    let headers = (0..1024).chain(whole.len() - 2048..whole.len());
    for at in headers.step_by(3) {
        for byte in [0, 0x7f, 0xff] {
            let mut broken = whole.clone();
            broken[at] = byte;
            let _ = TlsSymbol::read(&&broken[..], NAME).unwrap();
            let _ = read_constant(&&broken[..], b"constant").unwrap();
        }
    }
}
