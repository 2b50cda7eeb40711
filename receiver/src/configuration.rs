//! Loads the configuration from the sources that the command line names.

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::terminal::print_notice;
use sidewinder_config::{ConfigErrors, ConfigProblem, ConfigSource, LoadedConfig, ProcessEnvironment, load};

use crate::cli::ConfigArgs;

/// The known feature gates, and their effects. There are none in this version.
const FEATURE_GATES: &[(&str, &str)] = &[];

/// What to do about such errors of a configuration from these sources.
fn next_step(errors: &ConfigErrors, sources: &[ConfigSource]) -> &'static str {
    let has_variable = sources.iter().any(|source| matches!(source, ConfigSource::Variable(_)));
    match errors.as_slice() {
        [error] if matches!(error.problem, ConfigProblem::Unreadable(_)) => match has_variable {
            false => "check the path",
            true if sources.len() == 1 => "set the variable",
            true => "check the path, or set the variable",
        },
        [_] => "fix this; `sidewinder print-config` shows every key with its default",
        _ => "fix all of these; `sidewinder print-config` shows every key with its default",
    }
}

/// Loads and checks the configuration. Prints a warning for each unknown feature gate.
pub(crate) fn read(args: &ConfigArgs) -> Result<LoadedConfig, Failure> {
    for gate in &args.feature_gates {
        let id = gate.trim_start_matches(['+', '-']);
        if !FEATURE_GATES.iter().any(|(known, _)| *known == id) {
            print_notice(format_args!("warning: feature gate {id:?} is unknown and has no effect\n"));
        }
    }
    let sources: Vec<ConfigSource> =
        args.config.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(|error| {
            Failure::new(ExitCause::Usage, "can't read --config")
                .with_source(error)
                .with_next_step("name a file, or file:PATH, env:NAME, yaml:TEXT")
        })?;
    load(&sources, &args.set, &ProcessEnvironment).map_err(|errors| {
        Failure::new(ExitCause::Usage, "the configuration is not valid")
            .with_details(errors.as_slice())
            .with_next_step(next_step(&errors, &sources))
    })
}
