//! `values.yaml` and what its comments say of each value.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value};

/// A value that users set: a key with a comment `# -- ...`. What is below it is its default.
#[derive(Debug)]
pub struct Described {
    /// The keys that lead to it.
    pub path: Vec<String>,
    /// What it means.
    pub description: String,
    /// What `# @schema {...}` says of it besides: keywords of JSON Schema.
    pub schema: Map<String, Value>,
    /// What holds where it is not set.
    pub default: Value,
}

/// Every value of a `values.yaml`, in its order.
///
/// # Errors
/// When the file can't be read, or a value has no description.
pub fn described(file: &Path) -> Result<Vec<Described>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let defaults = serde_yaml::from_str(&text)?;
    read(&text, &defaults).with_context(|| format!("in {}", file.display()))
}

fn read(text: &str, defaults: &Value) -> Result<Vec<Described>> {
    let mut found: Vec<Described> = Vec::new();
    // The groups that lead here, with their indents.
    let mut groups: Vec<(usize, String)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    // Lines deeper than this are a default.
    let mut default_of: Option<usize> = None;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if trimmed.is_empty() {
            comment.clear();
            continue;
        }
        if default_of.is_some_and(|of| indent > of || trimmed.starts_with("- ")) {
            continue;
        }
        default_of = None;
        if let Some(words) = trimmed.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let (key, _) = trimmed.split_once(':').with_context(|| format!("line {}: no key", index + 1))?;
        groups.retain(|(of, _)| *of < indent);
        let path: Vec<String> =
            groups.iter().map(|(_, group)| group.clone()).chain([key.to_owned()]).collect();
        let default = path.iter().try_fold(defaults, |value, key| value.get(key));
        let default = default.with_context(|| format!("line {}: {path:?} is not there", index + 1))?;
        if comment.first().is_some_and(|words| words.starts_with("-- ")) {
            found.push(value(path, &comment, default.clone())?);
            default_of = Some(indent);
        } else {
            ensure!(default.is_object(), "line {}: {path:?} has no description (# -- ...)", index + 1);
            groups.push((indent, key.to_owned()));
        }
        comment.clear();
    }
    Ok(found)
}

fn value(path: Vec<String>, comment: &[&str], default: Value) -> Result<Described> {
    let mut words = Vec::new();
    let mut schema = Map::new();
    for line in comment {
        match line.strip_prefix("@schema ") {
            None => words.push(line.strip_prefix("-- ").unwrap_or(line)),
            Some(keywords) => match serde_json::from_str(keywords)? {
                Value::Object(keywords) => schema = keywords,
                other => bail!("{path:?}: @schema {other} is no object"),
            },
        }
    }
    Ok(Described { path, description: words.join(" "), schema, default })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "\
# A file.

image:
  # -- Where
  # it is.
  # @schema {\"minLength\": 1}
  name: a
# -- Any.
open:
  x: 1
list:
  # -- Several.
  of:
  - y: 2
  # -- Another.
  after: true
";

    #[test]
    fn a_described_key_is_a_value_and_what_is_below_it_its_default() -> Result<()> {
        let found = read(TEXT, &serde_yaml::from_str(TEXT)?)?;
        let paths: Vec<String> = found.iter().map(|value| value.path.join(".")).collect();
        assert_eq!(paths, ["image.name", "open", "list.of", "list.after"]);
        assert_eq!(found[0].description, "Where it is.");
        assert_eq!(found[0].schema.get("minLength"), Some(&json!(1)));
        assert_eq!(found[1].default, json!({"x": 1}));
        assert_eq!(found[2].default, json!([{"y": 2}]));
        Ok(())
    }

    #[test]
    fn a_value_without_a_description_is_an_error() -> Result<()> {
        let text = "a:\n  b: 1\n";
        let error = read(text, &serde_yaml::from_str(text)?).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("has no description"), "{error}");
        Ok(())
    }
}
