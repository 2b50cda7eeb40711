//! Names of frames as they are shown: marked where the profiler guessed, and escaped where they could be taken for its words.

use std::borrow::Cow;

use sidewinder_text::has_effect;

use crate::profile::ProfileFrame;

/// The prefix of the names of guessed frames.
pub(crate) const GUESSED: &str = "[guessed] ";
/// Before a name that begins as words of the profiler do.
const ESCAPE: char = '\\';

/// A name as it is shown, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ParsedLabel<'a> {
    /// The name of a function, or words of the profiler.
    pub(crate) name: &'a str,
    pub(crate) is_guessed: bool,
    pub(crate) is_marker: bool,
}

impl ProfileFrame {
    /// The name for display. Every format marks a guess, and escapes a name of the target that looks like words of the profiler:
    /// `\[guessed] main` is a function with the name `[guessed] main`.
    #[must_use]
    pub fn label(&self) -> Cow<'_, str> {
        self.mark_guess(if self.marker.is_some() {
            Cow::Borrowed(&self.name)
        } else {
            escape_name(&self.name)
        })
    }

    /// The same with words of the profiler instead of this frame's name.
    pub(crate) fn label_of<'a>(&self, marker: &'a str) -> Cow<'a, str> {
        self.mark_guess(Cow::Borrowed(marker))
    }

    fn mark_guess<'a>(&self, label: Cow<'a, str>) -> Cow<'a, str> {
        if self.is_guessed { Cow::Owned(format!("{GUESSED}{label}")) } else { label }
    }

    /// Parses a label.
    pub(crate) fn parse_label(label: &str) -> ParsedLabel<'_> {
        let (label, is_guessed) = label.strip_prefix(GUESSED).map_or((label, false), |rest| (rest, true));
        let name = unescape_name(label);
        ParsedLabel { name, is_guessed, is_marker: name.len() == label.len() && label.starts_with('[') }
    }
}

/// A name of the target, with a backslash before it if it could be taken for words of the profiler, or for an escaped name.
pub(crate) fn escape_name(name: &str) -> Cow<'_, str> {
    if looks_like_marker(name) { Cow::Owned(format!("{ESCAPE}{name}")) } else { Cow::Borrowed(name) }
}

/// The inverse of [`escape_name`]. Other names that begin with a backslash, as PHP's, stay as they are.
pub(crate) fn unescape_name(label: &str) -> &str {
    label.strip_prefix(ESCAPE).filter(|name| looks_like_marker(name)).unwrap_or(label)
}

/// Whether a name begins with a bracket or a backslash, or does so when it is written: some formats trim names, and characters
/// that act are written with a backslash.
pub(crate) fn looks_like_marker(name: &str) -> bool {
    let trimmed = name.trim_start_matches(|c: char| c.is_whitespace() && !has_effect(c));
    trimmed.starts_with(|c| c == '[' || c == ESCAPE || has_effect(c))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::escape::escaped;
    use crate::profile::FrameCategory;
    use crate::profile::tests::frame;

    #[test]
    fn only_words_of_the_profiler_begin_with_a_bracket() {
        let label = |name: &str, kind| frame(name, kind, 1).label().into_owned();
        let guessed = ProfileFrame { is_guessed: true, ..frame("[guessed] f", FrameCategory::Native, 1) };
        assert_eq!(guessed.label(), "[guessed] \\[guessed] f");
        assert_eq!(label("[guessed] main", FrameCategory::Native), "\\[guessed] main");
        assert_eq!(label("[truncated: x]", FrameCategory::Python), "\\[truncated: x]");
        assert_eq!(label("[truncated: x]", FrameCategory::Marker), "[truncated: x]");
        assert_eq!(label("\\x", FrameCategory::Native), "\\\\x");
        assert_eq!(label("operator[]", FrameCategory::Native), "operator[]");
        // PHP's, in what others have written.
        assert_eq!(ProfileFrame::parse_label("\\App\\run").name, "\\App\\run");
    }

    proptest! {
        #[test]
        fn a_label_is_parsed_into_what_it_was_made_of(name: String, is_guessed: bool) {
            let of_code = ProfileFrame { is_guessed, ..frame(&name, FrameCategory::Native, 1) };
            let label = of_code.label().into_owned();
            let parsed = ProfileFrame::parse_label(&label);
            prop_assert_eq!(parsed, ParsedLabel { name: &name, is_guessed, is_marker: false });
            // The same with what acts written out, as formats do.
            if !name.is_empty() {
                let (label, name) = (escaped(&label), escaped(&name));
                let parsed = ProfileFrame::parse_label(&label);
                prop_assert_eq!(parsed, ParsedLabel { name: &name, is_guessed, is_marker: false });
            }
        }
    }
}
