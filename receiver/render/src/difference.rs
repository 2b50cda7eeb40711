//! The difference between two recordings, for a terminal.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;

use crate::escape::escaped_or_empty;
use crate::functions::{FunctionOrder, functions};
use crate::names::DisplayNames;
use crate::profile::Profile;
use crate::significance::chance;
use crate::summary::group_thousands;
use crate::table::{TableOptions, pad};

/// What the values of both recordings are divided by before they are compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DifferenceBasis {
    /// All of a recording's samples: its CPU time.
    Total,
    /// The duration of each recording.
    Duration,
    /// So many requests, or other units of work, before and after.
    Requests([u64; 2]),
}

/// Why two recordings can't be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DifferenceError {
    /// One of them does not say how long it took.
    #[error("one of the profiles does not say how long it took")]
    NoDuration,
    /// Their values have different units.
    #[error("the profiles are of different types: {0} and {1}")]
    DifferentTypes(&'static str, &'static str),
}

/// The probability of one or more changes that are none, over all functions.
const SIGNIFICANCE: f64 = 0.05;
const BINARY_ROWS: usize = 6;
const BINARY_COLUMNS: usize = 18;
/// `" 12.34%   12.34%   +12.34~   +12.34~  "`.
const NUMBERS_COLUMNS: usize = 40;

/// What was counted in a function or a binary, before and after.
#[derive(Clone, Copy, Default, Debug)]
struct ChangedCounts {
    own: [u64; 2],
    total: [u64; 2],
}

/// How both recordings are compared.
struct Comparison {
    /// What values are divided by.
    divisors: [f64; 2],
    /// Of a value, what is displayed: percent, or milliseconds.
    scale: f64,
    unit: &'static str,
    /// The value of one sample; `None` if it is not known which values are of one sample.
    sample_value: Option<u64>,
    /// How many functions are compared.
    tests: usize,
}

impl Comparison {
    fn new(profiles: [&Profile; 2], basis: DifferenceBasis) -> Result<Self, DifferenceError> {
        let [_, after] = profiles;
        let measure = &after.measure;
        let period_ns = measure.period_ns;
        let units = profiles.map(unit_of);
        // Shares can be compared with those of counts, such as folded stacks, which don't say what they count.
        let are_shares = basis == DifferenceBasis::Total && units.contains(&COUNTS);
        if units[0] != units[1] && !are_shares {
            return Err(DifferenceError::DifferentTypes(units[0], units[1]));
        }
        // Samples at different rates stand for different times.
        let value_ns =
            profiles.map(
                |profile| if profile.measure.period_ns > 0 { profile.measure.period_ns as f64 } else { 1.0 },
            );
        let ms = if period_ns > 0 { 1e-6 } else { 1.0 };
        let (divisors, scale, unit) = match basis {
            DifferenceBasis::Total => (profiles.map(|profile| profile.total_count() as f64), 100.0, "%"),
            DifferenceBasis::Duration => {
                let seconds = profiles.map(|profile| profile.duration.as_secs_f64());
                if seconds.iter().any(|seconds| *seconds <= 0.0) {
                    return Err(DifferenceError::NoDuration);
                }
                let [before, after] = [seconds[0] / value_ns[0], seconds[1] / value_ns[1]];
                ([before, after], ms, if period_ns > 0 { "ms/s" } else { "/s" })
            }
            DifferenceBasis::Requests(requests) => {
                let [before, after] = [requests[0] as f64 / value_ns[0], requests[1] as f64 / value_ns[1]];
                ([before, after], ms, if period_ns > 0 { "ms" } else { "" })
            }
        };
        let sample_value = match &measure.period {
            _ if measure.is_duration() => None,
            Some(period) if measure.rate_hz == 0 => Some(period.amount.max(1)),
            _ => Some(1),
        };
        Ok(Self { divisors, scale, unit, sample_value, tests: 1 })
    }

    fn values(&self, counts: [u64; 2]) -> [f64; 2] {
        let value =
            |count: u64, divisor: f64| if divisor > 0.0 { count as f64 * self.scale / divisor } else { 0.0 };
        [value(counts[0], self.divisors[0]), value(counts[1], self.divisors[1])]
    }

