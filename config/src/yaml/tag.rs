//! The tags that a value may have.

use saphyr_parser::Tag;

/// Only YAML's own tags are supported.
pub(super) fn check_tag(tag: Option<&Tag>) -> Result<(), String> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => Err("expected a value without a tag".to_owned()),
        _ => Ok(()),
    }
}
