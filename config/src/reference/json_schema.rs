//! The reference as a JSON Schema (2020-12), for editors.
//!
//! It is as strict as a schema can be: what it refuses, [`crate::load`] refuses too; it does not cover relations between
//! keys.

use serde_json::{Map, Value as Json, json};

use super::written_keys;
use crate::schema::{ALIASES, ValueShape, WrittenKey};
use crate::table::{Key, KeySupport, keys};
use crate::tree::ConfigNode;
use crate::yaml;

/// Sections whose keys are IDs, `type` or `type/name`.
const SECTIONS_OF_IDS: [&str; 5] =
    ["receivers", "processors", "exporters", "extensions", "service::pipelines"];

/// Keys whose values are IDs of components.
const LISTS_OF_IDS: [&str; 4] = [
    "service::extensions",
    "service::pipelines::profiles::receivers",
    "service::pipelines::profiles::processors",
    "service::pipelines::profiles::exporters",
];

/// A number in a text.
const NUMBER: &str = "^[+-]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?$";

/// The schema of a whole configuration, as text.
#[must_use]
pub fn json_schema() -> String {
    let written = written_keys();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sidewinder's configuration",
        "$defs": {
            "reference": {
                "description": "Replaced before it is read: ${env:NAME}, ${env:NAME:-default}, ${file:PATH}.",
                "type": "string",
                "pattern": "\\$\\{.+\\}",
            },
        },
    });
    merge(&mut schema, object("", &written));
    format!("{schema:#}\n")
}

fn merge(into: &mut Json, more: Json) {
    if let (Json::Object(into), Json::Object(more)) = (into, more) {
        into.extend(more);
    }
}

/// The keys directly below `parent`, as an object without any others.
fn object(parent: &str, written: &[WrittenKey]) -> Json {
    let mut properties = Map::new();
    let mut patterns = Map::new();
    let mut rest = Json::Bool(false);
    for (name, row) in children(parent) {
        let schema = property(row, written);
        if name == "*" {
            rest = schema;
        } else if SECTIONS_OF_IDS.contains(&parent) {
            let names: String = ALIASES
                .iter()
                .filter(|(_, kind)| parent == "exporters" && *kind == name)
                .fold(name.to_owned(), |names, (alias, _)| format!("{names}|{alias}"));
            let is_alias = parent == "exporters" && ALIASES.iter().any(|(alias, _)| *alias == name);
            // A component that this version does not support is not among its keys.
            if !is_alias && !matches!(row.support, KeySupport::Refused { .. }) {
                patterns.insert(format!("^(?:{names})(?:/.+)?$"), schema);
            }
        } else {
            properties.insert(name.to_owned(), schema);
        }
    }
    json!({
        "type": ["object", "null"],
        "properties": properties,
        "patternProperties": patterns,
        "additionalProperties": rest,
    })
}

/// As [`table::children`](crate::table::children), including the `*` for arbitrary keys.
fn children(parent: &str) -> impl Iterator<Item = (&'static str, &'static Key)> {
    keys().filter_map(move |row| {
        let below = match parent {
            "" => row.path,
            _ => row.path.strip_prefix(parent)?.strip_prefix("::")?,
        };
        (!below.contains("::")).then_some((below.strip_suffix("[]").unwrap_or(below), row))
    })
}

