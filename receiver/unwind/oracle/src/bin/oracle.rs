//! Compares the rows of every ELF file of the machine with gimli's, and measures the tables.
//!
//! `make oracle`, or with directories or files of your own choice:
//! `cargo run --release -p sidewinder-unwind-oracle --features machine -- /usr/lib`
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use sidewinder_bpf::{Packing, pack};
use sidewinder_unwind::{load_segments, unwind_table};
use sidewinder_unwind_oracle::{Comparison, Difference, Error, compare};

/// What isn't on a disk, or comes and goes.
const NOT_SEARCHED: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/tmp"];

/// Files over this size are left out: nobody executes so much, and they are read whole.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// The share of addresses that may differ, for all listed reasons together.
const MAX_DIFFERENT_SHARE: f64 = 0.0001;

/// What tables may take of their text: all together, and each with at least [`MEASURED_TEXT_BYTES`] of it.
const MAX_SHARE_OF_ALL_TEXT: f64 = 0.09;
const MAX_SHARE_OF_TEXT: f64 = 0.12;
const MEASURED_TEXT_BYTES: u64 = 100_000;

/// Lines of a list in the report.
const MAX_LISTED: usize = 25;

fn main() -> ExitCode {
    let mut chosen: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if chosen.is_empty() {
        chosen.push(PathBuf::from("/"));
    }
    let files = elf_files(&chosen);
    let progress = ProgressBar::new(files.iter().map(|file| file.bytes).sum()).with_style(
        ProgressStyle::with_template("{bar:40} {percent:>3}% {eta:>4} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut report = Report::default();
    for file in &files {
        progress.set_message(file.path.display().to_string());
        report.add(&file.path);
        progress.inc(file.bytes);
    }
    progress.finish_and_clear();
    report.print();
    if report.total.unexplained == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct ElfFile {
    path: PathBuf,
    bytes: u64,
}

/// The ELF files below some directories, each once, whatever its names.
fn elf_files(chosen: &[PathBuf]) -> Vec<ElfFile> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut open: Vec<PathBuf> = chosen.to_vec();
    while let Some(path) = open.pop() {
        let is_chosen = chosen.contains(&path);
        let status = if is_chosen { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let Ok(status) = status else { continue };
        if status.is_dir() && (is_chosen || !NOT_SEARCHED.iter().any(|not| path == Path::new(not))) {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if status.is_file()
            && status.len() <= MAX_FILE_BYTES
            && seen.insert((status.dev(), status.ino()))
            && is_elf(&path)
        {
            found.push(ElfFile { path, bytes: status.len() });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// The size of one file's table.
struct Size {
    path: PathBuf,
    text_bytes: u64,
    table_bytes: u64,
    rows: u64,
    rules: u64,
}

/// Bytes of a row and of a rule in a packed table.
const ROW_BYTES: u64 = 2;
const RULE_BYTES: u64 = 16;

impl Size {
    fn share(&self) -> f64 {
        self.table_bytes as f64 / self.text_bytes.max(1) as f64
    }

    /// What rows, rules and the index take, in percent of the text.
    fn parts(&self) -> [f64; 3] {
        let (rows, rules) = (self.rows * ROW_BYTES, self.rules * RULE_BYTES);
        let index = self.table_bytes.saturating_sub(rows + rules);
        [rows, rules, index].map(|part| 100.0 * part as f64 / self.text_bytes.max(1) as f64)
    }
}

#[derive(Default)]
struct Report {
    /// Files by why they have no table.
    without_table: BTreeMap<String, u64>,
    total: Comparison,
    with_difference: BTreeMap<Difference, Vec<(PathBuf, u64)>>,
    unexplained: Vec<(PathBuf, Comparison)>,
    malformed: Vec<(PathBuf, u64)>,
    sizes: Vec<Size>,
    rows: u64,
    building: Duration,
}

impl Report {
    fn add(&mut self, path: &Path) {
        let Ok(data) = fs::read(path) else {
            return *self.without_table.entry("not readable".to_owned()).or_default() += 1;
        };
        let (table, comparison) = match compare(&data) {
            Ok(compared) => compared,
            Err(error) => {
                let why = match error {
                    Error::Elf(_) => "no ELF file for a reader of the machine's own".to_owned(),
                    Error::Unwind(why) => why.to_string(),
                };
                return *self.without_table.entry(why).or_default() += 1;
            }
        };
        self.total.boundaries += comparison.boundaries;
        self.total.compared += comparison.compared;
        self.total.unexplained += comparison.unexplained;
        self.total.without_frame_pointer += comparison.without_frame_pointer;
        self.total.without_dwarf += comparison.without_dwarf;
        for (why, addresses) in &comparison.differences {
            *self.total.differences.entry(*why).or_default() += addresses;
            self.with_difference.entry(*why).or_default().push((path.to_owned(), *addresses));
        }
        let malformed = table.summary().malformed_total();
        if malformed > 0 {
            self.malformed.push((path.to_owned(), malformed));
        }
        if comparison.unexplained > 0 {
            self.unexplained.push((path.to_owned(), comparison));
        }
        if let Ok(file) = object::File::parse(&*data) {
            let began = Instant::now();
            self.rows += unwind_table(&file).map_or(0, |table| table.len() as u64);
            self.building += began.elapsed();
            let loads = load_segments(&file);
            let code = || loads.iter().filter(|load| load.executable);
            let segments: Vec<_> = code().flat_map(|load| pack(&table, load, Packing::Auto)).collect();
            self.sizes.push(Size {
                path: path.to_owned(),
                text_bytes: code().map(|load| load.size).sum(),
                table_bytes: segments.iter().map(|segment| segment.bytes.len() as u64).sum(),
                rows: segments.iter().map(|segment| segment.rows as u64).sum(),
                rules: segments.iter().map(|segment| segment.rules as u64).sum(),
            });
        }
    }

    fn print(&mut self) {
        self.print_comparison();
        self.print_sizes();
        println!(
            "\nBuilding took {:.1} s: {:.1} million rows a second.",
            self.building.as_secs_f64(),
            self.rows as f64 / 1e6 / self.building.as_secs_f64().max(1e-9)
        );
    }

    fn print_comparison(&self) {
        println!("{} files with a table.", self.sizes.len());
        for (why, files) in &self.without_table {
            println!("{files} files without: {why}.");
        }
        let total = &self.total;
        println!(
            "\nCompared with gimli: {} addresses at and beside {} boundaries.",
            total.compared, total.boundaries
        );
        if total.without_frame_pointer > 0 {
            println!(
                "  at {} of them, in Go functions, without the frame pointer, of which DWARF there says nothing",
                total.without_frame_pointer
            );
        }
        if total.without_dwarf > 0 {
            println!("  not compared: {} addresses of Go functions without DWARF", total.without_dwarf);
        }
        let percent = |part: u64| 100.0 * part as f64 / total.compared.max(1) as f64;
        for (why, addresses) in &total.differences {
            println!("  {addresses:>8} differ ({:.5}%): {why}", percent(*addresses));
            if let Some(files) = self.with_difference.get(why) {
                let mut files = files.clone();
                files.sort_by_key(|(_, addresses)| std::cmp::Reverse(*addresses));
                for (path, addresses) in files.iter().take(3) {
                    println!("           {addresses:>8} {}", path.display());
                }
            }
        }
        let different: u64 = total.differences.values().sum();
        println!(
            "  {different:>8} differ for listed reasons ({:.5}%, at most {}% wanted)",
            percent(different),
            MAX_DIFFERENT_SHARE * 100.0
        );
        println!("  {:>8} differ for none", total.unexplained);
        for (path, comparison) in self.unexplained.iter().take(MAX_LISTED) {
            println!("{}: {}", path.display(), comparison.unexplained);
            comparison.examples.iter().for_each(|example| println!("    {example}"));
        }
        println!("{} files with malformed functions.", self.malformed.len());
        for (path, functions) in self.malformed.iter().take(MAX_LISTED) {
            println!("    {functions:>8} {}", path.display());
        }
    }

    fn print_sizes(&mut self) {
        let total = |part: fn(&Size) -> u64| self.sizes.iter().map(part).sum::<u64>();
        let all = Size {
            path: PathBuf::new(),
            text_bytes: total(|size| size.text_bytes),
            table_bytes: total(|size| size.table_bytes),
            rows: total(|size| size.rows),
            rules: total(|size| size.rules),
        };
        let [rows, rules, index] = all.parts();
        println!(
            "\nPacked tables: {} bytes, {:.2}% of {} bytes of text ({rows:.2} rows, {rules:.2} rules, {index:.2} index; at most {}% wanted); {:.2} bytes a row.",
            all.table_bytes,
            100.0 * all.share(),
            all.text_bytes,
            MAX_SHARE_OF_ALL_TEXT * 100.0,
            all.table_bytes as f64 / all.rows.max(1) as f64
        );
        let measured: Vec<_> =
            self.sizes.iter().filter(|size| size.text_bytes >= MEASURED_TEXT_BYTES).collect();
        let mut over: Vec<_> = measured.iter().filter(|size| size.share() > MAX_SHARE_OF_TEXT).collect();
        over.sort_by(|a, b| b.share().total_cmp(&a.share()));
        println!(
            "  {} of {} files with {MEASURED_TEXT_BYTES} bytes of text and more take over {}% of it:",
            over.len(),
            measured.len(),
            MAX_SHARE_OF_TEXT * 100.0
        );
        for size in over.iter().take(MAX_LISTED) {
            let [rows, rules, index] = size.parts();
            println!(
                "    {:>5.1}% of {:>10} bytes ({rows:.1} rows, {rules:.1} rules, {index:.1} index)  {}",
                size.share() * 100.0,
                size.text_bytes,
                size.path.display()
            );
        }
    }
}