    fn change(&self, counts: [u64; 2]) -> f64 {
        let [before, after] = self.values(counts);
        after - before
    }

    /// Whether chance explains that these counts differ.
    fn is_noise(&self, counts: [u64; 2]) -> bool {
        let Some(value) = self.sample_value else { return false };
        chance(counts.map(|count| count / value), self.divisors) * self.tests as f64 > SIGNIFICANCE
    }
}

/// The unit of profiles that have none.
const COUNTS: &str = "counts";

fn unit_of(profile: &Profile) -> &'static str {
    match (profile.measure.is_duration(), profile.measure.period_ns > 0) {
        (true, _) => "times",
        (false, true) => "samples of CPU time",
        (false, false) => COUNTS,
    }
}

/// What changed: a line on each recording; then the functions whose self value changed the most, or their total where
/// [the options](TableOptions::order) or the samples ask for it, those first of which chance does not explain it; then the same by
/// binary.
///
/// # Errors
///
/// [`DifferenceError`].
pub fn difference(
    before: &Profile,
    after: &Profile,
    names: &DisplayNames,
    basis: DifferenceBasis,
    options: TableOptions,
) -> Result<String, DifferenceError> {
    let profiles = [before, after];
    let mut comparison = Comparison::new(profiles, basis)?;
    let mut by_function = HashMap::<(String, String), ChangedCounts>::new();
    let mut by_binary = HashMap::<String, ChangedCounts>::new();
    for (part, profile) in profiles.into_iter().enumerate() {
        for row in functions(profile) {
            let (name, binary) =
                (names.shown(&row.name).into_owned(), escaped_or_empty(row.binary).into_owned());
            for counts in
                [by_binary.entry(binary.clone()).or_default(), by_function.entry((name, binary)).or_default()]
            {
                if let (Some(own), Some(total)) = (counts.own.get_mut(part), counts.total.get_mut(part)) {
                    *own = own.saturating_add(row.self_count);
                    *total = total.saturating_add(row.total_count);
                }
            }
        }
    }
    comparison.tests = by_function.len().max(1);
    let mut out = String::new();
    for (label, profile) in ["before", "after"].into_iter().zip(profiles) {
        let _ = writeln!(out, "{label:>8}: {}", recording_line(profile, basis, label == "before"));
    }
    out.push('\n');
    let order = options.order.unwrap_or(FunctionOrder::of(&after.measure));
    let functions = sorted(by_function, &comparison, order);
    let name_columns = options.columns.max(60).saturating_sub(NUMBERS_COLUMNS + BINARY_COLUMNS + 2).max(12);
    let unit = comparison.unit;
    let _ = writeln!(
        out,
        "{:>8}  {:>8}  {:>8}   {:>8}   {}  BINARY",
        "BEFORE",
        "AFTER",
        "SELF",
        "TOTAL",
        pad(&format!("FUNCTION, in {}", if unit.is_empty() { "counts" } else { unit }), name_columns)
    );
    for ((name, binary), counts) in functions.iter().take(options.rows) {
        let [old, new] = comparison.values(counts.own);
        let [own, total] = [counts.own, counts.total].map(|counts| change_text(&comparison, counts, options));
        let (name, binary) = (pad(name, name_columns), pad(binary, BINARY_COLUMNS));
        let _ =
            writeln!(out, "{}  {}  {own}  {total}  {name}  {}", number(old), number(new), binary.trim_end());
    }
    if functions.is_empty() {
        out.push_str("no function differs\n");
    }
    let by_binary = by_binary.into_iter().map(|(name, counts)| ((name, String::new()), counts));
    let binaries = sorted(by_binary, &comparison, FunctionOrder::SelfCount);
    let _ = writeln!(out, "\n{:>8}  {:>8}  {:>8}   BINARY", "BEFORE", "AFTER", "SELF");
    for ((binary, _), counts) in binaries.iter().take(BINARY_ROWS) {
        let [old, new] = comparison.values(counts.own);
        let binary = if binary.is_empty() { "no binary" } else { binary };
        let change = change_text(&comparison, counts.own, options);
        let _ = writeln!(out, "{}  {}  {change}  {binary}", number(old), number(new));
    }
    out.push_str(&noise_note(&functions, &comparison));
    Ok(out)
}

