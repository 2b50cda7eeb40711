//! Writes trees as text: the only file that uses `serde_yaml`.

use serde::ser::{Serialize, SerializeMap, Serializer};
use sidewinder_text::escaped_json;

use crate::tree::{ConfigNode, ConfigValue};

/// Writes a tree as YAML.
pub(crate) fn write(tree: &ConfigNode) -> String {
    serde_yaml::to_string(&tree.value).unwrap_or_else(|error| format!("# {error}\n"))
}

/// Writes a tree as JSON.
pub(crate) fn write_json(tree: &ConfigNode) -> String {
    serde_json::to_string_pretty(&tree.value)
        .map_or_else(|error| format!("# {error}\n"), |json| escaped_json(&json).into_owned() + "\n")
}

impl Serialize for ConfigValue {
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
