//! From sources to a checked configuration.

use std::path::PathBuf;

use crate::diagnostics::{ConfigErrors, Diagnostics, Warning};
use crate::expand;
use crate::model::Config;
use crate::otel_environment;
use crate::schema::read_config;
use crate::source::{self, ConfigSource, Environment};
use crate::tree::{ConfigNode, ConfigValue, Map};

/// A configuration that holds.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadedConfig {
    /// What holds.
    pub config: Config,
    /// What to know about it, in the order of the text.
    pub warnings: Vec<Warning>,
    /// The files that it was read from: sources, and those that a `${file:...}` names.
    pub files: Vec<PathBuf>,
}

/// Reads and checks a configuration: `sources` laid over one another in order, then `sets`
/// (`a.b=c` or `a::b=c`), then every `${...}` replaced.
///
/// Without sources the environment's `OTEL_EXPORTER_OTLP_*` describes the exporter, and without an
/// endpoint there it is [`Config::default`]; `sets` are laid over that. The same sources, files and
/// variables always give the same result.
///
/// # Errors
/// Everything that is wrong, at once: with the key, the line where known, and what is allowed instead.
/// Neither errors nor warnings show a secret.
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
    // Where a source is missing, what the others say is not the user's configuration.
    if report.has_errors() {
        return Err(report.into_errors());
    }
    expand::expand(&mut tree, environment, &mut report);
    let config = read_config(&tree, &mut report);
    report.finish().map(|(warnings, files)| LoadedConfig { config, warnings, files })
}
