//! Whether a key means anything here, by the reference table.

use std::time::Duration;

use crate::duration;
use crate::report::{Problem, Report, nearest};
use crate::table::{self, Support};
use crate::tree::{Map, Node, Value};

/// The entries of a node that must be a map or absent.
pub(super) fn map_of<'a>(path: &str, node: &'a Node, report: &mut Report) -> Option<&'a Map> {
    static NONE: Map = Map::new();
    match &node.value {
        Value::Map(map) => Some(map),
        Value::Null => Some(&NONE),
        _ => {
            let problem = Problem::Value { found: node.kind().to_owned(), allowed: "a map".to_owned() };
            report.error(path, node.place.as_ref(), problem);
            None
        }
    }
}

/// Finds keys that are unknown here, or known and without effect.
pub(super) fn check_keys(path: &str, schema: &str, given: &Map, report: &mut Report) {
    for (key, node) in given {
        let path = join(path, key);
        let place = node.key_place.as_ref();
        let Some(row) = table::find(&join(schema, key)) else {
            let known = || table::children(schema);
            let problem = Problem::UnknownKey {
                nearest: nearest(key, known().map(|(name, _)| name)),
                known: known()
                    .filter(|(_, row)| row.support.takes_values())
                    .map(|(name, _)| name.to_owned())
                    .collect(),
            };
            report.error(&path, place, problem);
            continue;
        };
        match row.support {
            Support::Acts => {}
            Support::NotYet { default } if is_default(node, default) => {}
            Support::NotYet { .. } => {
                report.warn(&path, place, "is accepted, but this version does not act on it yet");
            }
            Support::Refused { default, .. } if is_default(node, default) => {}
            Support::Refused { instead, .. } => {
                report.error(&path, place, Problem::NotInThisVersion { instead: instead.to_owned() });
            }
            Support::Meaningless { why } => {
                report.warn(&path, place, format!("is accepted and has no effect: {why}"));
            }
        }
    }
}

/// Whether a value is the default that the reference table writes as YAML.
fn is_default(node: &Node, default: &str) -> bool {
    node.value == Value::Null
        || crate::yaml::parse(default, &"default".into()).is_ok_and(|default| says_the_same(node, &default))
}

fn says_the_same(node: &Node, default: &Node) -> bool {
    match (&node.value, &default.value) {
        (Value::Null, _) => true,
        (Value::Integer(a), Value::Float(b)) | (Value::Float(b), Value::Integer(a)) => {
            #[expect(clippy::cast_precision_loss, reason = "defaults are small numbers")]
            let equal = *a as f64 == *b;
            equal
        }
        (Value::Text(a), Value::Text(b)) if a != b => {
            matches!((duration::parse(a), duration::parse(b)), (Some(a), Some(b)) if a == b)
        }
        (Value::Integer(0), Value::Text(text)) => duration::parse(text) == Some(Duration::ZERO),
        (Value::List(a), Value::List(b)) => a.is_empty() && b.is_empty(),
        // A key that is not given has its default.
        (Value::Map(a), Value::Map(b)) => {
            a.iter().all(|(key, node)| b.get(key).is_some_and(|default| says_the_same(node, default)))
        }
        (a, b) => a == b,
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}::{key}") }
}
