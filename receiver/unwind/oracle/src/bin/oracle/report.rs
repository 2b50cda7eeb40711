//! The report on the whole machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use object::Architecture;
use sidewinder_unwind_oracle::contradiction::Explanation;
use sidewinder_unwind_oracle::{Comparison, Difference, stripped};

use crate::examine::{Examined, FileFindings, TableSize};

/// The largest share of addresses that may differ from gimli's rows, for all listed reasons together.
const MAX_DIFFERENT_SHARE: f64 = 0.0001;

/// The largest size of tables relative to their text: for all together, and for each with at least
/// [`MEASURED_TEXT_BYTES`] of text.
const MAX_SHARE_OF_ALL_TEXT: f64 = 0.09;
const MAX_SHARE_OF_TEXT: f64 = 0.12;
/// The same of each file of arm64, where saving a register moves no frame.
const MAX_SHARE_OF_ARM64_TEXT: f64 = 0.06;
const MEASURED_TEXT_BYTES: u64 = 100_000;

/// The largest share of wrong rows in code that is analyzed without its unwind information, in percent.
const MAX_WRONG_PERCENT: f64 = 0.1;

/// The most lines of a list in the report.
const MAX_LISTED: usize = 25;

/// Files in a report, each with the number that it is listed by.
type Listed<N> = Vec<(N, PathBuf)>;

/// The findings in all files together, and the files with the most.
#[derive(Default)]
pub(crate) struct OracleReport {
    files: u64,
    /// The number of files without a table, by reason.
    without_table: BTreeMap<String, u64>,

    rows: Comparison,
    with_difference: BTreeMap<Difference, Listed<u64>>,
    unexplained: Vec<(PathBuf, Vec<String>)>,
    malformed: Listed<u64>,

    rows_judged: u64,
    rows_wrong: u64,
    functions_unresolved: u64,
    with_wrong_rows: Listed<u64>,
    explained: BTreeMap<Explanation, u64>,
    unexplained_contradictions: Vec<(PathBuf, Vec<String>)>,

    blind: stripped::BlindComparison,
    misunderstood: Listed<f64>,
    misunderstood_examples: Vec<(PathBuf, Vec<String>)>,

    size: TableSize,
    measured: u64,
    large: Vec<(TableSize, PathBuf)>,
    building: Duration,
}

impl OracleReport {
    pub(crate) fn add(&mut self, path: PathBuf, examined: Examined) {
        match examined {
            Ok(findings) => self.add_findings(&path, *findings),
            Err(why) => *self.without_table.entry(why).or_default() += 1,
        }
    }

    fn add_findings(&mut self, path: &Path, findings: FileFindings) {
        self.files += 1;
        self.building += findings.building;
        self.add_rows(path, findings.rows);
        if findings.malformed > 0 {
            self.malformed.push((findings.malformed, path.to_owned()));
        }
        let contradictions = findings.contradictions;
        self.rows_judged += contradictions.rows;
        self.rows_wrong += contradictions.rows_wrong;
        self.functions_unresolved += contradictions.functions_unresolved;
        for (why, count) in contradictions.explained {
            *self.explained.entry(why).or_default() += count;
        }
        if contradictions.rows_wrong > 0 {
            self.with_wrong_rows.push((contradictions.rows_wrong, path.to_owned()));
        }
        if !contradictions.unexplained.is_empty() {
            self.unexplained_contradictions.push((path.to_owned(), contradictions.unexplained));
        }
        if let Some(blind) = findings.blind {
            if blind.wrong_percent() > MAX_WRONG_PERCENT {
                self.misunderstood.push((blind.wrong_percent(), path.to_owned()));
                let examples = blind.examples.iter().map(ToString::to_string).collect();
                self.misunderstood_examples.push((path.to_owned(), examples));
            }
            self.blind.add(&blind);
        }
        self.size.add(&findings.size);
        if findings.size.text_bytes >= MEASURED_TEXT_BYTES {
            self.measured += 1;
            let limit = match findings.architecture {
                Architecture::Aarch64 => MAX_SHARE_OF_ARM64_TEXT,
                _ => MAX_SHARE_OF_TEXT,
            };
            if findings.size.share() > limit {
                self.large.push((findings.size, path.to_owned()));
            }
        }
    }

    fn add_rows(&mut self, path: &Path, rows: Comparison) {
        let total = &mut self.rows;
        total.boundaries += rows.boundaries;
        total.compared += rows.compared;
        total.unexplained += rows.unexplained;
        total.without_frame_pointer += rows.without_frame_pointer;
        total.without_dwarf += rows.without_dwarf;
        for (why, addresses) in &rows.differences {
            *total.differences.entry(*why).or_default() += addresses;
            self.with_difference.entry(*why).or_default().push((*addresses, path.to_owned()));
        }
        if rows.unexplained > 0 {
            self.unexplained.push((path.to_owned(), rows.examples));
        }
    }

    /// The number of addresses that differ for listed reasons.
    fn different(&self) -> u64 {
        self.rows.differences.values().sum()
    }

