//! Text that came from outside this program: paths, names of processes and functions, configuration keys, arguments, messages of
//! servers.
//!
//! Whoever chose it may have put escape sequences, line breaks or invisible characters into it, to move the cursor, forge a line of
//! output or hide a part of it. [`ExternalText`] can only be displayed with these written out, so whatever holds one can be
//! printed. All output for people goes through it or [`escaped`].
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

/// Text from outside. Displaying it writes out every character that has an effect instead of a glyph, in the form `\u{1b}`, and
/// bytes that are not UTF-8, in the form `\xff`. Displaying its own output again changes nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExternalText<'a>(Cow<'a, [u8]>);

impl<'a> ExternalText<'a> {
    /// Of a string, a path or an argument.
    #[must_use]
    pub fn new(text: &'a (impl AsRef<OsStr> + ?Sized)) -> Self {
        Self::from_bytes(text.as_ref().as_bytes())
    }

    /// Of bytes, usually UTF-8.
    #[must_use]
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(Cow::Borrowed(bytes))
    }

    /// The same text without its borrow.
    #[must_use]
    pub fn into_owned(self) -> ExternalText<'static> {
        ExternalText(Cow::Owned(self.0.into_owned()))
    }

    /// The text as it came, for formats that escape it in a way of their own, such as JSON. Bytes that are not UTF-8 become
    /// U+FFFD.
    #[must_use]
    pub fn to_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Whether there is no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text as it is displayed.
    fn displayed(&self) -> Cow<'_, str> {
        if let Ok(text) = std::str::from_utf8(&self.0) {
            return escaped(text);
        }
        let mut out = String::with_capacity(self.0.len() + 8);
        for chunk in self.0.utf8_chunks() {
            out.push_str(&escaped(chunk.valid()));
            for byte in chunk.invalid() {
                // Writing to a string does not fail.
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
        Cow::Owned(out)
    }
}

impl fmt::Display for ExternalText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.displayed())
    }
}

impl fmt::Debug for ExternalText<'_> {
    /// As it is displayed, in quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.displayed().replace('"', "\\\""))
    }
}

impl<'a> From<&'a str> for ExternalText<'a> {
    fn from(text: &'a str) -> Self {
        Self::new(text)
    }
}

impl From<String> for ExternalText<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }
}

/// Text from outside as [`ExternalText`] displays it.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(has_effect) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if has_effect(character) {
            // Writing to a string does not fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// Text in which line breaks separate lines, and everything else is [`escaped`].
#[must_use]
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|character| character != '\n' && has_effect(character)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(escaped).collect::<Vec<_>>().join("\n"))
}

/// A JSON document that says the same without characters that have an effect: JSON itself lets DEL, the control characters above
/// it and the invisible ones through.
#[must_use]
pub fn escaped_json(document: &str) -> Cow<'_, str> {
    // Outside of strings, line breaks are the only ones that a document may have.
    let is_written_out = |character| character != '\n' && has_effect(character);
    if !document.contains(is_written_out) {
        return Cow::Borrowed(document);
    }
    let mut out = String::with_capacity(document.len() + 8);
    for character in document.chars() {
        if is_written_out(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// Whether a character has an effect instead of a glyph: control characters, line separators, and those that change the direction
/// of text or join it invisibly.
#[must_use]
pub fn has_effect(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_with_an_effect_are_written_out_and_others_stay() {
        for (text, shown) in [
            ("std::vector<int>::push_back", "std::vector<int>::push_back"),
            ("\u{1b}[31mred\n", "\\u{1b}[31mred\\u{a}"),
            ("a\u{202e}b\u{9b}", "a\\u{202e}b\\u{9b}"),
            ("größe", "größe"),
            ("", ""),
        ] {
            assert_eq!(escaped(text), shown);
            assert_eq!(ExternalText::from(text).to_string(), shown);
        }
        assert_eq!(ExternalText::from_bytes(b"/tmp/\xff\x1b").to_string(), "/tmp/\\xff\\u{1b}");
        assert_eq!(ExternalText::new(Path::new("/a\nb")).to_string(), "/a\\u{a}b");
        assert_eq!(escaped_lines("one\u{1b}\ntwo"), "one\\u{1b}\ntwo");
    }

    #[test]
    fn it_is_padded_as_other_text_and_quoted_for_debugging() {
        let text = ExternalText::from("a\t");
        assert_eq!(format!("{text:<8}|"), "a\\u{9}  |");
        assert_eq!(format!("{:?}", ExternalText::from("a\"\n")), "\"a\\\"\\u{a}\"");
    }

    #[test]
    fn a_document_keeps_its_meaning() {
        let document = "{\n  \"a\u{9b}\u{e0001}\": \"\\u001b\"\n}";
        assert_eq!(escaped_json(document), "{\n  \"a\\u009b\\udb40\\udc01\": \"\\u001b\"\n}");
        assert_eq!(escaped_json("[\"\u{e4}\"]"), "[\"\u{e4}\"]");
    }

    proptest! {
        #[test]
        fn nothing_with_an_effect_is_displayed(text: Vec<u8>) {
            let shown = ExternalText::from_bytes(&text).to_string();
            prop_assert!(!shown.contains(has_effect));
            prop_assert_eq!(ExternalText::new(&shown).to_string(), shown);
        }

        #[test]
        fn only_line_breaks_are_left_of_lines_and_documents(text: String) {
            let has_other_effect = |character| character != '\n' && has_effect(character);
            prop_assert!(!escaped_lines(&text).contains(has_other_effect));
            prop_assert!(!escaped_json(&text).contains(has_other_effect));
        }
    }
}
