//! The untyped configuration: a tree whose nodes have source locations.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Entries of a map, by key: the meaning of a configuration does not depend on their order.
pub(crate) type Map = BTreeMap<String, ConfigNode>;

/// A value and its source location.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ConfigNode {
    pub(crate) value: ConfigValue,
    /// The location of the value.
    pub(crate) location: Option<SourceLocation>,
    /// The location of its key; for an item of a list, the location of the item.
    pub(crate) key_location: Option<SourceLocation>,
    /// The replacement of a `${...}`, for keys that accept text, whatever type it looks like.
    pub(crate) expanded: Option<ExpandedReference>,
}

/// The replacement of a `${...}`. Errors contain the reference and never the value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ExpandedReference {
    /// The reference as written, `${env:TOKEN}`.
    pub(crate) reference: String,
    /// The text before it was parsed as YAML.
    pub(crate) text: String,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ConfigValue {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<ConfigNode>),
    Map(Map),
}

/// A source location.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SourceLocation {
    /// The file, or a label of another source: `--set #2`, `environment variable X`.
    pub source: Arc<str>,
    /// Line and column, both from 1, if known.
    pub position: Option<(usize, usize)>,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        match self.position {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

impl ConfigNode {
    /// A value without a location.
    pub(crate) const fn new(value: ConfigValue) -> Self {
        Self { value, location: None, key_location: None, expanded: None }
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::new(ConfigValue::Text(text.into()))
    }

    pub(crate) fn map<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::new(ConfigValue::Map(entries.map(|(key, node)| (key.to_owned(), node)).into()))
    }

    /// The same tree with the location of every node set to `place`.
    pub(crate) fn with_location(mut self, place: &SourceLocation) -> Self {
        self.locate_all(place);
        self
    }

    fn locate_all(&mut self, place: &SourceLocation) {
        self.location = Some(place.clone());
        self.key_location = Some(place.clone());
        match &mut self.value {
            ConfigValue::List(items) => items.iter_mut().for_each(|item| item.locate_all(place)),
            ConfigValue::Map(map) => map.values_mut().for_each(|node| node.locate_all(place)),
            _ => {}
        }
    }

    /// Merges `over` into this node: maps are merged, anything else is replaced, as the Collector merges sources.
    pub(crate) fn merge(&mut self, over: Self) {
        match (&mut self.value, over.value) {
            (ConfigValue::Map(under), ConfigValue::Map(over)) => {
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

    /// Turns keys such as `a::b` into nested maps, as the Collector does in every source. `None` if maps and lists would be
    /// nested more than `depth_left` levels.
    pub(crate) fn split_keys(&mut self, depth_left: usize) -> Option<()> {
        match &mut self.value {
            ConfigValue::List(items) => {
                let depth_left = depth_left.checked_sub(1)?;
                items.iter_mut().try_for_each(|item| item.split_keys(depth_left))
            }
            ConfigValue::Map(map) => {
                let mut whole = Self::new(ConfigValue::Map(Map::new()));
                for (key, mut node) in std::mem::take(map) {
                    node.split_keys(depth_left.checked_sub(key.matches("::").count() + 1)?)?;
                    whole.merge(Self::nested_at(&key, node));
                }
                self.value = whole.value;
                Some(())
            }
            _ => Some(()),
        }
    }

    /// Wraps `node` in the keys of `path`, which are separated by `::`.
    pub(crate) fn nested_at(path: &str, node: Self) -> Self {
        path.rsplit("::").fold(node, |inner, key| Self {
            location: inner.key_location.clone(),
            key_location: inner.key_location.clone(),
            expanded: None,
            value: ConfigValue::Map(Map::from([(key.to_owned(), inner)])),
        })
    }

    /// The node at `path`, whose keys are separated by `::`.
    pub(crate) fn get(&self, path: &str) -> Option<&Self> {
        path.split("::").try_fold(self, |node, key| match &node.value {
            ConfigValue::Map(map) => map.get(key),
            _ => None,
        })
    }

    /// The kind of the value, for an error that must not contain it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self.value {
            ConfigValue::Null => "nothing",
            ConfigValue::Bool(_) => "true or false",
            ConfigValue::Integer(_) | ConfigValue::Float(_) => "a number",
            ConfigValue::Text(_) => "text",
            ConfigValue::List(_) => "a list",
            ConfigValue::Map(_) => "a map",
        }
    }

    /// A description of the node for an error: its kind, and its value unless it replaced a `${...}`.
    pub(crate) fn describe(&self) -> String {
        const SHOWN: usize = 60;
        if let Some(expanded) = &self.expanded {
            return format!("what {} stands for", expanded.reference);
        }
        match &self.value {
            ConfigValue::Bool(value) => value.to_string(),
            ConfigValue::Integer(value) => value.to_string(),
            ConfigValue::Float(value) => value.to_string(),
            ConfigValue::Text(text) if text.contains('@') => {
                "text with an @, which may hold a password".to_owned()
            }
            ConfigValue::Text(text) if text.chars().count() > SHOWN => {
                format!("{:?} and so on", text.chars().take(SHOWN).collect::<String>())
            }
            ConfigValue::Text(text) => format!("{text:?}"),
            ConfigValue::Null | ConfigValue::List(_) | ConfigValue::Map(_) => self.kind().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: i128) -> ConfigNode {
        ConfigNode::new(ConfigValue::Integer(value))
    }

    #[test]
    fn maps_merge_and_lists_are_replaced() {
        let mut tree = ConfigNode::map([
            ("a", ConfigNode::map([("x", number(1)), ("y", number(2))])),
            ("l", ConfigNode::new(ConfigValue::List(vec![number(1), number(2)]))),
        ]);
        tree.merge(ConfigNode::map([
            ("a", ConfigNode::map([("y", number(3))])),
            ("l", ConfigNode::new(ConfigValue::List(vec![number(9)]))),
        ]));
        let merged = ConfigNode::map([
            ("a", ConfigNode::map([("x", number(1)), ("y", number(3))])),
            ("l", ConfigNode::new(ConfigValue::List(vec![number(9)]))),
        ]);
        assert_eq!(tree, merged);
    }

    #[test]
    fn a_null_replaces_a_map() {
        let mut tree = ConfigNode::map([("a", ConfigNode::map([("x", number(1))]))]);
        tree.merge(ConfigNode::map([("a", ConfigNode::new(ConfigValue::Null))]));
        assert_eq!(tree, ConfigNode::map([("a", ConfigNode::new(ConfigValue::Null))]));
    }

    #[test]
    fn a_key_with_double_colons_is_a_path() {
        let mut tree = ConfigNode::map([("a", ConfigNode::map([("x", number(1))])), ("a::b::c", number(2))]);
        assert_eq!(tree.clone().split_keys(2), None);
        assert_eq!(tree.split_keys(3), Some(()));
        let whole = ConfigNode::map([(
            "a",
            ConfigNode::map([("x", number(1)), ("b", ConfigNode::map([("c", number(2))]))]),
        )]);
        assert_eq!(tree, whole);
    }

    #[test]
    fn what_came_out_of_a_reference_is_never_described_by_its_value() {
        let expanded = ExpandedReference { reference: "${env:TOKEN}".to_owned(), text: "hunter2".to_owned() };
        let node = ConfigNode { expanded: Some(expanded), ..ConfigNode::text("hunter2") };
        assert_eq!(node.describe(), "what ${env:TOKEN} stands for");
    }
}