/// The accepted values of a key.
fn property(row: &Key, written: &[WrittenKey]) -> Json {
    let mut schema = json!({ "description": description(row) });
    let plain = row.path.strip_suffix("[]").unwrap_or(row.path);
    let found = written.iter().find(|key| key.path == plain);
    let allowed = match row.support {
        KeySupport::NotYet { .. } | KeySupport::Ignored { .. } => {
            merge(&mut schema, json!({ "deprecated": matches!(row.support, KeySupport::Ignored { .. }) }));
            return schema;
        }
        // The default value is accepted in any YAML notation.
        KeySupport::Refused { .. } => return schema,
        KeySupport::Supported => match found {
            Some(key) if key.shape != ValueShape::Maps => shape(&key.shape),
            _ if children(row.path).next().is_some() => {
                let object = object(row.path, written);
                if row.path.ends_with("[]") { json!({ "type": "array", "items": object }) } else { object }
            }
            _ if LISTS_OF_IDS.contains(&row.path) => {
                json!({ "type": "array", "items": { "type": "string" } })
            }
            // The value of a user-defined key.
            _ => json!({ "type": "string" }),
        },
    };
    let default = found.map(|key| to_json(&key.value)).filter(|default| !default.is_null());
    if let Some(default) = default {
        merge(&mut schema, json!({ "default": default }));
    }
    let ways = json!([allowed, { "$ref": "#/$defs/reference" }, { "type": "null" }]);
    merge(&mut schema, json!({ "anyOf": ways }));
    schema
}

fn description(row: &Key) -> String {
    let mut text = row.description.to_owned();
    if !row.unit.is_empty() {
        text += &format!(" In {}.", row.unit);
    }
    match row.support {
        KeySupport::Supported => {}
        KeySupport::NotYet { .. } => text += " Accepted, but has no effect in this version.",
        KeySupport::Refused { instead, .. } => {
            text += &format!(" Not supported in this version: {instead}.");
        }
        KeySupport::Ignored { why } => text += &format!(" No effect: {why}."),
    }
    text
}

fn shape(shape: &ValueShape) -> Json {
    match shape {
        ValueShape::Text => json!({ "type": "string" }),
        // Words are accepted in any case; editors suggest these.
        ValueShape::Word(words) => {
            let any_case =
                format!("^(?:{})$", words.iter().map(|word| in_any_case(word)).collect::<Vec<_>>().join("|"));
            json!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": any_case }] })
        }
        ValueShape::Duration => json!({ "anyOf": [
            { "type": "string", "pattern": "^\\+?(?:0|(?:[0-9.]+(?:ns|us|µs|μs|ms|s|m|h))+)$" },
            { "const": 0 },
        ] }),
        ValueShape::Bool => json!({ "type": "boolean" }),
        ValueShape::Number { is_whole, min, max } => {
            let mut schema =
                json!({ "type": if *is_whole { "integer" } else { "number" }, "minimum": number(*min) });
            if let Some(max) = max {
                merge(&mut schema, json!({ "maximum": number(*max) }));
            }
            if *is_whole {
                schema
            } else {
                json!({ "anyOf": [schema, { "type": "string", "pattern": NUMBER }] })
            }
        }
        ValueShape::Any => json!({ "type": ["string", "integer", "boolean"] }),
        ValueShape::List(items) => json!({ "type": "array", "items": self::shape(items) }),
        ValueShape::Headers => json!({ "anyOf": [
            { "type": "object", "additionalProperties": { "type": "string" } },
            { "type": "array", "items": { "type": "object", "properties": {
                "name": { "type": "string" }, "value": { "type": "string" },
            } } },
        ] }),
        ValueShape::Maps => json!({ "type": "array", "items": { "type": "object" } }),
    }
}

/// Bounds are small integers.
fn number(bound: f64) -> Json {
    #[expect(clippy::cast_possible_truncation, reason = "only whole numbers are turned into such")]
    if bound.fract() == 0.0 { json!(bound as i64) } else { json!(bound) }
}

/// A regular expression that matches a word in any case.
fn in_any_case(word: &str) -> String {
    let letter = |c: char| match c {
        c if c.is_ascii_alphabetic() => format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase()),
        c if c.is_ascii_alphanumeric() || "_/".contains(c) => c.to_string(),
        c => format!("\\{c}"),
    };
    word.chars().map(letter).collect()
}

fn to_json(value: &crate::tree::ConfigValue) -> Json {
    let text = yaml::write_json(&ConfigNode::new(value.clone()));
    serde_json::from_str(&text).unwrap_or_default()
}
