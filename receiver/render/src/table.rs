//! The busiest functions, for a terminal.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::escape::escaped;
use crate::functions::{FunctionOrder, FunctionTotals, functions};
use crate::names::DisplayNames;
use crate::palette::function_colour;
use crate::profile::{Profile, ProfileSample, ThreadIndex};
use crate::summary::percent;

/// Layout options of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableOptions {
    /// The most functions that are shown.
    pub rows: usize,
    /// What comes first; `None`: [what suits the samples](FunctionOrder::of).
    pub order: Option<FunctionOrder>,
    /// Columns of the terminal; names are shortened to fit. At least 40 are used.
    pub columns: usize,
    /// Whether names are coloured by category, by escape sequences with 24-bit colours.
    pub is_coloured: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { rows: DEFAULT_ROWS, order: None, columns: 100, is_coloured: false }
    }
}

/// The most functions of a table by default.
pub const DEFAULT_ROWS: usize = 20;
/// `" 12.34%  12.34%  "`.
const NUMBERS_COLUMNS: usize = 18;
const BINARY_COLUMNS_LIMIT: usize = 24;
/// The most threads that have separate tables.
const THREADS_SHOWN: usize = 20;

/// The functions with the most events, one per line: the share in which each was the leaf, the share in which it was on the stack,
/// its name, its binary.
#[must_use]
pub fn table(profile: &Profile, names: &DisplayNames, options: TableOptions) -> String {
    let mut functions = functions(profile);
    if options.order.unwrap_or(FunctionOrder::of(&profile.measure)) == FunctionOrder::TotalCount {
        functions.sort_by_key(|row| Reverse((row.total_count, row.self_count)));
    }
    let shown = functions.get(..options.rows).unwrap_or(&functions);
    let total = profile.total_count();
    let binary_columns =
        shown.iter().map(|row| escaped(row.binary).width()).max().unwrap_or(0).clamp(6, BINARY_COLUMNS_LIMIT);
    let shown_names: Vec<_> = shown.iter().map(|row| names.shown(&row.name)).collect();
    let longest = shown_names.iter().map(|name| name.width()).max().unwrap_or(0);
    let name_columns = longest.clamp("FUNCTION".len(), name_columns(options, binary_columns));

    let mut out = format!("{:>7}  {:>7}  {}  BINARY\n", "SELF", "TOTAL", pad("FUNCTION", name_columns));
    for (row, name) in shown.iter().zip(shown_names) {
        let own = percent(row.self_count, total);
        let whole = percent(row.total_count, total);
        let name = colour_name(pad(&name, name_columns), row, options.is_coloured);
        let binary = if row.binary.is_empty() { Cow::Borrowed("") } else { escaped(row.binary) };
        // Writing to a string cannot fail.
        let _ =
            writeln!(out, "{own:>6.2}%  {whole:>6.2}%  {name}  {}", truncate_middle(&binary, binary_columns));
    }
    let hidden = functions.len() - shown.len();
    if hidden > 0 {
        let rest = functions.iter().skip(shown.len()).map(|row| row.self_count).sum();
        let _ = writeln!(out, "{:>6.2}%           in the other {hidden}", percent(rest, total));
    }
    out
}

/// The [table] of each thread, those with the most events first, and what the rest has.
#[must_use]
pub fn thread_tables(profile: &Profile, names: &DisplayNames, options: TableOptions) -> String {
    let mut by_thread = BTreeMap::<ThreadIndex, Vec<ProfileSample>>::new();
    for sample in &profile.samples {
        by_thread.entry(sample.thread).or_default().push(*sample);
    }
    let count = |samples: &[ProfileSample]| samples.iter().map(|sample| sample.count).sum::<u64>();
    let total = profile.total_count();
    let mut threads: Vec<_> = by_thread.into_iter().collect();
    threads.sort_by_key(|(thread, samples)| (Reverse(count(samples)), *thread));
    let hidden = threads.split_off(threads.len().min(THREADS_SHOWN));
    let mut out = String::new();
    let mut of_thread = profile.clone();
    for (thread, samples) in threads {
        let share = percent(count(&samples), total);
        let name = profile.threads.get(thread.0 as usize).map_or_else(String::new, |thread| {
            format!("{} (TID {}) of {} (PID {})", thread.name, thread.tid, thread.process, thread.pid)
        });
        let _ = writeln!(out, "{share:.2}%  {}", escaped(&name));
        of_thread.samples = samples;
        out.push_str(&table(&of_thread, names, options));
        out.push('\n');
    }
    if !hidden.is_empty() {
        let rest = hidden.iter().map(|(_, samples)| count(samples)).sum();
        let _ = writeln!(out, "{:.2}%  in the other {} threads", percent(rest, total), hidden.len());
    }
    out
}

/// The columns for names: those that numbers and the last column leave.
pub(crate) fn name_columns(options: TableOptions, last_columns: usize) -> usize {
    options.columns.max(40).saturating_sub(NUMBERS_COLUMNS + last_columns + 2).max(12)
}

