//! YAML text to trees and back: the only file that knows `serde_yaml`.
//!
//! `serde_yaml` is archived: it gets no fixes. So it does one thing here, reading text into events
//! and scalars, behind a visitor of our own that bounds depth and size (aliases can make a small text
//! an enormous tree), refuses what configuration has no use for (tags, keys that are not text) and
//! finds duplicate keys. Nothing outside this file would notice another parser. It does not tell where
//! a value was written; [`crate::marks`] does.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::tree::{Map, Node, Value};

/// The most bytes that one source may have.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// The most values that one source may have once its aliases are resolved.
const MAX_NODES: usize = 100_000;
/// The most maps and lists inside one another.
pub(crate) const MAX_DEPTH: usize = 64;

/// A text that is not the YAML expected here, and where that shows.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    /// What is wrong; never quotes a value.
    pub(crate) detail: String,
    /// Line and column, both counted from 1.
    pub(crate) position: Option<(usize, usize)>,
}

/// What is wrong with a text that has more than [`MAX_DEPTH`] levels.
pub(crate) fn too_deep() -> String {
    format!("nested deeper than {MAX_DEPTH} levels")
}

/// Reads one document; an empty one is null.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    if text.len() > MAX_BYTES {
        return Err(SyntaxError { detail: format!("longer than {MAX_BYTES} bytes"), position: None });
    }
    if let Some(position) = too_many_brackets(text) {
        return Err(SyntaxError {
            detail: format!("more than {MAX_DEPTH} brackets are open"),
            position: Some(position),
        });
    }
    let nodes_left = Cell::new(MAX_NODES);
    let seed = NodeSeed { nodes_left: &nodes_left, depth_left: MAX_DEPTH };
    seed.deserialize(serde_yaml::Deserializer::from_str(text)).map_err(|error| {
        let position = error.location().map(|at| (at.line(), at.column()));
        let mut detail = error.to_string();
        // The position is told apart from the words.
        if let Some(end) = position.and_then(|_| detail.rfind(" at line ")) {
            detail.truncate(end);
        }
        SyntaxError { detail, position }
    })
}

/// Where more brackets are open than a configuration has.
///
/// The scanner's time grows with the square of the brackets open, so they are counted before. Brackets
/// inside quotes and comments count too: text with so many of them is not met in configurations.
fn too_many_brackets(text: &str) -> Option<(usize, usize)> {
    let mut open = 0_usize;
    for (line, row) in text.lines().enumerate() {
        for (column, letter) in row.chars().enumerate() {
            match letter {
                '[' | '{' => open += 1,
                ']' | '}' => open = open.saturating_sub(1),
                _ => {}
            }
            if open > MAX_DEPTH {
                return Some((line + 1, column + 1));
            }
        }
    }
    None
}

/// Writes a tree as YAML.
pub(crate) fn write(tree: &Node) -> String {
    serde_yaml::to_string(&tree.value).unwrap_or_else(|error| format!("# {error}\n"))
}

/// Writes a tree as JSON, whose names for things are YAML's too.
pub(crate) fn write_json(tree: &Node) -> String {
    serde_json::to_string_pretty(&tree.value).map_or_else(|error| format!("# {error}\n"), |json| json + "\n")
}

#[derive(Clone, Copy)]
struct NodeSeed<'a> {
    nodes_left: &'a Cell<usize>,
    depth_left: usize,
}

impl NodeSeed<'_> {
    fn below<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth_left = self.depth_left.checked_sub(1);
        let depth_left = depth_left.ok_or_else(|| E::custom(too_deep()))?;
        Ok(Self { depth_left, ..self })
    }

    fn count<E: serde::de::Error>(self) -> Result<(), E> {
        let left = self.nodes_left.get().checked_sub(1);
        self.nodes_left.set(left.ok_or_else(|| E::custom(format_args!("more than {MAX_NODES} values")))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self).map(Node::new)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a tag")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Value, E> {
        // The number itself may be a password without quotes.
        i128::try_from(value).map(Value::Integer).map_err(|_| E::custom("a number is too large"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(below)? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut map = Map::new();
        let mut merged = None;
        while let Some(key) = entries.next_key_seed(KeySeed { map: &map, merged: merged.is_some() })? {
            let node = entries.next_value_seed(below)?;
            if key == MERGE_KEY {
                merged = Some(node);
            } else {
                map.insert(key, node);
            }
        }
        if let Some(merged) = merged {
            apply_merge_key(&mut map, merged).map_err(A::Error::custom)?;
        }
        Ok(Value::Map(map))
    }
}

/// YAML's key for "and everything that is in there".
const MERGE_KEY: &str = "<<";

/// A key of a map: text, and not one that the map has. Refused here, so that the error names its line.
struct KeySeed<'a> {
    map: &'a Map,
    merged: bool,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is text, in quotes if it looks like something else")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<String, E> {
        if self.map.contains_key(key) || (self.merged && key == MERGE_KEY) {
            return Err(E::custom(format_args!("the key {key:?} is given twice in one map")));
        }
        Ok(key.to_owned())
    }
}

