//! Compares the generated files with the table of keys.
//!
//! `make generated` regenerates them.
#![expect(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

use std::path::PathBuf;

use sidewinder_config::{json_schema, reference, reference_markdown};

fn at(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn is_up_to_date(name: &str, text: &str) {
    if std::env::var_os("GENERATED").is_some_and(|value| value == "accept") {
        std::fs::write(at(name), text).unwrap();
    }
    let kept = std::fs::read_to_string(at(name)).unwrap_or_default();
    assert!(kept == text, "config/{name} is not what the table says: `make generated` regenerates it");
}

#[test]
fn the_page_of_all_keys_matches_the_table() {
    is_up_to_date("REFERENCE.md", &reference_markdown());
}

#[test]
fn the_schema_matches_the_table() {
    is_up_to_date("schema.json", &json_schema());
}

#[test]
fn the_annotated_example_names_every_key_that_acts() {
    let example = std::fs::read_to_string(at("../sidewinder.yaml")).unwrap();
    let mut missing = Vec::new();
    let keys = reference();
    for key in keys.iter().filter(|key| key.limitation.is_none()) {
        let name = key.path.rsplit("::").next().unwrap_or_default().trim_end_matches("[]");
        let is_alias = key.description.starts_with("Deprecated name");
        let below = format!("{}::", key.path);
        let mut keys_below = keys.iter().filter(|key| key.path.starts_with(&below)).peekable();
        // A section in which no key has an effect, and connectors, of which there are none.
        let is_empty_section = keys_below.peek().is_some() && keys_below.all(|key| key.limitation.is_some());
        let mut words = example.split(|c: char| !c.is_alphanumeric() && c != '_');
        if ["*", "connectors"].contains(&name)
            || is_alias
            || is_empty_section
            || words.any(|word| word == name)
        {
            continue;
        }
        missing.push(key.path);
    }
    assert!(missing.is_empty(), "{missing:?}");
}
