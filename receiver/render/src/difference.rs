//! The difference between two recordings, for a terminal.

mod changes;
mod comparison;
#[cfg(test)]
mod error_rates;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use unicode_width::UnicodeWidthStr as _;

use self::changes::{Change, Changes, FALSE_DISCOVERY_RATE, TESTED_SHARE_MIN, Verdict};
use self::comparison::{COUNTS, Comparison, VISIBLE_MIN, unit_of};
pub use self::comparison::{DifferenceBasis, DifferenceError};
use crate::escape::{escaped, escaped_or_empty};
use crate::functions::FunctionOrder;
use crate::names::DisplayNames;
use crate::profile::Profile;
use crate::renames::RenamedBinary;
use crate::summary::group_thousands;
use crate::table::{TableOptions, pad};

const BINARY_ROWS: usize = 6;
const BINARY_COLUMNS_MAX: usize = 18;
/// `"    12.34     12.34    +12.34~    +12.34~  0.0123  "`.
const NUMBERS_COLUMNS: usize = 51;
/// The name of a function has this much of the terminal's width before its binary has any.
const NAME_COLUMNS_MIN: usize = 36;
/// Longer names are shortened even where there is room for them.
const NAME_COLUMNS_MAX: usize = 200;
/// The mark of a change that chance explains.
const NOISE: char = '~';
/// The mark of a change of too few samples.
const NOT_TESTED: char = '?';

/// What changed: a line on each recording; then the functions whose self value changed the most, or their total where
/// [the options](TableOptions::order) or the samples ask for it, those first of which chance does not explain it; then the same by
/// binary. `renamed` are the binaries of `before` that
/// [have another name](crate::match_renamed_binaries) there.
///
/// # Errors
///
/// [`DifferenceError`].
pub fn difference(
    before: &Profile,
    after: &Profile,
    renamed: &[RenamedBinary],
    names: &DisplayNames,
    basis: DifferenceBasis,
    options: TableOptions,
) -> Result<String, DifferenceError> {
    let profiles = [before, after];
    let comparison = Comparison::new(profiles, basis)?;
    let functions = Changes::of_functions(profiles, names, &comparison);
    let binaries = Changes::of_binaries(profiles, &comparison);
    let mut out = String::new();
    for (label, profile) in ["before", "after"].into_iter().zip(profiles) {
        let _ = writeln!(out, "{label:>8}: {}", recording_line(profile, basis, label == "before"));
    }
    for RenamedBinary { before, after, functions } in renamed {
        let [before, after] = [before, after].map(|name| escaped(name));
        let _ = writeln!(
            out,
            " renamed: {before} is compared with {after}: {} functions are in both",
            group_thousands(*functions as u64)
        );
    }
    let order = options.order.unwrap_or(FunctionOrder::of(&after.measure));
    let functions_shown = functions.visible(&comparison, order);
    let functions_shown = &functions_shown[..functions_shown.len().min(options.rows)];
    let layout = Layout::new(functions_shown, options);
    let unit = comparison.unit();
    let _ = writeln!(out, "\n{:>31} {:>11}", format!("SELF{unit}"), format!("TOTAL{unit}"));
    let heads = layout.names("FUNCTION", "BINARY");
    let _ =
        writeln!(out, "{:>9} {:>9} {:>9}  {:>9}  {:>7}  {heads}", "BEFORE", "AFTER", "CHANGE", "CHANGE", "P");
    for change in functions_shown {
        let _ = writeln!(out, "{}", layout.row(change, &comparison, options));
    }
    if functions_shown.is_empty() {
        let _ = writeln!(out, "no function differs by {VISIBLE_MIN}{}", comparison.unit_behind());
    }
    let binaries = binaries.visible(&comparison, FunctionOrder::SelfCount);
    if !binaries.is_empty() {
        let _ = writeln!(out, "\n{:>9} {:>9} {:>9}  {:>7}  BINARY", "BEFORE", "AFTER", "CHANGE", "P");
    }
    for binary in binaries.into_iter().take(BINARY_ROWS) {
        let name = if binary.name.is_empty() { "no binary" } else { &*binary.name };
        let own = own_numbers(binary, &comparison, options);
        let _ = writeln!(out, "{own} {}  {name}", chance_column(binary));
    }
    out.push_str(&notes(&functions, functions_shown, &comparison));
    Ok(out)
}

/// The widths of the table of functions.
struct Layout {
    name_columns: usize,
    /// 0 if there is no room for the names of binaries.
    binary_columns: usize,
}

impl Layout {
    fn new(shown: &[&Change], options: TableOptions) -> Self {
        let widest = |head: &str, texts: fn(&Change) -> &str| {
            shown.iter().map(|change| texts(change).width()).fold(head.len(), usize::max)
        };
        let longest = widest("FUNCTION", |change| &change.name);
        let binary_columns = match shown.iter().any(|change| !change.binary.is_empty()) {
            true => widest("BINARY", |change| &change.binary).min(BINARY_COLUMNS_MAX),
            false => 0,
        };
        let room = options.columns.saturating_sub(NUMBERS_COLUMNS);
        let beside_binaries = room.saturating_sub(binary_columns + 2);
        let has_binaries = beside_binaries >= longest.min(NAME_COLUMNS_MIN);
        let room = if has_binaries { beside_binaries } else { room };
        Self {
            name_columns: longest.min(room.clamp(12, NAME_COLUMNS_MAX)),
            binary_columns: if has_binaries { binary_columns } else { 0 },
        }
    }

