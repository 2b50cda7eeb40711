//! Names as they are displayed.

use std::borrow::Cow;

pub(crate) use sidewinder_text::escaped as escaped_or_empty;

/// A name, [escaped](sidewinder_text::escaped). An empty one becomes `[unnamed]`.
#[must_use]
pub fn escaped(name: &str) -> Cow<'_, str> {
    if name.is_empty() { Cow::Borrowed("[unnamed]") } else { escaped_or_empty(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_effect_and_is_never_nothing() {
        assert_eq!(escaped("\u{1b}[31mred\n"), "\\u{1b}[31mred\\u{a}");
        assert_eq!(escaped(""), "[unnamed]");
        assert_eq!(escaped_or_empty(""), "");
    }
}
