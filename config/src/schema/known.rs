//! Checks keys against the reference table.

use std::time::Duration;

use crate::diagnostics::{ConfigProblem, Diagnostics, nearest};
use crate::duration;
use crate::table::{self, KeySupport};
use crate::tree::{ConfigNode, ConfigValue, Map};

/// The entries of a node that must be a map or absent.
pub(super) fn map_of<'a>(path: &str, node: &'a ConfigNode, report: &mut Diagnostics) -> Option<&'a Map> {
    static NONE: Map = Map::new();
    match &node.value {
        ConfigValue::Map(map) => Some(map),
        ConfigValue::Null => Some(&NONE),
        _ => {
            let problem = ConfigProblem::Value { found: node.kind().to_owned(), allowed: "a map".to_owned() };
            report.error(path, node.location.as_ref(), problem);
            None
        }
    }
}

/// Finds unknown keys, and known ones without effect.
pub(super) fn check_keys(path: &str, schema: &str, given: &Map, report: &mut Diagnostics) {
    for (key, node) in given {
        let path = join(path, key);
        let place = node.key_location.as_ref();
        let Some(row) = table::find(&join(schema, key)) else {
            let known = || table::children(schema);
            let problem = ConfigProblem::UnknownKey {
                nearest: nearest(key, known().map(|(name, _)| name)),
                known: known()
                    .filter(|(_, row)| row.support.accepts_values())
                    .map(|(name, _)| name.to_owned())
                    .collect(),
            };
            report.error(&path, place, problem);
            continue;
        };
        match row.support {
            KeySupport::Supported => {}
            KeySupport::NotYet { default } if is_default(node, default) => {}
            KeySupport::NotYet { .. } => {
                report.warn(&path, place, "is accepted, but this version does not act on it yet");
            }
            KeySupport::Refused { default, .. } if is_default(node, default) => {}
            KeySupport::Refused { instead, .. } => {
                report.error(&path, place, ConfigProblem::NotInThisVersion { instead: instead.to_owned() });
            }
            KeySupport::Ignored { why } => {
                report.warn(&path, place, format!("is accepted and has no effect: {why}"));
            }
        }
    }
}

/// Whether a value equals a default that is written as YAML in the reference table.
fn is_default(node: &ConfigNode, default: &str) -> bool {
    node.value == ConfigValue::Null
        || crate::yaml::parse(default, &"default".into()).is_ok_and(|default| equals_default(node, &default))
}

fn equals_default(node: &ConfigNode, default: &ConfigNode) -> bool {
    match (&node.value, &default.value) {
        (ConfigValue::Null, _) => true,
        (ConfigValue::Integer(a), ConfigValue::Float(b))
        | (ConfigValue::Float(b), ConfigValue::Integer(a)) => {
            #[expect(clippy::cast_precision_loss, reason = "defaults are small numbers")]
            let equal = *a as f64 == *b;
            equal
        }
        (ConfigValue::Text(a), ConfigValue::Text(b)) if a != b => {
            matches!((duration::parse(a), duration::parse(b)), (Some(a), Some(b)) if a == b)
        }
        (ConfigValue::Integer(0), ConfigValue::Text(text)) => duration::parse(text) == Some(Duration::ZERO),
        (ConfigValue::List(a), ConfigValue::List(b)) => a.is_empty() && b.is_empty(),
        // A missing key has its default.
        (ConfigValue::Map(a), ConfigValue::Map(b)) => {
            a.iter().all(|(key, node)| b.get(key).is_some_and(|default| equals_default(node, default)))
        }
        (a, b) => a == b,
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}::{key}") }
}
