//! Names of Go: `github.com/prometheus/prometheus/tsdb.(*Head[go.shape.int]).Append.func1`.

use super::scan::{Piece, contents, pieces};

/// Without the import path's folders, and without type arguments, as far as needed.
pub(super) fn candidates(name: &str) -> Vec<String> {
    let Some(pieces) = pieces(name) else { return Vec::new() };
    let render = |has_path: bool, arguments: TypeArguments| {
        let whole: String = pieces.iter().map(|piece| piece_text(*piece, arguments)).collect();
        if has_path { whole } else { without_path(&whole).to_owned() }
    };
    vec![
        render(false, TypeArguments::Elided),
        render(false, TypeArguments::Short),
        render(true, TypeArguments::Elided),
        render(true, TypeArguments::Short),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TypeArguments {
    Elided,
    Short,
}

fn piece_text(piece: Piece<'_>, arguments: TypeArguments) -> String {
    match piece {
        Piece::Group(group) if group.starts_with('[') => match arguments {
            TypeArguments::Elided => "[…]".to_owned(),
            TypeArguments::Short => format!("[{}]", short_types(contents(group))),
        },
        // A receiver, `(*Head[...])`.
        Piece::Group(group) if group.starts_with('(') => {
            let inside = pieces(contents(group)).unwrap_or_default();
            let inside: String = inside.into_iter().map(|piece| piece_text(piece, arguments)).collect();
            format!("({inside})")
        }
        Piece::Group(text) | Piece::Text(text) => text.to_owned(),
        Piece::Separator => "::".to_owned(),
        Piece::Comma => ",".to_owned(),
        Piece::Space => " ".to_owned(),
    }
}

/// Type arguments without the folders of their packages, and without their own type arguments.
fn short_types(list: &str) -> String {
    let Some(pieces) = pieces(list) else { return list.to_owned() };
    let types = pieces.split(|piece| *piece == Piece::Comma).map(|pieces| {
        let whole: String = pieces.iter().map(|piece| piece_text(*piece, TypeArguments::Elided)).collect();
        let (pointer, rest) = whole.split_at(whole.len() - whole.trim_start_matches('*').len());
        format!("{pointer}{}", without_path(rest.strip_prefix("go.shape.").unwrap_or(rest)))
    });
    types.collect::<Vec<_>>().join(",")
}

/// What follows the last folder outside of brackets.
fn without_path(name: &str) -> &str {
    let end = name.find(['(', '[']).unwrap_or(name.len());
    let (head, _) = name.split_at(end);
    head.rfind('/').and_then(|slash| name.get(slash + 1..)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_paths_and_type_arguments_are_elided_first() {
        assert_eq!(
            candidates("github.com/a/b.(*T[github.com/c/d.E,go.shape.int]).f.func1"),
            [
                "b.(*T[…]).f.func1",
                "b.(*T[d.E,int]).f.func1",
                "github.com/a/b.(*T[…]).f.func1",
                "github.com/a/b.(*T[d.E,int]).f.func1",
            ]
        );
    }
}
