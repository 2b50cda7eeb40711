//! What is made from a chart's `values.yaml`: its schema, and the table of its README.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::values::Described;

/// Where the configuration's own schema is in a chart's.
const CONFIGURATION: &str = "#/definitions/configuration";

const TABLE_BEGINS: &str = "<!-- Made from values.yaml by `make generated`. -->\n";
const TABLE_ENDS: &str = "<!-- End of what is made. -->\n";

/// Where a chart's schema has those of Kubernetes' own types.
const KUBERNETES: &str = "#/definitions/io.k8s.";

/// A schema that knows each value and refuses every other; `configuration` is that of `sidewinder --config`, `kubernetes`
/// are the definitions of its types. Draft 7, which every Helm reads.
///
/// # Errors
/// When a value's path leads through another value, or refers to a type that Kubernetes does not have.
pub fn schema(chart: &str, values: &[Described], configuration: &Value, kubernetes: &Value) -> Result<Value> {
    let mut root = group();
    for value in values {
        let (key, groups) = value.path.split_last().context("a value without a key")?;
        let mut at = &mut root;
        for group_key in groups {
            let below = at.get_mut("properties").and_then(Value::as_object_mut);
            at = below.context("no group")?.entry(group_key.clone()).or_insert_with(group);
        }
        let below = at.get_mut("properties").and_then(Value::as_object_mut);
        below.context("no group")?.insert(key.clone(), property(value));
    }
    // Charts around this one put values of their own there.
    let global = &mut root["properties"]["global"];
    if global.is_null() {
        *global = json!({ "type": "object" });
    } else {
        global["additionalProperties"] = json!(true);
    }
    if chart == "sidewinder" {
        root["properties"]["sidewinder-lib"] = json!({ "type": "object", "description": "Helm puts the library's defaults here. Nothing reads them." });
    }
    root["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    root["title"] = json!(format!("Values of the chart {chart}"));
    root["definitions"] = json!({ "configuration": embedded(configuration) });
    let mut wanted = types_in(&root);
    while let Some(name) = wanted.pop() {
        if root["definitions"].get(&name).is_none() {
            let definition = kubernetes.pointer(&format!("/$defs/{name}"));
            let definition = without_words(definition.with_context(|| format!("Kubernetes has no {name}"))?);
            wanted.extend(types_in(&definition));
            root["definitions"][name] = definition;
        }
    }
    Ok(root)
}

/// A schema as text: a line for each value at the top and for each definition, so that a change of one changes one line.
#[must_use]
pub fn compact(schema: &Value) -> String {
    lines(schema, 2) + "\n"
}

/// An object with a line for each of its entries, and so are those to a depth of `levels`.
fn lines(value: &Value, levels: usize) -> String {
    match value {
        Value::Object(map) if levels > 0 && !map.is_empty() => {
            let entry = |(key, value)| format!("{}: {}", json!(key), lines(value, levels - 1));
            format!("{{\n{}\n}}", map.iter().map(entry).collect::<Vec<_>>().join(",\n"))
        }
        other => other.to_string(),
    }
}

/// Kubernetes' types that a schema refers to.
fn types_in(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(map) => {
            let named = map.get("$ref").and_then(Value::as_str);
            let named = named.filter(|reference| reference.starts_with(KUBERNETES));
            let named = named.and_then(|reference| Some(reference.rsplit_once('/')?.1.to_owned()));
            map.values().flat_map(types_in).chain(named).collect()
        }
        Value::Array(items) => items.iter().flat_map(types_in).collect(),
        _ => Vec::new(),
    }
}

/// A definition as a part of a chart's schema: what is said of it for people, several times as long, is left out.
fn without_words(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let entries = map.iter().filter(|(key, value)| *key != "description" || !value.is_string());
            let entry = |(key, value): (&String, &Value)| match value.as_str().filter(|_| key == "$ref") {
                Some(reference) => (key.clone(), json!(reference.replacen("#/$defs/", "#/definitions/", 1))),
                None => (key.clone(), without_words(value)),
            };
            Value::Object(entries.map(entry).collect())
        }
        Value::Array(items) => items.iter().map(without_words).collect(),
        other => other.clone(),
    }
}

fn group() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": {} })
}

fn property(value: &Described) -> Value {
    let mut property = Map::new();
    if let Some(reference) = value.schema.get("$ref") {
        // Draft 7 reads nothing beside a reference.
        property.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    } else {
        property.extend(value.schema.clone());
    }
    property.entry("type").or_insert_with(|| json!(kind(&value.default)));
    property.insert("description".to_owned(), json!(value.description));
    Value::Object(property)
}

fn kind(default: &Value) -> &'static str {
    match default {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The configuration's schema as a part of another: its references lead into itself.
fn embedded(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let entries = map.iter().filter(|(key, _)| *key != "$schema" && *key != "title");
            let entry = |(key, value): (&String, &Value)| match value.as_str().filter(|_| key == "$ref") {
                Some(reference) => (key.clone(), json!(reference.replacen('#', CONFIGURATION, 1))),
                None => (key.clone(), embedded(value)),
            };
            Value::Object(entries.map(entry).collect())
        }
        Value::Array(items) => items.iter().map(embedded).collect(),
        other => other.clone(),
    }
}

/// A README whose table of values is that of `values`.
///
/// # Errors
/// When it has no place for the table.
pub fn with_table(readme: &str, values: &[Described]) -> Result<String> {
    let (before, rest) = readme.split_once(TABLE_BEGINS).context("no line says where the table begins")?;
    let (_, after) = rest.split_once(TABLE_ENDS).context("no line says where the table ends")?;
    Ok(format!("{before}{TABLE_BEGINS}\n{}\n{TABLE_ENDS}{after}", table(values)))
}

fn table(values: &[Described]) -> String {
    let mut table = "| Value | Meaning | Type | Default |\n|---|---|---|---|\n".to_owned();
    for value in values {
        let default = match &value.default {
            Value::Object(map) if !map.is_empty() => "see `values.yaml`".to_owned(),
            default => format!("`{default}`"),
        };
        let kind = kind(&value.default);
        let description = value.description.replace('|', "\\|");
        // Writing into a string does not fail.
        let _ = writeln!(table, "| `{}` | {description} | {kind} | {default} |", value.path.join("."));
    }
    table
}
