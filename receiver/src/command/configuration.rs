//! `sidewinder validate`, `print-config` and `components`.

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::terminal::print_notice;
use sidewinder_config::{LoadedConfig, print_config, reference};

use super::{CommandResult, named_files, print_all};
use crate::cli::{ConfigArgs, PrintConfigArgs, PrintFormatArg, PrintModeArg, ValidateArgs};
use crate::configuration::read;

/// Reads the configuration that the arguments name, and prints its warnings on standard error.
fn read_with_warnings(args: &ConfigArgs) -> Result<LoadedConfig, Failure> {
    let loaded = read(args)?;
    for warning in &loaded.warnings {
        print_notice(format_args!("warning: {warning}\n"));
    }
    Ok(loaded)
}

/// Checks a configuration, and what it names of this machine.
pub(crate) fn validate(args: &ValidateArgs) -> CommandResult {
    let loaded = read_with_warnings(&args.config)?;
    let problems = if args.skip_files { Vec::new() } else { named_files::problems(&loaded.config) };
    if !problems.is_empty() {
        let failure = Failure::new(
            ExitCause::Usage,
            "the configuration names files or directories that can't be used here",
        );
        return Err(failure.with_details(problems).with_next_step(
            "fix all of these, or add --skip-files if the service and its files are elsewhere, for example in a pod",
        ));
    }
    print_all("the configuration is valid\n")
}

pub(crate) fn print(args: &PrintConfigArgs) -> CommandResult {
    let loaded = read_with_warnings(&args.config)?;
    let mode = match args.mode {
        PrintModeArg::Redacted => sidewinder_config::PrintMode::Redacted,
        PrintModeArg::Unredacted => sidewinder_config::PrintMode::Unredacted,
    };
    let format = match args.format {
        PrintFormatArg::Yaml => sidewinder_config::PrintFormat::Yaml,
        PrintFormatArg::Json => sidewinder_config::PrintFormat::Json,
    };
    print_all(&print_config(&loaded.config, mode, format))
}

/// Lists the components, which are the second level of the reference: `receivers::profiling`, `exporters::file`, ...
pub(crate) fn components() -> CommandResult {
    let mut components = std::collections::BTreeSet::new();
    for key in reference().into_iter().filter(|key| key.limitation.is_none()) {
        let mut parts = key.path.split("::");
        if let (Some(section @ ("receivers" | "exporters" | "processors" | "extensions")), Some(kind)) =
            (parts.next(), parts.next())
        {
            components.insert((section.to_owned(), kind.to_owned()));
        }
    }
    print_all(
        &components.into_iter().map(|(section, kind)| format!("{section:<11} {kind}\n")).collect::<String>(),
    )
}
