//! Measures the cost of names: how many are found per second, and the memory that takes.
//!
//! `make bench`. Each line of output is measured in its own process, so that peak memory is per line.
#![expect(clippy::unwrap_used, reason = "a failure ends the benchmark")]

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use object::{Object, ObjectSection};
use sidewinder_address::Svma;
use sidewinder_symbolize::{BinaryId, Lookup, Symbolizer, SymbolizerOptions};

const BUDGET_BYTES: usize = 32 << 20;
/// The part of `memory_limit_mib: 48` that is available for names in files.
const SIDECAR_BYTES: usize = 9 << 19;
const ADDRESSES: u64 = 10_000;

const SOURCE: &str = "#include <map>\n#include <regex>\n#include <string>\n#include <vector>\n#include <algorithm>\n\
    int main(int count, char **texts) { std::map<std::string, int> seen; std::regex word(\"[a-z]+\");\n\
    for (int i = 0; i < count; i++) if (std::regex_match(texts[i], word)) seen[texts[i]]++;\n\
    std::vector<int> all; for (auto &pair : seen) all.push_back(pair.second);\n\
    std::sort(all.begin(), all.end()); return all.empty() ? 0 : all[0]; }\n";

fn main() {
    if cfg!(debug_assertions) {
        eprintln!("built with checks: use `cargo bench --profile release`");
        std::process::exit(2);
    }
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--measure") {
        let budget_bytes = arguments[at + 3].parse().unwrap();
        return measure(Path::new(&arguments[at + 1]), &arguments[at + 2], budget_bytes);
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let within = |budget_bytes: usize, path: &Path, wanted: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--measure").arg(path).arg(wanted).arg(budget_bytes.to_string());
        assert!(command.status().unwrap().success());
    };
    let again = |path: &Path, wanted: &str| within(BUDGET_BYTES, path, wanted);
    let Some(program) = program else { return };
    again(&program, "names");
    again(&program, "lines");
    let large = enlarged(folder.path(), &program, 300 << 20);
    again(&large, "lines");
    again(&with_symbols(folder.path(), 2_000_000), "names");
    if let Some(debug) = debug_file_of_libc() {
        again(&debug, "lines");
        within(SIDECAR_BYTES, &debug, "lines");
    }
    for library in ["/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", "/usr/lib/llvm-14/lib/libLLVM-14.so"] {
        if Path::new(library).exists() {
            return again(Path::new(library), "lines");
        }
    }
}

/// Names addresses all over a file's code, and prints the time and memory used.
fn measure(path: &Path, wanted: &str, budget_bytes: usize) {
    let code = code_of(path);
    // The peak so far is that of finding the code.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before_kib = status_kib("VmRSS");
    let wants_lines = wanted == "lines";
    let mut symbolizer = Symbolizer::new(SymbolizerOptions {
        budget_bytes,
        lines: wants_lines,
        inlines: wants_lines,
        has_no_time_limit: true,
    });
    let step = ((code.1 - code.0) / ADDRESSES).max(1);
    let mut lines = 0;
    let mut named = |svma: u64| match symbolizer.name(BinaryId(1), || File::open(path), Svma(svma)) {
        Lookup::Named(frames) => {
            lines += u64::from(frames[0].line > 0);
            true
        }
        Lookup::Unnamed { .. } => false,
    };
    let began = Instant::now();
    named(code.0);
    let first = began.elapsed();
    let began = Instant::now();
    let found = (0..ADDRESSES).filter(|index| named(code.0 + index * step)).count();
    let cold = began.elapsed();
    let began = Instant::now();
    let again = (0..ADDRESSES).filter(|index| named(code.0 + index * step)).count();
    let warm = began.elapsed();
    assert_eq!(again, found);
    // The first address was looked up once more; all of them were looked up twice.
    let lines = lines / 2;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let per_second = |took: std::time::Duration| ADDRESSES as f64 / took.as_secs_f64();
    println!(
        "{:<28} {:>6} MiB {wanted}: first {:>7.1} ms, {:>9.0} names/s, again {:>10.0}, {found} of {ADDRESSES} named, \
         {lines} with lines, peak RSS {:.1} MiB over {:.1}, {:.1} MiB held, {} symbols cut",
        name.get(..28).unwrap_or(&name),
        fs::metadata(path).unwrap().len() >> 20,
        first.as_secs_f64() * 1e3,
        per_second(cold),
        per_second(warm),
        (status_kib("VmHWM") - before_kib) as f64 / 1024.0,
        before_kib as f64 / 1024.0,
        symbolizer.held_bytes() as f64 / f64::from(1 << 20),
        symbolizer.stats().symbols_left_out,
    );
}

/// Debian's debug file of the C library, which is compressed.
fn debug_file_of_libc() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps
        .lines()
        .find_map(|line| line.split_ascii_whitespace().nth(5).filter(|path| path.contains("/libc.so")))?;
    let bytes = fs::read(libc).unwrap();
    let id = object::File::parse(&*bytes).unwrap().build_id().unwrap()?.to_owned();
    let path =
        PathBuf::from(format!("/usr/lib/debug/.build-id/{:02x}/{}.debug", id[0], hex::encode(&id[1..])));
    path.exists().then_some(path)
}

/// Start and end of `.text`, read without reading the file as a whole.
fn code_of(path: &Path) -> (u64, u64) {
    let cache = object::ReadCache::new(File::open(path).unwrap());
    let file = object::File::parse(&cache).unwrap();
    // A debug file has the section without its bytes.
    let text = file.section_by_name(".text");
    text.map(|text| (text.address(), text.address() + text.size())).unwrap()
}

fn status_kib(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn compiled(folder: &Path) -> Option<PathBuf> {
    fs::write(folder.join("p.cpp"), SOURCE).unwrap();
    let done = Command::new("c++").args(["-g", "-O2", "-o", "program", "p.cpp"]).current_dir(folder).status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: c++ does not compile here");
        return None;
    }
    Some(folder.join("program"))
}

/// The program with its units repeated, so that the debug information is of this size.
fn enlarged(folder: &Path, program: &Path, bytes: usize) -> PathBuf {
    let content = fs::read(program).unwrap();
    let file = object::File::parse(&*content).unwrap();
    let units = file.section_by_name(".debug_info").unwrap().uncompressed_data().unwrap();
    let mut out = BufWriter::new(File::create(folder.join("units")).unwrap());
    (0..bytes / units.len()).for_each(|_| out.write_all(&units).unwrap());
    out.into_inner().unwrap();
    let large = folder.join("program-300M");
    let mut command = Command::new("objcopy");
    command.args(["--update-section", ".debug_info=units", "program"]).arg(&large).current_dir(folder);
    assert!(command.status().unwrap().success());
    large
}

/// A program with this many functions.
fn with_symbols(folder: &Path, count: usize) -> PathBuf {
    let mut source = BufWriter::new(File::create(folder.join("many.s")).unwrap());
    writeln!(source, ".text").unwrap();
    for number in 0..count {
        writeln!(source, ".globl f{number}\n.type f{number},@function\nf{number}: ret\n.size f{number},1")
            .unwrap();
    }
    source.into_inner().unwrap();
    let done = Command::new("cc")
        .args(["-shared", "-nostdlib", "-o", "many.so", "many.s"])
        .current_dir(folder)
        .status();
    assert!(done.is_ok_and(|status| status.success()));
    folder.join("many.so")
}