/// Adds the entries of YAML's `<<`: what the map itself says holds, then the first that says it.
fn apply_merge_key(map: &mut Map, merged: Node) -> Result<(), &'static str> {
    let sources = match merged.value {
        Value::List(items) => items,
        _ => vec![merged],
    };
    for source in sources {
        let Value::Map(entries) = source.value else {
            return Err("<< takes a map or a list of maps");
        };
        for (key, node) in entries {
            map.entry(key).or_insert(node);
        }
    }
    Ok(())
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => serializer.serialize_u64(value),
                (_, Ok(value)) => serializer.serialize_i64(value),
                _ => serializer.serialize_i128(*value),
            },
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(items) => serializer.collect_seq(items.iter().map(|item| &item.value)),
            Self::Map(map) => {
                let mut entries = serializer.serialize_map(Some(map.len()))?;
                for (key, node) in map {
                    entries.serialize_entry(key, &node.value)?;
                }
                entries.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().detail
    }

    #[test]
    fn scalars_keep_their_kind() {
        let Value::List(items) = parse("[1, -2, 0.5, true, yes, null, '1', x]").unwrap().value else {
            panic!("a list was written");
        };
        let values: Vec<Value> = items.into_iter().map(|item| item.value).collect();
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(
            values,
            [
                Value::Integer(1),
                Value::Integer(-2),
                Value::Float(0.5),
                Value::Bool(true),
                text("yes"),
                Value::Null,
                text("1"),
                text("x"),
            ]
        );
    }

    #[test]
    fn an_empty_document_is_null() {
        for text in ["", "\n", "# nothing\n", "---\n", "~"] {
            assert_eq!(parse(text).unwrap().value, Value::Null, "{text:?}");
        }
    }

    #[test]
    fn anchors_are_copied_and_merge_keys_give_way() {
        let tree = parse("base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}\nboth: {<<: [{x: 7}, *b]}").unwrap();
        let plain = parse("base: {x: 1, y: 2}\nuse: {x: 1, y: 3}\nboth: {x: 7, y: 2}").unwrap();
        assert_eq!(tree, plain);
    }

    #[test]
    fn a_key_that_is_given_twice_is_refused_with_its_line() {
        let error = parse("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert!(error.detail.contains("\"a\" is given twice"), "{}", error.detail);
        assert_eq!(error.position.map(|(line, _)| line), Some(3));
    }

    #[test]
    fn tags_and_keys_that_are_not_text_are_refused() {
        assert!(refused("a: !secret x").contains("without a tag"), "{}", refused("a: !secret x"));
        assert!(refused("1: x").contains("a key that is text"));
        assert!(refused("[1]: x").contains("a key that is text"));
        assert!(refused("a: 1\n---\nb: 2").contains("more than one document"));
    }

    #[test]
    fn aliases_that_multiply_are_refused_before_they_do() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let alias = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("a{level}: &a{level} [{alias}]\n");
        }
        let detail = refused(&bomb);
        assert!(detail.contains("values") || detail.contains("limit"), "{detail}");
    }

    #[test]
    fn size_and_depth_are_bounded() {
        assert!(refused(&"a".repeat(MAX_BYTES + 1)).contains("longer"));
        assert!(refused(&"[".repeat(MAX_BYTES)).contains("brackets"));
        assert!(refused(&"- ".repeat(100)).contains("nested"));
        let block: String = (0..200).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        assert!(parse(&block).is_err());
    }

    #[test]
    fn a_tree_survives_writing_and_reading() {
        let tree = parse("{a: [1, -2, 0.2, 'null', '1.5', 'x: y', ''], b: {c: true, d: null}}").unwrap();
        assert_eq!(parse(&write(&tree)).unwrap(), tree);
    }
}
