//! The outcomes of the interrupts, printed at the end of a recording.

use std::fmt::Write;

use crate::escape::escaped;
use crate::guessed_callers::{GuessedCallers, guessed_callers};
use crate::profile::{Profile, Severity};

/// A line on the recording, then one for each outcome that occurred: its count, its share of the interrupts, and what it
/// means unless it is complete. Complete ones come first, then others by severity and count. The last lines are the binaries
/// in which callers were guessed.
#[must_use]
pub fn summary(profile: &Profile) -> String {
    let mut outcomes: Vec<_> = profile.outcomes.iter().filter(|outcome| outcome.count > 0).collect();
    outcomes.sort_by_key(|outcome| (outcome.severity, std::cmp::Reverse(outcome.count)));
    let interrupts = outcomes.iter().fold(0_u64, |sum, outcome| sum.saturating_add(outcome.count));
    let (total, seconds) = (profile.total_count(), profile.duration.as_secs_f64());
    let interrupts_text = group_thousands(interrupts);
    let measure = sidewinder_kind::display_of(&profile.measure.name);
    let mut out = if profile.measure.is_duration() {
        let total_seconds = total as f64 / 1e9;
        format!(
            "{total_seconds:.3} s of {measure} time of all threads in {seconds:.1} s, {interrupts_text} interrupts\n"
        )
    } else if profile.measure.rate_hz == 0 {
        let of_unit =
            profile.measure.shown_unit().map_or_else(String::new, |unit| format!("{} of ", escaped(unit)));
        let total = group_thousands(total);
        format!("{total} {of_unit}{measure} in {seconds:.1} s, {interrupts_text} interrupts\n")
    } else {
        let (samples, rate_hz) = (group_thousands(total), profile.measure.rate_hz);
        format!("{samples} samples in {seconds:.1} s at {rate_hz} Hz, {interrupts_text} interrupts\n")
    };
    let name_width = outcomes.iter().map(|outcome| escaped(&outcome.name).chars().count()).max().unwrap_or(0);
    for outcome in outcomes {
        let note = match (outcome.severity, &*outcome.help) {
            (Severity::Complete, _) => String::new(),
            (Severity::Excluded, "") => String::from("  not profiled"),
            (Severity::Truncated, "") => String::from("  truncated stack"),
            (Severity::Lost, "") => String::from("  lost"),
            (Severity::Excluded, help) => format!("  {}", escaped(help)),
            (Severity::Truncated, help) => format!("  truncated stack: {}", escaped(help)),
            (Severity::Lost, help) => format!("  lost: {}", escaped(help)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "  {:name_width$}  {:>13}  {:>6.2}%{note}",
            escaped(&outcome.name),
            group_thousands(outcome.count),
            percent(outcome.count, interrupts),
        );
    }
    for GuessedCallers { binary, callers } in guessed_callers(profile) {
        let code = if binary.is_empty() { "code made at run time".into() } else { escaped(binary) };
        let callers = group_thousands(callers);
        let _ = writeln!(out, "  {callers} callers guessed by frame pointers: nothing describes {code}");
    }
    out
}

/// `part` of `whole` in percent; 0 if `whole` is 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// A number with thousands separators: `1,234,567`.
#[must_use]
pub fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.char_indices() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::{Counter, CounterRate, Kind, SampledCounter};

    use super::*;
    use crate::profile::tests::{guessed_sample, sample};
    use crate::sample_type::SampleType;

    #[test]
    fn outcomes_that_occurred_are_listed_with_their_meaning() {
        assert_eq!(
            summary(&sample()),
            "14 samples in 5.0 s at 100 Hz, 100 interrupts\n  \
             complete             10   10.00%\n  \
             idle                 86   86.00%  not profiled\n  \
             no table              4    4.00%  truncated stack: raise memory_limit_mib\n"
        );
    }

    #[test]
    fn counts_have_the_name_of_what_is_counted_and_no_rate() {
        let counter = SampledCounter { counter: Counter::PageFaults, rate: CounterRate::Frequency(97) };
        let profile = Profile { measure: SampleType::from_kind(Kind::Counter(counter)), ..sample() };
        let summary = summary(&profile);
        assert!(summary.starts_with("14 page faults in 5.0 s, 100 interrupts\n"), "{summary}");
    }

    #[test]
    fn guesses_are_listed_by_binary() {
        let summary = summary(&guessed_sample());
        let last = summary.lines().last();
        assert_eq!(last, Some("  4 callers guessed by frame pointers: nothing describes /usr/bin/app"));
    }

    #[test]
    fn thousands_are_parted() {
        let numbers = [0, 999, 1000, 1_234_567, u64::MAX].map(group_thousands);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567", "18,446,744,073,709,551,615"]);
    }
}
