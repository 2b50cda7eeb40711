//! The `sidewinder` command. What it is made of is in the crates beside `src`; docs/architecture.md lists them.
//!
//! | Module                       | Contents                                                                               |
//! |------------------------------|----------------------------------------------------------------------------------------|
//! | `cli`, `event_arg`           | the command line, and the events that `record -e` names                                |
//! | `command`                    | one module for each command                                                            |
//! | `configuration`              | loads the configuration that the command line names                                    |
//! | `service`                    | the service: runs a configuration, and applies changes to it                           |
//! | `output`                     | files that commands write, atomically                                                  |
//! | `unnamed`, `runtime_advice`  | which processes of a recording have frames without names, and what would name them     |
//! | `stripped`, `symbol_package` | the binaries without symbols in a recording, and the packages of their symbols         |
#![forbid(unsafe_code)]

mod cli;
mod command;
mod configuration;
mod event_arg;
mod output;
mod runtime_advice;
mod service;
mod stripped;
mod symbol_package;
mod unnamed;

use std::process::ExitCode;

use sidewinder_base::exit::Failure;
use sidewinder_base::privilege;
use sidewinder_base::terminal::print_notice;
use sidewinder_config::ProcessEnvironment;

use cli::{Cli, Command};

fn main() -> ExitCode {
    sidewinder_bpf::limit_heap();
    privilege::raise();
    let ended = match command::launch::requested_exec() {
        Some(command) => command::launch::exec_when_continued(&command),
        None => run(Cli::from_command_line()),
    };
    ended.unwrap_or_else(|failure| {
        print_notice(format_args!("sidewinder: {failure}\n"));
        failure.code()
    })
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        None if cli.run.is_empty() && !sidewinder_config::names_otel_endpoint(&ProcessEnvironment) => {
            Err(command::run::nothing_to_run())
        }
        None => command::run::run(&cli.run.into_config()),
        Some(Command::Run(args)) => command::run::run(&args.into_config()),
        Some(Command::Record(args)) => command::record::record(args),
        Some(Command::Top(args)) => command::top::top(&args),
        Some(Command::View(args)) => command::view::view(&args),
        Some(Command::Annotate(args)) => command::annotate::annotate(&args),
        Some(Command::Diff(args)) => command::view::diff(&args),
        Some(Command::Inspect(args)) => command::inspect::inspect(&args),
        Some(Command::Check(args)) => command::check::check(&args),
        Some(Command::Status(args)) => command::status::status(&args),
        Some(Command::Health(args)) => command::status::health(&args),
        Some(Command::Validate(args)) => command::configuration::validate(&args),
        Some(Command::PrintConfig(args)) => command::configuration::print(&args),
        Some(Command::Components) => command::configuration::components(),
        Some(Command::Completions { shell }) => command::completions::completions(shell),
        Some(Command::Manual { folder }) => command::write_manual(&folder),
    }
}
