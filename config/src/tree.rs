//! Configuration before it has types: a tree whose nodes know where they were written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Entries of a map, by key: a configuration's meaning does not depend on their order.
pub(crate) type Map = BTreeMap<String, ConfigNode>;

/// A value and where it came from.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ConfigNode {
    pub(crate) value: ConfigValue,
    /// Where the value begins.
    pub(crate) location: Option<SourceLocation>,
    /// Where its key begins; for an item of a list, where the item begins.
    pub(crate) key_location: Option<SourceLocation>,
    /// What `${...}` brought in, for places that take text whatever the text looks like.
    pub(crate) expanded: Option<ExpandedReference>,
}

/// A value that a `${...}` stood for. Errors name the reference and never show the value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ExpandedReference {
    /// The reference as written, `${env:TOKEN}`.
    pub(crate) reference: String,
    /// The text as it was found, before it was read as YAML.
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

/// Where something was written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SourceLocation {
    /// The file, or what stands for one: `--set #2`, `environment variable X`.
    pub source: Arc<str>,
    /// Line and column, both counted from 1, where they are known.
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
    /// A value from nowhere in particular.
    pub(crate) const fn new(value: ConfigValue) -> Self {
        Self { value, location: None, key_location: None, expanded: None }
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::new(ConfigValue::Text(text.into()))
    }

    pub(crate) fn map<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::new(ConfigValue::Map(entries.map(|(key, node)| (key.to_owned(), node)).into()))
    }

    /// The same tree, every node of it at `place`.
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

    /// Lays `over` on top: maps merge, anything else is replaced, as the Collector merges sources.
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

    /// Turns keys like `a::b` into maps within maps, as the Collector reads every source. `None` where
    /// more than `depth_left` maps and lists would lie inside one another.
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

    /// `node` below the keys of `path`, which `::` separates.
    pub(crate) fn nested_at(path: &str, node: Self) -> Self {
        path.rsplit("::").fold(node, |inner, key| Self {
            location: inner.key_location.clone(),
            key_location: inner.key_location.clone(),
            expanded: None,
            value: ConfigValue::Map(Map::from([(key.to_owned(), inner)])),
        })
    }

    /// The node below the keys of `path`, which `::` separates.
    pub(crate) fn get(&self, path: &str) -> Option<&Self> {
        path.split("::").try_fold(self, |node, key| match &node.value {
            ConfigValue::Map(map) => map.get(key),
            _ => None,
        })
    }

    /// What kind of value the node is, for an error that must not show it.
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

    /// What the node is, for an error: kind and, where it did not come out of a `${...}`, value.
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
