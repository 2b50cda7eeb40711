//! The outcomes of the interrupts, printed at the end of a recording.

use std::fmt::Write;
use std::time::Duration;

use crate::escape::escaped;
use crate::guessed_callers::{GuessedCallers, guessed_callers};
use crate::profile::{OutcomeCount, Profile, Severity};
use sidewinder_profile::SampleType;

/// What a summary says of a recording besides its profile.
#[derive(Clone, Copy, Debug)]
pub struct RecordingSummary<'a> {
    /// What was measured.
    pub measure: &'a SampleType,
    /// The sum of all samples, in the unit of the measure.
    pub total: u64,
    /// How long the recording took.
    pub duration: Duration,
    /// How its interrupts ended.
    pub outcomes: &'a [OutcomeCount],
}

/// A line on the recording, then one for each outcome that occurred: its count, its share of the interrupts, and what it
/// means unless it is complete. Complete ones come first, then others by severity and count. The last lines are the binaries
/// in which callers were guessed.
#[must_use]
pub fn summary(profile: &Profile) -> String {
    let recording = RecordingSummary {
        measure: &profile.measure,
        total: profile.total_count(),
        duration: profile.duration,
        outcomes: &profile.outcomes,
    };
    recording.to_text() + &guesses(profile)
}

impl RecordingSummary<'_> {
    /// The same without a profile, and without its guesses.
    #[must_use]
    pub fn to_text(self) -> String {
        let mut outcomes: Vec<_> = self.outcomes.iter().filter(|outcome| outcome.count > 0).collect();
        outcomes.sort_by_key(|outcome| (outcome.severity, std::cmp::Reverse(outcome.count)));
        let interrupts = outcomes.iter().fold(0_u64, |sum, outcome| sum.saturating_add(outcome.count));
        let mut out = self.headline(interrupts);
        let name_width =
            outcomes.iter().map(|outcome| escaped(&outcome.name).chars().count()).max().unwrap_or(0);
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
        out
    }

    fn headline(self, interrupts: u64) -> String {
        let Self { measure, total, .. } = self;
        let seconds = self.duration.as_secs_f64();
        let interrupts = group_thousands(interrupts);
        let name = sidewinder_kind::display_of(measure.name());
        if measure.is_duration() {
            let total_seconds = total as f64 / 1e9;
            return format!(
                "{total_seconds:.3} s of {name} time of all threads in {seconds:.1} s, {interrupts} interrupts\n"
            );
        }
        let total = group_thousands(total);
        match measure.rate_hz() {
            0 => {
                let of_unit =
                    measure.shown_unit().map_or_else(String::new, |unit| format!("{} of ", escaped(unit)));
                format!("{total} {of_unit}{name} in {seconds:.1} s, {interrupts} interrupts\n")
            }
            rate_hz => {
                format!("{total} samples in {seconds:.1} s at {rate_hz} Hz, {interrupts} interrupts\n")
            }
        }
    }
}

/// A line for each binary with guessed callers.
fn guesses(profile: &Profile) -> String {
    let line = |GuessedCallers { binary, callers, events }| {
        let code = if binary.is_empty() { "generated code".into() } else { escaped(binary) };
        // A sum of times over callers is no time.
        let guessed = match profile.measure.is_duration() {
            true => format!("{:.3} s with callers guessed", events as f64 / 1e9),
            false if callers == 1 => "1 caller guessed".to_owned(),
            false => format!("{} callers guessed", group_thousands(callers)),
        };
        format!("  {guessed} by frame pointers: {code} has no unwind data\n")
    };
    guessed_callers(profile).into_iter().map(line).collect()
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
        assert_eq!(last, Some("  4 callers guessed by frame pointers: /usr/bin/app has no unwind data"));
    }

    #[test]
    fn guesses_of_a_profile_of_time_are_a_time() {
        let wall = SampleType::from_kind(Kind::Wall { samples_per_second: 97 });
        let mut profile = Profile { measure: wall, ..guessed_sample() };
        profile.samples.iter_mut().for_each(|sample| sample.count = 500_000_000);
        let summary = summary(&profile);
        let last = summary.lines().last().unwrap_or_default();
        assert!(last.contains(" s with callers guessed by frame pointers: /usr/bin/app"), "{summary}");
        assert!(!summary.contains("000,000"), "{summary}");
    }

    #[test]
    fn a_recording_without_a_profile_has_the_same_lines() {
        let profile = sample();
        let recording = RecordingSummary {
            measure: &profile.measure,
            total: profile.total_count(),
            duration: profile.duration,
            outcomes: &profile.outcomes,
        };
        assert_eq!(recording.to_text(), summary(&profile));
    }

    #[test]
    fn thousands_are_parted() {
        let numbers = [0, 999, 1000, 1_234_567, u64::MAX].map(group_thousands);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567", "18,446,744,073,709,551,615"]);
    }
}