/// Changes that chance does not explain first, then by the size of the self or the total change, whatever the direction. What does
/// not change is left out.
fn sorted(
    of: impl IntoIterator<Item = ((String, String), ChangedCounts)>,
    comparison: &Comparison,
    order: FunctionOrder,
) -> Vec<((String, String), ChangedCounts)> {
    let size = |counts| (comparison.change(counts).abs() * 1000.0).round() as u64;
    let mut rows: Vec<_> = of
        .into_iter()
        .map(|(name, counts)| {
            let is_noise = comparison.is_noise(counts.own) && comparison.is_noise(counts.total);
            let [own, total] = [counts.own, counts.total].map(|counts| Reverse(size(counts)));
            let (first, second) = if order == FunctionOrder::SelfCount { (own, total) } else { (total, own) };
            ((is_noise, first, second, name), counts)
        })
        .filter(|((_, first, second, _), _)| first.0.max(second.0) >= 5)
        .collect();
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    rows.into_iter().map(|((.., name), counts)| (name, counts)).collect()
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
            total as f64 * measure.period_ns as f64 / 1e9
        ),
    };
    if seconds > 0.0 {
        let _ = write!(line, " in {seconds:.1} s");
    }
    if let DifferenceBasis::Requests([before, after]) = basis {
        let _ = write!(line, ", {} requests", group_thousands(if is_before { before } else { after }));
    }
    line
}

fn number(value: f64) -> String {
    format!("{value:>8.2}")
}

/// A change with its sign, and `~` if it is noise.
fn change_text(comparison: &Comparison, counts: [u64; 2], options: TableOptions) -> String {
    let change = comparison.change(counts);
    let is_noise = comparison.is_noise(counts);
    let text = format!("{change:>+8.2}{}", if is_noise && change.abs() >= 0.005 { "~" } else { " " });
    let colour = match change {
        _ if !options.is_coloured || change.abs() < 0.005 => return text,
        _ if is_noise => "2",
        change if change > 0.0 => "38;2;240;142;60",
        _ => "38;2;98;168;229",
    };
    format!("\u{1b}[{colour}m{text}\u{1b}[0m")
}

