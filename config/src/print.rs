//! Prints the effective configuration.

use crate::model::Config;
use crate::schema::{WriteContext, write_config};
use crate::yaml;

/// Whether secrets are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrintMode {
    /// They are replaced by `[REDACTED]`.
    #[default]
    Redacted,
    /// They are printed.
    Unredacted,
}

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrintFormat {
    /// YAML, which [`crate::load`] can read; as in the Collector, `$` is not doubled.
    #[default]
    Yaml,
    /// JSON.
    Json,
}

/// Writes a configuration with all keys, in alphabetical order.
#[must_use]
pub fn print_config(config: &Config, mode: PrintMode, format: PrintFormat) -> String {
    let mut written = WriteContext { reveal: mode == PrintMode::Unredacted, ..WriteContext::default() };
    let tree = write_config(config, &mut written);
    match format {
        PrintFormat::Yaml => yaml::write(&tree),
        PrintFormat::Json => yaml::write_json(&tree),
    }
}