    /// Whether there were no unexplained findings, and every limit was kept.
    pub(crate) fn is_clean(&self) -> bool {
        self.rows.unexplained == 0
            && self.different() as f64 <= MAX_DIFFERENT_SHARE * self.rows.compared as f64
            && self.unexplained_contradictions.is_empty()
            && self.blind.wrong_percent() <= MAX_WRONG_PERCENT
            && self.size.share() <= MAX_SHARE_OF_ALL_TEXT
            && self.large.is_empty()
    }

    pub(crate) fn print(&self) {
        println!("{} files with a table.", self.files);
        for (why, files) in &self.without_table {
            println!("{files} files without: {why}.");
        }
        self.print_rows();
        self.print_contradictions();
        self.print_blind();
        self.print_sizes();
        println!(
            "\nBuilding took {:.1} s: {:.1} million rows a second.",
            self.building.as_secs_f64(),
            self.size.rows as f64 / 1e6 / self.building.as_secs_f64().max(1e-9)
        );
    }

    fn print_rows(&self) {
        let total = &self.rows;
        println!(
            "\nCompared with gimli: {} addresses at and next to {} boundaries.",
            total.compared, total.boundaries
        );
        if total.without_frame_pointer > 0 {
            println!(
                "  at {} of them, in Go functions, without the frame pointer, for which DWARF has no rule there",
                total.without_frame_pointer
            );
        }
        if total.without_dwarf > 0 {
            println!("  not compared: {} addresses without DWARF", total.without_dwarf);
        }
        let percent = |part: u64| 100.0 * part as f64 / total.compared.max(1) as f64;
        for (why, addresses) in &total.differences {
            println!("  {addresses:>8} differ ({:.5}%): {why}", percent(*addresses));
            if let Some(files) = self.with_difference.get(why) {
                print_most(files, 3, |addresses| format!("{addresses:>17}"));
            }
        }
        let different = self.different();
        println!(
            "  {different:>8} differ for listed reasons ({:.5}%, limit {}%)",
            percent(different),
            MAX_DIFFERENT_SHARE * 100.0
        );
        println!("  {:>8} differ for no listed reason", total.unexplained);
        print_examples(&self.unexplained);
        println!("{} files with malformed functions.", self.malformed.len());
        print_most(&self.malformed, MAX_LISTED, |functions| format!("{functions:>12}"));
    }

    fn print_contradictions(&self) {
        println!(
            "\nCompared with machine code: {} of {} rows are wrong, in {} files; {} functions abandoned.",
            self.rows_wrong,
            self.rows_judged,
            self.with_wrong_rows.len(),
            self.functions_unresolved
        );
        for (why, ranges) in &self.explained {
            println!("  {ranges:>8} ranges: {why}");
        }
        print_most(&self.with_wrong_rows, MAX_LISTED, |rows| format!("{rows:>12}"));
        println!(
            "  {} files with contradictions for no listed reason",
            self.unexplained_contradictions.len()
        );
        print_examples(&self.unexplained_contradictions);
    }

    fn print_blind(&self) {
        println!("\nWithout rows, symbols and Go's tables: {}.", self.blind);
        println!("  {} files in which over {MAX_WRONG_PERCENT}% is wrong", self.misunderstood.len());
        print_most(&self.misunderstood, MAX_LISTED, |percent| format!("{percent:>11.3}%"));
        print_examples(&self.misunderstood_examples);
    }

    fn print_sizes(&self) {
        let [rows, rules, index] = self.size.parts();
        println!(
            "\nPacked tables: {} bytes, {:.2}% of {} bytes of text ({rows:.2} rows, {rules:.2} rules, {index:.2} index; limit {}%); {:.2} bytes a row.",
            self.size.table_bytes,
            100.0 * self.size.share(),
            self.size.text_bytes,
            MAX_SHARE_OF_ALL_TEXT * 100.0,
            self.size.table_bytes as f64 / self.size.rows.max(1) as f64
        );
        println!(
            "  {} of {} files with {MEASURED_TEXT_BYTES} bytes of text and more take over {}% of it, of arm64 over {}%",
            self.large.len(),
            self.measured,
            MAX_SHARE_OF_TEXT * 100.0,
            MAX_SHARE_OF_ARM64_TEXT * 100.0
        );
        let mut large: Vec<_> = self.large.iter().collect();
        large.sort_by(|(a, _), (b, _)| b.share().total_cmp(&a.share()));
        for (size, path) in large.into_iter().take(MAX_LISTED) {
            let [rows, rules, index] = size.parts();
            println!(
                "    {:>5.1}% of {:>10} bytes ({rows:.1} rows, {rules:.1} rules, {index:.1} index)  {}",
                size.share() * 100.0,
                size.text_bytes,
                path.to_string_lossy()
            );
        }
    }
}

/// The files with the largest numbers.
fn print_most<N: PartialOrd>(files: &Listed<N>, most: usize, number: impl Fn(&N) -> String) {
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by(|(a, _), (b, _)| b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal));
    for (count, path) in files.into_iter().take(most) {
        println!("{} {}", number(count), path.to_string_lossy());
    }
}

fn print_examples(files: &[(PathBuf, Vec<String>)]) {
    for (path, examples) in files.iter().take(MAX_LISTED) {
        println!("{}:", path.to_string_lossy());
        examples.iter().take(5).for_each(|example| println!("    {example}"));
    }
}
