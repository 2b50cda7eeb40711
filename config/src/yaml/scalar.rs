//! Parses scalars without quotes: YAML 1.2's core schema, and binary numbers.
//!
//! Source: YAML 1.2.2, section 10.3.2, "Tag Resolution".

use saphyr_parser::Tag;

use super::tag::check_tag;
use crate::tree::ConfigValue;

/// The value of a scalar: text if it is quoted or tagged as text, otherwise by its notation.
///
/// # Errors
/// An unsupported tag, or one that does not match; a number that no key could have. The scalar itself may be a password, and
/// is not part of the error.
pub(super) fn value(text: &str, is_plain: bool, tag: Option<&Tag>) -> Result<ConfigValue, String> {
    check_tag(tag)?;
    let unfit = |what| format!("a value is tagged as {what} and is none");
    let number = || integer(text).map(|integer| integer.map(ConfigValue::Integer));
    match tag.map(|tag| tag.suffix.as_str()) {
        None if is_plain => plain(text),
        Some("null") => null(text).ok_or_else(|| unfit("null")),
        Some("bool") => boolean(text).ok_or_else(|| unfit("a boolean")),
        Some("int") => number().unwrap_or_else(|| Err(unfit("an integer"))),
        Some("float") => float(text).ok_or_else(|| unfit("a number")),
        _ => Ok(ConfigValue::Text(text.to_owned())),
    }
}

fn plain(text: &str) -> Result<ConfigValue, String> {
    if text.is_empty() {
        return Ok(ConfigValue::Null);
    }
    if let Some(value) = null(text).or_else(|| boolean(text)) {
        return Ok(value);
    }
    if has_leading_zero(text) {
        return Ok(ConfigValue::Text(text.to_owned()));
    }
    match integer(text) {
        Some(integer) => integer.map(ConfigValue::Integer),
        None => Ok(float(text).unwrap_or_else(|| ConfigValue::Text(text.to_owned()))),
    }
}

fn null(text: &str) -> Option<ConfigValue> {
    ["null", "Null", "NULL", "~"].contains(&text).then_some(ConfigValue::Null)
}

fn boolean(text: &str) -> Option<ConfigValue> {
    match text {
        "true" | "True" | "TRUE" => Some(ConfigValue::Bool(true)),
        "false" | "False" | "FALSE" => Some(ConfigValue::Bool(false)),
        _ => None,
    }
}

/// Digits that are text: `007`, as in telephone numbers.
fn has_leading_zero(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// `None` if the text is not an integer, or one of more than 128 bits.
fn integer(text: &str) -> Option<Result<i128, String>> {
    if has_leading_zero(text) {
        return None;
    }
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let in_base = |prefix, base| unsigned.strip_prefix(prefix).map(|digits| (base, digits));
    let (base, digits) =
        in_base("0x", 16).or_else(|| in_base("0o", 8)).or_else(|| in_base("0b", 2)).unwrap_or((10, unsigned));
    // The standard library would accept a second sign.
    if digits.starts_with('+') {
        return None;
    }
    let magnitude = u128::from_str_radix(digits, base).ok()?;
    if is_negative {
        return 0_i128.checked_sub_unsigned(magnitude).map(Ok);
    }
    Some(i128::try_from(magnitude).map_err(|_| "a number is too large".to_owned()))
}

fn float(text: &str) -> Option<ConfigValue> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if unsigned.len() < text.len() && unsigned.starts_with(['+', '-']) {
        return None;
    }
    let value = match (unsigned, text) {
        (".inf" | ".Inf" | ".INF", _) => f64::INFINITY,
        (_, "-.inf" | "-.Inf" | "-.INF") => f64::NEG_INFINITY,
        (_, ".nan" | ".NaN" | ".NAN") => f64::NAN,
        // The standard library accepts words that YAML does not: infinity, nan.
        _ => unsigned.parse().ok().filter(|value: &f64| value.is_finite())?,
    };
    Some(ConfigValue::Float(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `serde_yaml`, the previous parser of configurations, is the reference.
    fn known(text: &str) -> Option<ConfigValue> {
        use serde_yaml::Value as Known;
        Some(match serde_yaml::from_str(text).ok()? {
            Known::Null => ConfigValue::Null,
            Known::Bool(value) => ConfigValue::Bool(value),
            Known::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), ..) => ConfigValue::Integer(value.into()),
                (_, Some(value), _) => ConfigValue::Integer(value.into()),
                (.., value) => ConfigValue::Float(value?),
            },
            Known::String(text) => ConfigValue::Text(text),
            _ => return None,
        })
    }

    #[test]
    fn a_scalar_is_what_other_readers_of_yaml_take_it_for() {
        let words = [
            "",
            "~",
            "null",
            "Null",
            "NULL",
            "nul",
            "true",
            "True",
            "TRUE",
            "tRue",
            "yes",
            "no",
            "on",
            "off",
            "false",
            "0",
            "-0",
            "+0",
            "00",
            "007",
            "-007",
            "+1",
            "-1",
            "--1",
            "+-1",
            "-+1",
            "++1",
            "1_000",
            "0x1f",
            "0X1f",
            "-0x1f",
            "+0x1f",
            "0x",
            "0x+1",
            "0x-1",
            "0o17",
            "-0o17",
            "0o8",
            "0b101",
            "-0b101",
            "0b2",
            "1.5",
            "-1.5",
            "+1.5",
            ".5",
            "5.",
            "1e3",
            "1E3",
            "1e-3",
            "-1e3",
            "1e400",
            "+.5",
            ".inf",
            "-.inf",
            "+.inf",
            ".Inf",
            ".INF",
            "inf",
            "-inf",
            "nan",
            "infinity",
            "1h",
            "5s",
            "1.2.3",
            "x",
            "18446744073709551615",
            "-9223372036854775808",
            "12e",
            "e5",
            ".",
            "-",
            "+",
            "999999999999999999999999999999999999999999999999",
        ];
        for word in words {
            // After a key, where a single dash is not a list.
            let Some(expected) = known(&format!("[{word}]")).or_else(|| known(word)) else { continue };
            assert_eq!(value(word, true, None).unwrap(), expected, "{word:?}");
        }
        assert!(matches!(value(".nan", true, None), Ok(ConfigValue::Float(value)) if value.is_nan()));
    }

    #[test]
    fn a_number_of_more_than_a_key_could_hold_is_refused_without_being_shown() {
        let error = value(&u128::MAX.to_string(), true, None).unwrap_err();
        assert_eq!(error, "a number is too large");
    }
}
