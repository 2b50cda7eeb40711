//! Configuration before it has types: a tree whose nodes know where they were written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Entries of a map, by key: a configuration's meaning does not depend on their order.
pub(crate) type Map = BTreeMap<String, Node>;

/// A value and where it came from.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    /// Where the value begins.
    pub(crate) place: Option<Place>,
    /// Where its key begins; for an item of a list, where the item begins.
    pub(crate) key_place: Option<Place>,
    /// What `${...}` brought in, for places that take text whatever the text looks like.
    pub(crate) expanded: Option<Expanded>,
}

/// A value that a `${...}` stood for. Errors name the reference and never show the value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Expanded {
    /// The reference as written, `${env:TOKEN}`.
    pub(crate) reference: String,
    /// The text as it was found, before it was read as YAML.
    pub(crate) text: String,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Map),
}

/// Where something was written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The file, or what stands for one: `--set #2`, `environment variable X`.
    pub source: Arc<str>,
    /// Line and column, both counted from 1, where they are known.
    pub position: Option<(usize, usize)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        match self.position {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

impl Node {
    /// A value from nowhere in particular.
    pub(crate) const fn new(value: Value) -> Self {
        Self { value, place: None, key_place: None, expanded: None }
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::new(Value::Text(text.into()))
    }

    pub(crate) fn map<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::new(Value::Map(entries.map(|(key, node)| (key.to_owned(), node)).into()))
    }

    /// The same tree, every node of it at `place`.
    pub(crate) fn placed_at(mut self, place: &Place) -> Self {
        self.place_all(place);
        self
    }

    fn place_all(&mut self, place: &Place) {
        self.place = Some(place.clone());
        self.key_place = Some(place.clone());
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.place_all(place)),
            Value::Map(map) => map.values_mut().for_each(|node| node.place_all(place)),
            _ => {}
        }
    }

    /// Lays `over` on top: maps merge, anything else is replaced, as the Collector merges sources.
    pub(crate) fn merge(&mut self, over: Self) {
        match (&mut self.value, over.value) {
            (Value::Map(under), Value::Map(over)) => {
                for (key, node) in over {
                    match under.get_mut(&key) {
                        Some(present) => present.merge(node),
                        None => drop(under.insert(key, node)),
                    }
                }
            }
            (_, value) => *self = Self { value, ..over },
        }
    }

    /// Turns keys like `a::b` into maps within maps, as the Collector reads every source. `None` where
    /// more than `depth_left` maps and lists would lie inside one another.
    pub(crate) fn split_keys(&mut self, depth_left: usize) -> Option<()> {
        match &mut self.value {
            Value::List(items) => {
                let depth_left = depth_left.checked_sub(1)?;
                items.iter_mut().try_for_each(|item| item.split_keys(depth_left))
            }
            Value::Map(map) => {
                let mut whole = Self::new(Value::Map(Map::new()));
                for (key, mut node) in std::mem::take(map) {
                    node.split_keys(depth_left.checked_sub(key.matches("::").count() + 1)?)?;
                    whole.merge(Self::under(&key, node));
                }
                self.value = whole.value;
                Some(())
            }
            _ => Some(()),
        }
    }

    /// `node` below the keys of `path`, which `::` separates.
    pub(crate) fn under(path: &str, node: Self) -> Self {
        path.rsplit("::").fold(node, |inner, key| Self {
            place: inner.key_place.clone(),
            key_place: inner.key_place.clone(),
            expanded: None,
            value: Value::Map(Map::from([(key.to_owned(), inner)])),
        })
    }

    /// The node below the keys of `path`, which `::` separates.
    pub(crate) fn at(&self, path: &str) -> Option<&Self> {
        path.split("::").try_fold(self, |node, key| match &node.value {
            Value::Map(map) => map.get(key),
            _ => None,
        })
    }

    /// What kind of value the node is, for an error that must not show it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// What the node is, for an error: kind and, where it did not come out of a `${...}`, value.
    pub(crate) fn describe(&self) -> String {
        const SHOWN: usize = 60;
        if let Some(expanded) = &self.expanded {
            return format!("what {} stands for", expanded.reference);
        }
        match &self.value {
            Value::Bool(value) => value.to_string(),
            Value::Integer(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(text) if text.contains('@') => "text with an @, which may hold a password".to_owned(),
            Value::Text(text) if text.chars().count() > SHOWN => {
                format!("{:?} and so on", text.chars().take(SHOWN).collect::<String>())
            }
            Value::Text(text) => format!("{text:?}"),
            Value::Null | Value::List(_) | Value::Map(_) => self.kind().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: i128) -> Node {
        Node::new(Value::Integer(value))
    }

    #[test]
    fn maps_merge_and_lists_are_replaced() {
        let mut tree = Node::map([
            ("a", Node::map([("x", number(1)), ("y", number(2))])),
            ("l", Node::new(Value::List(vec![number(1), number(2)]))),
        ]);
        tree.merge(Node::map([
            ("a", Node::map([("y", number(3))])),
            ("l", Node::new(Value::List(vec![number(9)]))),
        ]));
        let merged = Node::map([
            ("a", Node::map([("x", number(1)), ("y", number(3))])),
            ("l", Node::new(Value::List(vec![number(9)]))),
        ]);
        assert_eq!(tree, merged);
    }

    #[test]
    fn a_null_replaces_a_map() {
        let mut tree = Node::map([("a", Node::map([("x", number(1))]))]);
        tree.merge(Node::map([("a", Node::new(Value::Null))]));
        assert_eq!(tree, Node::map([("a", Node::new(Value::Null))]));
    }

    #[test]
    fn a_key_with_double_colons_is_a_path() {
        let mut tree = Node::map([("a", Node::map([("x", number(1))])), ("a::b::c", number(2))]);
        assert_eq!(tree.clone().split_keys(2), None);
        assert_eq!(tree.split_keys(3), Some(()));
        let whole = Node::map([("a", Node::map([("x", number(1)), ("b", Node::map([("c", number(2))]))]))]);
        assert_eq!(tree, whole);
    }

    #[test]
    fn what_came_out_of_a_reference_is_never_described_by_its_value() {
        let expanded = Expanded { reference: "${env:TOKEN}".to_owned(), text: "hunter2".to_owned() };
        let node = Node { expanded: Some(expanded), ..Node::text("hunter2") };
        assert_eq!(node.describe(), "what ${env:TOKEN} stands for");
    }
}
