//! Loads a configuration from its sources.

use std::path::PathBuf;

use crate::diagnostics::{ConfigErrors, Diagnostics, Warning};
use crate::expand;
use crate::model::Config;
use crate::otel_environment;
use crate::schema::read_config;
use crate::source::{self, ConfigSource, Environment};
use crate::tree::{ConfigNode, ConfigValue, Map};

/// A valid configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadedConfig {
    /// The configuration.
    pub config: Config,
    /// Its warnings, in the order of the text.
    pub warnings: Vec<Warning>,
    /// The files that it was read from: sources, and files that a `${file:...}` names.
    pub files: Vec<PathBuf>,
}

/// Reads and validates a configuration: merges `sources` in order, then `sets` (`a.b=c` or `a::b=c`), and then replaces
/// every `${...}`.
///
/// Without sources, the environment variables `OTEL_EXPORTER_OTLP_*` configure the exporter; without an endpoint in these,
/// the base is [`Config::default`]. `sets` are merged into that. The same sources, files and variables always give the same
/// result.
///
/// # Errors
/// All errors at once: each with the key, the line if known, and the accepted values. Neither errors nor warnings contain a
/// secret.
pub fn load(
    sources: &[ConfigSource],
    sets: &[String],
    environment: &dyn Environment,
) -> Result<LoadedConfig, ConfigErrors> {
    let mut report = Diagnostics::default();
    let mut tree = match sources {
        [] => otel_environment::tree_from_environment(environment, &mut report),
        _ => {
            let mut whole = ConfigNode::new(ConfigValue::Map(Map::new()));
            for (index, source) in sources.iter().enumerate() {
                if let Some(tree) = source::read(index, source, environment, &mut report) {
                    whole.merge(tree);
                }
            }
            whole
        }
    };
    for (index, set) in sets.iter().enumerate() {
        if let Some(set) = source::read_set(index, set, &mut report) {
            tree.merge(set);
        }
    }
    // If a source is missing, the others are not the complete configuration of the user.
    if report.has_errors() {
        return Err(report.into_errors());
    }
    expand::expand(&mut tree, environment, &mut report);
    let config = read_config(&tree, &mut report);
    report.finish().map(|(warnings, files)| LoadedConfig { config, warnings, files })
}