/// What `~` means, by the greatest change that is noise.
fn noise_note(functions: &[((String, String), ChangedCounts)], comparison: &Comparison) -> String {
    let Some(value) = comparison.sample_value else {
        return String::from(
            "\nNo change is tested for chance: the values are times, and not numbers of samples.\n",
        );
    };
    let is_noise = |counts: &ChangedCounts| {
        comparison.change(counts.own).abs() >= 0.005 && comparison.is_noise(counts.own)
    };
    let Some((_, counts)) = functions.iter().find(|(_, counts)| is_noise(counts)) else {
        return String::new();
    };
    let [old, new] = counts.own.map(|count| group_thousands(count / value));
    format!(
        "\n~ noise: {old} against {new} samples differ by no more than chance explains (binomial test, {}% over {} functions).\n",
        SIGNIFICANCE * 100.0,
        group_thousands(comparison.tests as u64),
    )
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::Kind;

    use super::*;
    use crate::profile::tests::sample;
    use crate::sample_type::SampleType;

    const OPTIONS: TableOptions = TableOptions { rows: 20, order: None, columns: 76, is_coloured: false };

    /// `sample()` with a thousand times as many events, and those of `main` itself in `vfs_write` instead.
    fn changed() -> [Profile; 2] {
        let [mut before, mut after] = [sample(), sample()];
        after.samples[4].count += after.samples[0].count;
        after.samples.remove(0);
        for profile in [&mut before, &mut after] {
            profile.samples.iter_mut().for_each(|sample| sample.count *= 1000);
        }
        [before, after]
    }

    fn shown([before, after]: [&Profile; 2], basis: DifferenceBasis) -> String {
        difference(before, after, &DisplayNames::default(), basis, OPTIONS).unwrap()
    }

    #[test]
    fn the_greatest_change_comes_first_whatever_its_direction() {
        let [before, after] = changed();
        assert_eq!(
            shown([&before, &after], DifferenceBasis::Total),
            concat!(
                "  before: 14,000 samples, 140.00 s of CPU time in 5.0 s\n",
                "   after: 14,000 samples, 140.00 s of CPU time in 5.0 s\n",
                "\n",
                "  BEFORE     AFTER      SELF      TOTAL   FUNCTION, in %    BINARY\n",
                "   28.57     50.00    +21.43     +21.43   vfs_write         [kernel]\n",
                "   21.43      0.00    -21.43      +0.00   main              app\n",
                "    0.00      0.00     +0.00     +21.43   write_it          app\n",
                "\n",
                "  BEFORE     AFTER      SELF   BINARY\n",
                "   28.57     50.00    +21.43   [kernel]\n",
                "   71.43     50.00    -21.43   app\n",
            )
        );
    }

    #[test]
    fn what_chance_explains_is_called_noise_and_comes_last() {
        let [mut before, mut after] = changed();
        before.samples[4].count = 39;
        after.samples[3].count = 46;
        let text = shown([&before, &after], DifferenceBasis::Total);
        let line = |name: &str| text.lines().position(|line| line.contains(name)).unwrap();
        assert!(
            text.contains("~ noise: 39 against 46 samples differ by no more than chance explains"),
            "{text}"
        );
        assert!(line(" main ") < line("vfs_write"), "{text}");
        assert!(text.lines().nth(line("vfs_write")).unwrap().contains('~'), "{text}");
    }

    #[test]
    fn values_are_of_a_second_or_of_a_request_if_requested() {
        let [before, mut after] = changed();
        // Twice as long, at half the rate: the same CPU time in twice the time.
        after.duration *= 2;
        after.measure.period_ns *= 2;
        after.samples.iter_mut().for_each(|sample| sample.count /= 2);
        let row = |basis| {
            shown([&before, &after], basis).lines().find(|line| line.contains(" work ")).map(str::to_owned)
        };
        // 7,000 samples of 10 ms in 5 s are 14 s a second.
        assert_eq!(
            row(DifferenceBasis::Duration).unwrap().split_whitespace().collect::<Vec<_>>()[..3],
            ["14000.00", "7000.00", "-7000.00"]
        );
        let requests = row(DifferenceBasis::Requests([1000, 2000])).unwrap();
        assert_eq!(requests.split_whitespace().collect::<Vec<_>>()[..3], ["70.00", "35.00", "-35.00"]);
        assert_eq!(row(DifferenceBasis::Total), None, "its share is the same");
        after.duration = std::time::Duration::ZERO;
        let failed =
            difference(&before, &after, &DisplayNames::default(), DifferenceBasis::Duration, OPTIONS);
        assert_eq!(failed, Err(DifferenceError::NoDuration));
    }

    #[test]
    fn changes_are_ordered_by_the_total_where_that_is_asked_for_or_samples_are_waits() {
        let [mut before, mut after] = changed();
        // The function that calls all others.
        let first = |before: &Profile, after: &Profile, order| {
            let options = TableOptions { order, ..OPTIONS };
            let names = DisplayNames::default();
            let text = difference(before, after, &names, DifferenceBasis::Requests([2, 1]), options).unwrap();
            let row = text.lines().skip_while(|line| !line.contains("FUNCTION")).nth(1).unwrap().to_owned();
            row.split_whitespace().nth(4).unwrap().to_owned()
        };
        assert_eq!(first(&before, &after, None), "vfs_write");
        assert_eq!(first(&before, &after, Some(FunctionOrder::TotalCount)), "main");
        for profile in [&mut before, &mut after] {
            profile.measure = SampleType::from_kind(Kind::OffCpu);
        }
        assert_eq!(first(&before, &after, None), "main");
        assert_eq!(first(&before, &after, Some(FunctionOrder::SelfCount)), "vfs_write");
    }

    #[test]
    fn times_are_not_tested_for_chance() {
        let [mut before, mut after] = changed();
        for profile in [&mut before, &mut after] {
            profile.measure = SampleType::from_kind(Kind::OffCpu);
        }
        let text = shown([&before, &after], DifferenceBasis::Total);
        assert!(text.contains("No change is tested for chance") && !text.contains('~'), "{text}");
        let failed =
            difference(&before, &sample(), &DisplayNames::default(), DifferenceBasis::Total, OPTIONS);
        assert_eq!(failed, Err(DifferenceError::DifferentTypes("times", "samples of CPU time")));
    }
}
