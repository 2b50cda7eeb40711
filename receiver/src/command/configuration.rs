//! `sidewinder validate`, `print-config` and `components`.

use sidewinder_config::{Loaded, ProcessEnvironment, Source, load, print_config, reference};

use super::{Ended, print_all};
use crate::cli::{ConfigArgs, PrintConfigArgs, PrintFormat, PrintMode};
use crate::exit::{Cause, Failure};
use crate::terminal::tell;

/// Gates that are known, and what they do. None in this version.
const FEATURE_GATES: &[(&str, &str)] = &[];

/// Reads the configuration that a command line asks for, and says on standard error what should be known about it.
fn read_aloud(args: &ConfigArgs) -> Result<Loaded, Failure> {
    let loaded = read(args)?;
    for warning in &loaded.warnings {
        tell(format_args!("warning: {warning}\n"));
    }
    Ok(loaded)
}

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

pub(crate) fn validate(args: &ConfigArgs) -> Ended {
    read_aloud(args)?;
    print_all("the configuration is valid\n")
}

pub(crate) fn print(args: &PrintConfigArgs) -> Ended {
    let loaded = read_aloud(&args.config)?;
    let mode = match args.mode {
        PrintMode::Redacted => sidewinder_config::PrintMode::Redacted,
        PrintMode::Unredacted => sidewinder_config::PrintMode::Unredacted,
    };
    let format = match args.format {
        PrintFormat::Yaml => sidewinder_config::PrintFormat::Yaml,
        PrintFormat::Json => sidewinder_config::PrintFormat::Json,
    };
    print_all(&print_config(&loaded.config, mode, format))
}

/// Lists what stands at the second level of the reference: `receivers::profiling`, `exporters::file`, ...
pub(crate) fn components() -> Ended {
    let mut shown = std::collections::BTreeSet::new();
    for key in reference().into_iter().filter(|key| key.limitation.is_none()) {
        let mut parts = key.path.split("::");
        if let (Some(section @ ("receivers" | "exporters" | "processors" | "extensions")), Some(kind)) =
            (parts.next(), parts.next())
        {
            shown.insert((section.to_owned(), kind.to_owned()));
        }
    }
    print_all(&shown.into_iter().map(|(section, kind)| format!("{section:<11} {kind}\n")).collect::<String>())
}
