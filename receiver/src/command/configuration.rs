//! `sidewinder validate`, `print-config` and `components`.

use sidewinder_config::{Loaded, print_config, reference};

use super::{Ended, print_all};
use crate::cli::{ConfigArgs, PrintConfigArgs, PrintFormat, PrintMode};
use crate::configuration::read;
use crate::exit::Failure;
use crate::terminal::tell;

/// Reads the configuration that a command line asks for, and says on standard error what should be known about it.
fn read_aloud(args: &ConfigArgs) -> Result<Loaded, Failure> {
    let loaded = read(args)?;
    for warning in &loaded.warnings {
        tell(format_args!("warning: {warning}\n"));
    }
    Ok(loaded)
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
