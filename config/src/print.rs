//! The effective configuration as text.

use crate::model::Config;
use crate::schema::{WriteContext, write_config};
use crate::yaml;

/// Whether secrets are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrintMode {
    /// `[REDACTED]` stands in their place.
    #[default]
    Redacted,
    /// They are shown.
    Unredacted,
}

/// The form of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrintFormat {
    /// YAML, which [`crate::load`] reads back; as in the Collector, `$` is not doubled for it.
    #[default]
    Yaml,
    /// JSON.
    Json,
}

/// Writes a configuration, every key of it, keys in alphabetical order.
#[must_use]
pub fn print_config(config: &Config, mode: PrintMode, format: PrintFormat) -> String {
    let mut written = WriteContext { reveal: mode == PrintMode::Unredacted, ..WriteContext::default() };
    let tree = write_config(config, &mut written);
    match format {
        PrintFormat::Yaml => yaml::write(&tree),
        PrintFormat::Json => yaml::write_json(&tree),
    }
}
