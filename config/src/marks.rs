//! Where in a YAML text each value was written.
//!
//! `serde_yaml` gives positions for errors of its own only, so a second reading of the text, by
//! `saphyr-parser`, collects positions alone; they are laid over the tree by key and index. Where the two
//! readings differ, or a value came through an alias or `<<`, the nearest position known holds: a wrong
//! value never comes of it, at worst a less exact line.

use std::collections::BTreeMap;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser};

use crate::tree::{Node, Place, Value};
use crate::yaml::MAX_DEPTH;

/// Line and column, both counted from 1.
type Position = (usize, usize);

#[derive(Default)]
struct Marked {
    position: Position,
    inside: Inside,
}

#[derive(Default)]
enum Inside {
    #[default]
    Nothing,
    List(Vec<Marked>),
    Map(BTreeMap<String, (Position, Marked)>),
}

/// Gives every node of `tree` its place in `text`, the text it was read from.
pub(crate) fn place(tree: &mut Node, text: &str, source: &Arc<str>) {
    let nowhere = Place { source: source.clone(), position: None };
    let marked = read(text);
    let root = marked.as_ref().map_or(nowhere.clone(), |marked| at(source, marked.position));
    lay(tree, marked.as_ref(), &root, &root);
}

fn at(source: &Arc<str>, position: Position) -> Place {
    Place { source: source.clone(), position: Some(position) }
}

fn lay(node: &mut Node, marked: Option<&Marked>, key_place: &Place, fallback: &Place) {
    let place = marked.map_or_else(|| fallback.clone(), |marked| at(&fallback.source, marked.position));
    node.key_place = Some(key_place.clone());
    match &mut node.value {
        Value::List(items) => {
            let marks = match marked.map(|marked| &marked.inside) {
                Some(Inside::List(marks)) => marks.as_slice(),
                _ => &[],
            };
            for (index, item) in items.iter_mut().enumerate() {
                let mark = marks.get(index);
                let item_place = mark.map_or_else(|| place.clone(), |mark| at(&place.source, mark.position));
                lay(item, mark, &item_place, &place);
            }
        }
        Value::Map(map) => {
            let marks = match marked.map(|marked| &marked.inside) {
                Some(Inside::Map(marks)) => Some(marks),
                _ => None,
            };
            for (key, child) in map {
                match marks.and_then(|marks| marks.get(key)) {
                    Some((position, mark)) => lay(child, Some(mark), &at(&place.source, *position), &place),
                    None => lay(child, None, key_place, &place),
                }
            }
        }
        _ => {}
    }
    node.place = Some(place);
}

/// One map or list that is not at its end yet.
struct Open {
    marked: Marked,
    /// In a map: the key whose value comes next.
    key: Option<(String, Position)>,
}

/// Positions of a text's first document, or `None` where it can't be read to its end.
fn read(text: &str) -> Option<Marked> {
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        let position = position(span.start);
        let (closed, scalar) = match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                if open.len() > MAX_DEPTH {
                    return None;
                }
                let inside = match event {
                    Event::MappingStart(..) => Inside::Map(BTreeMap::new()),
                    _ => Inside::List(Vec::new()),
                };
                open.push(Open { marked: Marked { position, inside }, key: None });
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => (open.pop()?.marked, None),
            Event::Scalar(text, ..) => (Marked { position, inside: Inside::Nothing }, Some(text)),
            Event::Alias(_) => (Marked { position, inside: Inside::Nothing }, None),
            _ => continue,
        };
        let Some(parent) = open.last_mut() else {
            return Some(closed);
        };
        match (&mut parent.marked.inside, parent.key.take()) {
            (Inside::List(items), _) => items.push(closed),
            (Inside::Map(map), Some((key, key_position))) => drop(map.insert(key, (key_position, closed))),
            (Inside::Map(_), None) => {
                parent.key = Some((scalar.map(std::borrow::Cow::into_owned).unwrap_or_default(), position));
            }
            (Inside::Nothing, _) => return None,
        }
    }
    None
}

fn position(marker: Marker) -> Position {
    (marker.line(), marker.col() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    const TEXT: &str = "\
a: &anchor
  b: 1
  list:
  - x
  - {y: 2,
     z: 3}
c: *anchor
";

    fn placed(text: &str) -> Node {
        let mut tree = yaml::parse(text).unwrap();
        place(&mut tree, text, &Arc::from("f.yaml"));
        tree
    }

    fn step<'a>(node: &'a Node, key: &str) -> &'a Node {
        match &node.value {
            Value::Map(map) => &map[key],
            Value::List(items) => &items[key.parse::<usize>().unwrap()],
            _ => panic!("{key} is looked up in a scalar"),
        }
    }

    fn places(tree: &Node, path: &[&str]) -> (String, String) {
        let node = path.iter().fold(tree, |node, key| step(node, key));
        (node.key_place.as_ref().unwrap().to_string(), node.place.as_ref().unwrap().to_string())
    }

    #[test]
    fn keys_and_values_have_places_in_block_and_flow_style() {
        let tree = placed(TEXT);
        let expected = |key: &str, value: &str| (format!("f.yaml:{key}"), format!("f.yaml:{value}"));
        assert_eq!(places(&tree, &["a", "b"]), expected("2:3", "2:6"));
        assert_eq!(places(&tree, &["a", "list", "0"]), expected("4:5", "4:5"));
        assert_eq!(places(&tree, &["a", "list", "1", "y"]), expected("5:6", "5:9"));
        assert_eq!(places(&tree, &["a", "list", "1", "z"]), expected("6:6", "6:9"));
    }

    #[test]
    fn what_an_alias_brings_is_placed_at_the_alias() {
        let tree = placed(TEXT);
        assert_eq!(places(&tree, &["c", "b"]), ("f.yaml:7:1".to_owned(), "f.yaml:7:4".to_owned()));
    }

    #[test]
    fn a_tree_whose_text_cannot_be_read_again_is_placed_in_its_source() {
        let mut tree = yaml::parse("a: 1").unwrap();
        place(&mut tree, "a: [", &Arc::from("f.yaml"));
        assert_eq!(places(&tree, &["a"]), ("f.yaml".to_owned(), "f.yaml".to_owned()));
    }
}