fn colour_name(name: String, row: &FunctionTotals<'_>, is_coloured: bool) -> String {
    if !is_coloured {
        return name;
    }
    let [r, g, b] = function_colour(row.kind, &row.name);
    format!("\u{1b}[38;2;{r};{g};{b}m{name}\u{1b}[0m")
}

/// A name without control characters in at most so many columns of a terminal: a longer one is cut in its middle.
#[must_use]
pub fn fitted(name: &str, columns: usize) -> String {
    if name.is_empty() { String::new() } else { truncate_middle(&escaped(name), columns.max(1)).into_owned() }
}

/// Shortens text to a number of columns, with a mark in the middle: names differ at both ends.
fn truncate_middle(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return Cow::Borrowed(text);
    }
    let tail_columns = (columns - 1) / 3;
    let head = take_columns(text.chars(), columns - 1 - tail_columns);
    let tail: String = take_columns(text.chars().rev(), tail_columns).chars().rev().collect();
    Cow::Owned(format!("{head}…{tail}"))
}

fn take_columns(characters: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    characters
        .take_while(|character| {
            used += character.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

pub(crate) fn pad(text: &str, columns: usize) -> String {
    let text = truncate_middle(text, columns);
    let missing = columns.saturating_sub(text.width());
    format!("{text}{:missing$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{one_stack, sample};
    use proptest::prelude::*;
    use sidewinder_kind::Kind;
    use sidewinder_profile::SampleType;

    #[test]
    fn each_thread_has_a_table_of_its_own_events() {
        let mut profile = one_stack(&["work", "main"]);
        let mut second = profile.threads[0].clone();
        (second.name, second.tid) = ("second".into(), 9);
        profile.threads.push(second);
        let other = ProfileSample { thread: ThreadIndex(1), count: 3, ..profile.samples[0] };
        profile.samples.push(other);
        let tables = thread_tables(&profile, &DisplayNames::default(), TableOptions::default());
        let lines: Vec<_> = tables.lines().collect();
        assert!(lines[0].starts_with("75.00%  second (TID 9)"), "{tables}");
        assert!(lines[2].starts_with("100.00%  100.00%  work"), "{tables}");
        assert!(lines.iter().any(|line| line.starts_with("25.00%")), "{tables}");
    }

    fn full_table(profile: &Profile, options: TableOptions) -> String {
        table(profile, &DisplayNames::default(), options)
    }

    #[test]
    fn functions_are_ordered_by_what_they_did_themselves() {
        let table = full_table(&sample(), TableOptions { rows: 3, columns: 60, ..TableOptions::default() });
        assert_eq!(
            table,
            "   SELF    TOTAL  FUNCTION   BINARY\n \
             50.00%   50.00%  work       app\n \
             28.57%   28.57%  vfs_write  [kernel]\n \
             21.43%  100.00%  main       app\n  \
             0.00%           in the other 1\n"
        );
    }

    #[test]
    fn functions_are_ordered_by_what_they_caused_where_that_is_asked_for_or_samples_are_waits() {
        let first = |profile: &Profile, order| {
            let table = full_table(profile, TableOptions { order, ..TableOptions::default() });
            table.lines().nth(1).and_then(|row| row.split_whitespace().nth(2)).unwrap_or_default().to_owned()
        };
        let waits = Profile { measure: SampleType::from_kind(Kind::OffCpu), ..sample() };
        assert_eq!(first(&sample(), None), "work");
        assert_eq!(first(&sample(), Some(FunctionOrder::TotalCount)), "main");
        assert_eq!(first(&waits, None), "main");
        assert_eq!(first(&waits, Some(FunctionOrder::SelfCount)), "work");
    }

    #[test]
    fn a_long_name_keeps_both_of_its_ends() {
        let name = format!("begin{}end", "x".repeat(8_000));
        let table = full_table(&one_stack(&[&name]), TableOptions::default());
        let row = table.lines().nth(1).unwrap();
        assert!(row.contains("begin") && row.contains("…") && row.contains("end  app"), "{row}");
    }

    #[test]
    fn colour_appears_only_where_asked_for() {
        assert!(!full_table(&sample(), TableOptions::default()).contains('\u{1b}'));
        let coloured = full_table(&sample(), TableOptions { is_coloured: true, ..TableOptions::default() });
        assert_eq!(coloured.matches("\u{1b}[38;2;").count(), coloured.matches("\u{1b}[0m").count());
    }

    proptest! {
        #[test]
        fn any_name_stays_in_its_line_and_within_the_columns(name: String, columns in 0_usize..200) {
            let table = full_table(&one_stack(&[&name]), TableOptions { rows: 5, columns, ..TableOptions::default() });
            prop_assert_eq!(table.lines().count(), 2);
            prop_assert!(table.lines().all(|line| line.width() <= columns.max(44)), "{table}");
            prop_assert!(!table.chars().any(|character| character.is_control() && character != '\n'));
        }
    }
}
