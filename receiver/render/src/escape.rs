//! Escapes names to harmless text.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes every character that has an effect instead of a glyph, in the form `\u{1b}`: control characters, line separators,
/// and those that change the direction of text or join it invisibly. An empty name becomes `[unnamed]`.
#[must_use]
pub fn escaped(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed("[unnamed]");
    }
    if !name.chars().any(needs_escape) {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len() + 8);
    for character in name.chars() {
        if needs_escape(character) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// As [`escaped`], but an empty name stays empty.
pub(crate) fn escaped_or_empty(name: &str) -> Cow<'_, str> {
    if name.is_empty() { Cow::Borrowed("") } else { escaped(name) }
}

/// An ID in its usual notation.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn needs_escape(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_acts_is_written_out_and_what_shows_stays() {
        assert_eq!(escaped("std::vector<int>::push_back"), "std::vector<int>::push_back");
        assert_eq!(escaped("\u{1b}[31mred\n"), "\\u{1b}[31mred\\u{a}");
        assert_eq!(escaped("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(escaped("größe"), "größe");
        assert_eq!(escaped(""), "[unnamed]");
    }

    proptest! {
        #[test]
        fn no_control_character_survives(name: String) {
            prop_assert!(!escaped(&name).chars().any(char::is_control));
        }
    }
}
