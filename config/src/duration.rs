//! Durations in Go's notation: `1m30s`, `1.5h`, `-300ms`.

use std::time::Duration;

/// Units, longest first, and their nanoseconds.
const UNITS_NS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

/// The longest duration that Go can represent.
const MAX_NS: u64 = i64::MAX as u64;

/// Parses the format of Go's `time.ParseDuration`, except negative durations, which no key accepts.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total_ns = 0_u64;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_where(after, |c| c.is_ascii_digit() || c == '.');
        let (_, unit_ns) = UNITS_NS.into_iter().find(|(name, _)| *name == unit)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let part_ns = whole.checked_mul(unit_ns)?.checked_add(fraction_ns(fraction, unit_ns)?)?;
        total_ns = total_ns.checked_add(part_ns).filter(|total| *total <= MAX_NS)?;
        rest = after;
    }
    Some(Duration::from_nanos(total_ns))
}

/// The digits after a decimal point, in nanoseconds; fractions of a nanosecond are truncated.
fn fraction_ns(digits: &str, unit_ns: u64) -> Option<u64> {
    // From the fourteenth digit on, digits of an hour are less than a nanosecond.
    const DIGITS: usize = 18;
    if digits.contains('.') {
        return None;
    }
    let digits = digits.get(..DIGITS).unwrap_or(digits);
    if digits.is_empty() {
        return Some(0);
    }
    let scale = 10_u128.pow(u32::try_from(digits.len()).ok()?);
    u64::try_from(digits.parse::<u128>().ok()? * u128::from(unit_ns) / scale).ok()
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Formats a duration as Go's `Duration.String` does: `1m30s`, `1.5s`, `200ms`.
#[must_use]
pub fn format(duration: Duration) -> String {
    let total_ns = duration.as_nanos();
    let decimal = |value_ns: u128, unit_ns: u128, unit: &str| {
        let digits = unit_ns.ilog10() as usize;
        let (whole, fraction) = (value_ns / unit_ns, format!("{:0digits$}", value_ns % unit_ns));
        match fraction.trim_end_matches('0') {
            "" => format!("{whole}{unit}"),
            fraction => format!("{whole}.{fraction}{unit}"),
        }
    };
    match total_ns {
        0 => "0s".to_owned(),
        1..1_000 => format!("{total_ns}ns"),
        1_000..1_000_000 => decimal(total_ns, 1_000, "µs"),
        1_000_000..1_000_000_000 => decimal(total_ns, 1_000_000, "ms"),
        _ => {
            let (hours, minutes) = (duration.as_secs() / 3_600, duration.as_secs() / 60 % 60);
            let seconds = decimal(total_ns % 60_000_000_000, 1_000_000_000, "s");
            match (hours, minutes) {
                (0, 0) => seconds,
                (0, _) => format!("{minutes}m{seconds}"),
                _ => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_go_reads_is_read() {
        for (text, nanos) in [
            ("0", 0),
            ("+5s", 5_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("0.1m", 6_000_000_000),
            ("0.3333333333333333333h", 1_200_000_000_000 - 1),
            ("1h15m30.918273645s", 4_530_918_273_645),
            ("10us", 10_000),
            ("10µs", 10_000),
            ("1ns", 1),
        ] {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in [
            "",
            "+",
            "5",
            "s",
            ".s",
            "-5s",
            "1.2.3s",
            "5 s",
            "1d",
            "9999999999h",
            "99999999999999999999s",
            "1s5",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for text in [
            "0s",
            "1ns",
            "1.5µs",
            "200ms",
            "5s",
            "1.5s",
            "1m0s",
            "1m30s",
            "5m0s",
            "1h0m0s",
            "100h0m0.000000001s",
        ] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }

    proptest! {
        #[test]
        fn writing_and_reading_give_the_same_duration(nanos in 0..=MAX_NS) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Some(duration));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            prop_assert!(parse(&text).is_none_or(|duration| duration.as_nanos() <= MAX_NS.into()));
        }
    }
}
