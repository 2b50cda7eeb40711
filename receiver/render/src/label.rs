//! Names of frames as they are shown: marked where the profiler guessed, and escaped where they could be taken for its words.

use std::borrow::Cow;

use sidewinder_profile::Frame;
use sidewinder_text::has_effect;

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

/// The name of a frame for display. Every format marks a guess, and escapes a name of the target that looks like words of the
/// profiler: `\[guessed] main` is a function with the name `[guessed] main`.
#[must_use]
pub fn frame_label<'a>(frame: &Frame<'a>) -> Cow<'a, str> {
    let name = frame.name();
    let is_escaped = frame.location.marker.is_none() && looks_like_marker(&name);
    mark_guess(frame, if is_escaped { Cow::Owned(format!("{ESCAPE}{name}")) } else { name })
}

/// The same with words of the profiler instead of this frame's name.
pub(crate) fn frame_label_with<'a>(frame: &Frame<'_>, words: &'a str) -> Cow<'a, str> {
    mark_guess(frame, Cow::Borrowed(words))
}

fn mark_guess<'a>(frame: &Frame<'_>, label: Cow<'a, str>) -> Cow<'a, str> {
    if frame.location.is_guessed { Cow::Owned(format!("{GUESSED}{label}")) } else { label }
}

impl<'a> ParsedLabel<'a> {
    /// Parses a label.
    pub(crate) fn new(label: &'a str) -> Self {
        let (label, is_guessed) = label.strip_prefix(GUESSED).map_or((label, false), |rest| (rest, true));
        let name = unescape_name(label);
        Self { name, is_guessed, is_marker: name.len() == label.len() && label.starts_with('[') }
    }
}

/// A name of the target, with a backslash before it if it could be taken for words of the profiler, or for an escaped name.
pub(crate) fn escape_name(name: &str) -> Cow<'_, str> {
    if looks_like_marker(name) { Cow::Owned(format!("{ESCAPE}{name}")) } else { Cow::Borrowed(name) }
}

/// The inverse of [`escape_name`]. Other names that begin with a backslash, such as PHP's, stay as they are.
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
    use crate::category::FrameCategory;
    use crate::escape::escaped;
    use crate::profile::tests::{TestFrame, frame, profile};

    fn label(frame: TestFrame) -> String {
        let profile = profile(&[frame], &[(&[0], 1)]);
        let label = profile.stacked_frames().map(|(_, frame)| frame_label(&frame).into_owned()).next();
        label.expect("a frame")
    }

    #[test]
    fn only_words_of_the_profiler_begin_with_a_bracket() {
        let label_of = |name: &str, category| label(frame(name, category, 1));
        let guessed = TestFrame { is_guessed: true, ..frame("[guessed] f", FrameCategory::Native, 1) };
        assert_eq!(label(guessed), "[guessed] \\[guessed] f");
        assert_eq!(label_of("[guessed] main", FrameCategory::Native), "\\[guessed] main");
        assert_eq!(label_of("[truncated: x]", FrameCategory::Python), "\\[truncated: x]");
        assert_eq!(label_of("[truncated: x]", FrameCategory::Marker), "[truncated: x]");
        assert_eq!(label_of("\\x", FrameCategory::Native), "\\\\x");
        assert_eq!(label_of("operator[]", FrameCategory::Native), "operator[]");
        // PHP's, in what others have written.
        assert_eq!(ParsedLabel::new("\\App\\run").name, "\\App\\run");
    }

    proptest! {
        #[test]
        fn a_label_is_parsed_into_what_it_was_made_of(name in any::<String>().prop_filter("a name", |name| !name.is_empty()), is_guessed: bool) {
            let label = label(TestFrame { is_guessed, ..frame(&name, FrameCategory::Native, 1) });
            prop_assert_eq!(ParsedLabel::new(&label), ParsedLabel { name: &name, is_guessed, is_marker: false });
            // The same with what acts written out, as formats do.
            let (label, name) = (escaped(&label), escaped(&name));
            prop_assert_eq!(ParsedLabel::new(&label), ParsedLabel { name: &name, is_guessed, is_marker: false });
        }
    }
}
