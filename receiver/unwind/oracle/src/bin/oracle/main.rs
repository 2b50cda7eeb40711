//! Compares the rows of every ELF file of the machine with gimli's and with its machine code, and measures the tables.
//!
//! `make oracle`, or with directories or files of your own choice:
//! `cargo run --release -p sidewinder-unwind-oracle --features machine -- /usr/lib`
#![forbid(unsafe_code)]

mod examine;
mod files;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};

use self::examine::Examined;
use self::files::ElfFile;
use self::report::OracleReport;

fn main() -> ExitCode {
    let mut chosen: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if chosen.is_empty() {
        chosen.push(PathBuf::from("/"));
    }
    let files = files::find_elf_files(&chosen);
    if files.is_empty() {
        eprintln!("no ELF file below {chosen:?}: name files or directories that have some");
        return ExitCode::FAILURE;
    }
    let progress = ProgressBar::new(files.iter().map(|file| file.bytes).sum()).with_style(
        ProgressStyle::with_template("{bar:40} {percent:>3}% {eta:>4} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut report = OracleReport::default();
    examine_all(&files, |file, examined| {
        progress.set_message(file.path.to_string_lossy().into_owned());
        progress.inc(file.bytes);
        report.add(file.path.clone(), examined);
    });
    progress.finish_and_clear();
    report.print();
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Examines files on all CPUs, and passes each result to `sink` as it arrives.
fn examine_all(files: &[ElfFile], mut sink: impl FnMut(&ElfFile, Examined)) {
    let next = AtomicUsize::new(0);
    let (found, examined) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (found, next) = (found.clone(), &next);
            scope.spawn(move || {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if found.send((file, examine::file(&file.path))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(found);
        examined.iter().for_each(|(file, examined)| sink(file, examined));
    });
}
