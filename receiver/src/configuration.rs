//! The configuration that a command line asks for.

use sidewinder_config::{Loaded, ProcessEnvironment, Source, load};

use crate::cli::ConfigArgs;
use crate::exit::{Cause, Failure};
use crate::terminal::tell;

/// Gates that are known, and what they do. None in this version.
const FEATURE_GATES: &[(&str, &str)] = &[];

/// Reads the configuration that a command line asks for.
pub(crate) fn read(args: &ConfigArgs) -> Result<Loaded, Failure> {
    for gate in &args.feature_gates {
        let id = gate.trim_start_matches(['+', '-']);
        if !FEATURE_GATES.iter().any(|(known, _)| *known == id) {
            tell(format_args!("warning: feature gate {id:?} is unknown here and changes nothing\n"));
        }
    }
    let sources: Vec<Source> =
        args.config.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(|error| {
            Failure::new(Cause::Usage, "can't read --config")
                .because(error)
                .then("name a file, or file:PATH, env:NAME, yaml:TEXT")
        })?;
    load(&sources, &args.set, &ProcessEnvironment).map_err(|errors| {
        Failure::new(Cause::Usage, format!("the configuration is not valid\n{errors}"))
            .then("fix all of these; `sidewinder print-config` shows every key with its default")
    })
}