    fn row(&self, change: &Change, comparison: &Comparison, options: TableOptions) -> String {
        let own = own_numbers(change, comparison, options);
        let total = change_text(comparison.change(change.total), change.total_verdict, options);
        let names = self.names(&change.name, &change.binary);
        format!("{own} {total} {}  {names}", chance_column(change))
    }

    fn names(&self, function: &str, binary: &str) -> String {
        let mut names = pad(function, self.name_columns);
        if self.binary_columns > 0 {
            let _ = write!(names, "  {}", pad(binary, self.binary_columns));
        }
        names.trim_end().to_owned()
    }
}

/// What was counted in a function or a binary itself, before and after, and how that changed.
fn own_numbers(change: &Change, comparison: &Comparison, options: TableOptions) -> String {
    let [old, new] = comparison.values(change.own);
    let own = change_text(comparison.change(change.own), change.own_verdict, options);
    format!("{old:>9.2} {new:>9.2} {own}")
}

/// How likely chance makes such a change, if that was tested.
fn chance_column(change: &Change) -> String {
    let text = match change.own_verdict.chance().or(change.total_verdict.chance()) {
        None => "-".to_owned(),
        Some(chance) if chance < 0.000_1 => "<0.0001".to_owned(),
        Some(chance) if chance < 0.1 => format!("{chance:.4}"),
        Some(chance) => format!("{chance:.2}"),
    };
    format!("{text:>7}")
}

/// A change with its sign, and `~` if chance explains it, or `?` if that is not tested.
fn change_text(change: f64, verdict: Verdict, options: TableOptions) -> String {
    let text = format!("{change:>+9.2}{}", mark(change, verdict).unwrap_or(' '));
    let colour = match change {
        _ if !options.is_coloured || change.abs() < VISIBLE_MIN => return text,
        _ if !verdict.is_certain() => "2",
        change if change > 0.0 => "38;2;240;142;60",
        _ => "38;2;98;168;229",
    };
    format!("\u{1b}[{colour}m{text}\u{1b}[0m")
}

/// The mark behind a change that is visible and may be none.
fn mark(change: f64, verdict: Verdict) -> Option<char> {
    match verdict {
        _ if change.abs() < VISIBLE_MIN => None,
        Verdict::Noise(_) => Some(NOISE),
        Verdict::TooFew => Some(NOT_TESTED),
        Verdict::Certain(_) | Verdict::NoSamples => None,
    }
}

fn recording_line(profile: &Profile, basis: DifferenceBasis, is_before: bool) -> String {
    let (total, measure) = (profile.total_count(), &profile.measure);
    let seconds = profile.duration.as_secs_f64();
    let mut line = match unit_of(profile) {
        "times" => format!("{:.3} s", total as f64 / 1e9),
        COUNTS => group_thousands(total),
        _ => format!(
            "{} samples, {:.2} s of CPU time",
            group_thousands(total),
            total as f64 * measure.period_ns() as f64 / 1e9
        ),
    };
    if seconds > 0.0 {
        let _ = write!(line, " in {seconds:.1} s");
    }
    if let DifferenceBasis::Requests([before, after]) = basis {
        let _ = write!(line, ", {} requests", group_thousands(if is_before { before } else { after }));
    }
    let title = escaped_or_empty(&profile.title);
    if title.is_empty() { line } else { format!("{title}: {line}") }
}

/// What the marks and P mean, as far as they are shown.
fn notes(functions: &Changes, shown: &[&Change], comparison: &Comparison) -> String {
    if !comparison.can_test() {
        return "\nNo change is tested for chance: the values are times, and not numbers of samples.\n"
            .to_owned();
    }
    let has_mark = |wanted: char| {
        shown.iter().any(|change| {
            mark(comparison.change(change.own), change.own_verdict) == Some(wanted)
                || mark(comparison.change(change.total), change.total_verdict) == Some(wanted)
        })
    };
    let share = TESTED_SHARE_MIN * 100.0;
    let mut out = String::new();
    if !shown.is_empty() {
        let _ = write!(
            out,
            "\nP: how likely chance makes such a change of SELF, or of TOTAL where SELF is below {share}% of all samples ({}).\n",
            comparison.test_name()
        );
    }
    if has_mark(NOISE) {
        let _ = writeln!(
            out,
            "{NOISE} noise: chance explains it. Of the changes without a mark, about {}% are chance (Benjamini-Hochberg, {} functions).",
            FALSE_DISCOVERY_RATE * 100.0,
            group_thousands(functions.tested as u64),
        );
    }
    if has_mark(NOT_TESTED) {
        let _ = writeln!(out, "{NOT_TESTED} not tested: below {share}% of all samples.");
    }
    out
}
