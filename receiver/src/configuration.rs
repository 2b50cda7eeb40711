//! The configuration that a command line asks for.

use sidewinder_config::{ConfigSource, LoadedConfig, ProcessEnvironment, load};

use crate::cli::ConfigArgs;
use crate::exit::{ExitCause, Failure};
use crate::terminal::print_notice;

/// Gates that are known, and what they do. None in this version.
const FEATURE_GATES: &[(&str, &str)] = &[];

/// Reads the configuration that a command line asks for.
pub(crate) fn read(args: &ConfigArgs) -> Result<LoadedConfig, Failure> {
    for gate in &args.feature_gates {
        let id = gate.trim_start_matches(['+', '-']);
        if !FEATURE_GATES.iter().any(|(known, _)| *known == id) {
            print_notice(format_args!("warning: feature gate {id:?} is unknown here and changes nothing\n"));
        }
    }
    let sources: Vec<ConfigSource> =
        args.config.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(|error| {
            Failure::new(ExitCause::Usage, "can't read --config")
                .with_source(error)
                .with_next_step("name a file, or file:PATH, env:NAME, yaml:TEXT")
        })?;
    load(&sources, &args.set, &ProcessEnvironment).map_err(|errors| {
        Failure::new(ExitCause::Usage, format!("the configuration is not valid\n{errors}"))
            .with_next_step("fix all of these; `sidewinder print-config` shows every key with its default")
    })
}
