//! Splits names at what is outside of any brackets.

/// A piece of a name: a bracketed group with its brackets, or text between groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece<'a> {
    /// `<...>`, `(...)`, `[...]`, `{...}`.
    Group(&'a str),
    /// `::`
    Separator,
    /// `,`
    Comma,
    Space,
    Text(&'a str),
}

/// The names of operators that contain brackets, the longest first.
const OPERATORS: [&str; 10] = ["<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()"];
const OPERATOR: &str = "operator";

/// The pieces of a name; `None` if its brackets don't match, or nest deeper than any sensible name does.
pub(super) fn pieces(text: &str) -> Option<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let (mut at, mut text_start) = (0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (piece, length) = match rest.as_bytes() {
            [b':', b':', ..] => (Some(Piece::Separator), 2),
            [b',', ..] => (Some(Piece::Comma), 1),
            [b' ', ..] => (Some(Piece::Space), 1),
            [b'<' | b'(' | b'[' | b'{', ..] => {
                let length = group_length(rest)?;
                (Some(Piece::Group(rest.get(..length)?)), length)
            }
            [b'-', b'>', ..] => (None, 2),
            [b'>' | b')' | b']' | b'}', ..] => return None,
            _ if is_operator(text, at) => (None, operator_length(rest)),
            _ => (None, rest.chars().next().map_or(1, char::len_utf8)),
        };
        if let Some(piece) = piece {
            if text_start < at {
                pieces.push(Piece::Text(text.get(text_start..at)?));
            }
            pieces.push(piece);
            text_start = at + length;
        }
        at += length;
    }
    if text_start < text.len() {
        pieces.push(Piece::Text(text.get(text_start..)?));
    }
    Some(pieces)
}

/// Whether the word `operator` stands here.
fn is_operator(text: &str, at: usize) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let (before, rest) = text.split_at(at);
    rest.strip_prefix(OPERATOR).is_some_and(|after| !after.starts_with(is_word)) && !before.ends_with(is_word)
}

/// The length of an operator's name: `operator<`, `operator()`. That of `operator new` and of conversions is the word alone.
fn operator_length(rest: &str) -> usize {
    let symbol = rest.get(OPERATOR.len()..).unwrap_or_default();
    let known =
        OPERATORS.iter().find(|operator| symbol.starts_with(**operator)).map(|operator| operator.len());
    let single = || usize::from(symbol.starts_with(['<', '>', ',']));
    OPERATOR.len() + known.unwrap_or_else(single) + if symbol.starts_with("[]") { 2 } else { 0 }
}

/// The length of the group that `text` begins with.
pub(super) fn group_length(text: &str) -> Option<usize> {
    const DEPTH_MAX: usize = 256;
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'<' => open.push(b'>'),
            b'(' => open.push(b')'),
            b'[' => open.push(b']'),
            b'{' => open.push(b'}'),
            // The arrow of a function type.
            b'-' if text.as_bytes().get(at + 1) == Some(&b'>') => at += 1,
            b'>' | b')' | b']' | b'}' => {
                if open.pop() != Some(*byte) {
                    return None;
                }
                if open.is_empty() {
                    return Some(at + 1);
                }
            }
            b'o' if text.is_char_boundary(at) && is_operator(text, at) => {
                at += operator_length(text.get(at..)?) - 1;
            }
            _ => {}
        }
        if open.len() > DEPTH_MAX {
            return None;
        }
        at += 1;
    }
    None
}

/// The contents of a group, without its brackets.
pub(super) fn contents(group: &str) -> &str {
    group.get(1..group.len().saturating_sub(1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Piece::{Comma, Group, Separator, Space, Text};

    #[test]
    fn groups_are_found_beside_operators_and_arrows() {
        assert_eq!(
            pieces("a<b<c>, d>::operator<<(x)"),
            Some(vec![Text("a"), Group("<b<c>, d>"), Separator, Text("operator<<"), Group("(x)")])
        );
        assert_eq!(pieces("operator()(int)"), Some(vec![Text("operator()"), Group("(int)")]));
        assert_eq!(pieces("f<operator<(a)>"), Some(vec![Text("f"), Group("<operator<(a)>")]));
        assert_eq!(pieces("<fn(u8) -> a, b>"), Some(vec![Group("<fn(u8) -> a, b>")]));
        assert_eq!(pieces("ß, x y"), Some(vec![Text("ß"), Comma, Space, Text("x"), Space, Text("y")]));
        assert_eq!(pieces("operators<x>"), Some(vec![Text("operators"), Group("<x>")]));
        assert_eq!(pieces(""), Some(vec![]));
    }

    #[test]
    fn brackets_that_do_not_match_are_no_structure() {
        for text in ["a<b", "a>b", "a(b]", "<(>)", &"<".repeat(10_000)] {
            assert_eq!(pieces(text), None, "{text}");
        }
    }
}
