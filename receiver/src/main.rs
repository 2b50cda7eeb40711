//! The `sidewinder` command.
//!
//! | Module       | Holds                                                                                    |
//! |--------------|------------------------------------------------------------------------------------------|
//! | `sampling`   | from the rings of the kernel to events with stacks; from processes back to its maps      |
//! | `naming`     | what frames are called                                                                   |
//! | `jit`        | what code is called that processes made while they ran                                   |
//! | `resource`   | whose events they are                                                                    |
//! | `processor`  | what pipelines change of that                                                            |
//! | `report_queue` | the queue from the sampling thread to the reporter                                     |
//! | `report`     | events become OTLP reports                                                               |
//! | `export`     | where reports go                                                                         |
//! | `foreign`    | reads of other processes' memory, which may never return                                 |
//! | `supervise`  | which threads are at work, and which hang                                                |
//! | `memory`     | how much memory there is, and for what                                                   |
//! | `privilege`  | who keeps which capabilities                                                             |
//! | `service`    | a configuration kept up, and changed while it runs                                       |
//! | `stats`     | the state of the service; `telemetry` shows it                                          |
//! | `collect`    | events become a profile for people; `import` reads one from a file, `encode` the way back|
//! | `live`       | the page that follows what is profiled                                                   |
//! | `server`     | small pages over HTTP                                                                    |
//! | `terminal`   | whether what goes to a terminal is coloured                                              |
//! | `output`     | files that commands write, whole or not at all                                           |
//! | `command`    | one module for each command                                                              |
//! | `cli`, `exit`| the command line, and how it ends                                                        |
//! | `configuration` | the configuration that a command line asks for                                       |
//! | `causes`, `lock` | errors with what they are due to; mutexes that outlive a panic                      |
#![forbid(unsafe_code)]

mod causes;
mod cli;
mod collect;
mod command;
mod configuration;
mod encode;
mod exit;
mod export;
mod foreign;
mod hex;
mod import;
mod interval_timer;
mod jit;
mod kernel_names;
mod live;
mod lock;
mod memory;
mod naming;
mod output;
mod privilege;
mod processor;
mod refusals;
mod report;
mod report_queue;
mod resource;
mod sampling;
mod server;
mod service;
mod stats;
mod supervise;
mod telemetry;
mod terminal;
mod time_budget;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use exit::Failure;

fn main() -> ExitCode {
    sidewinder_bpf::limit_heap();
    privilege::raise();
    let ended = match command::launch::requested_exec() {
        Some(command) => command::launch::exec_when_continued(&command),
        None => run(Cli::parse()),
    };
    ended.unwrap_or_else(|failure| {
        terminal::print_notice(format_args!("sidewinder: {failure}\n"));
        failure.code()
    })
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        None => command::run::run(&cli.run.into_config()),
        Some(Command::Run(args)) => command::run::run(&args.into_config()),
        Some(Command::Record(args)) => command::record::record(args),
        Some(Command::Top(args)) => command::top::top(&args),
        Some(Command::View(args)) => command::view::view(&args),
        Some(Command::Diff(args)) => command::view::diff(&args),
        Some(Command::Inspect(args)) => command::inspect::inspect(&args),
        Some(Command::Check(args)) => command::check::check(&args),
        Some(Command::Status(args)) => command::status::status(&args),
        Some(Command::Health(args)) => command::status::health(&args),
        Some(Command::Validate(args)) => command::configuration::validate(&args),
        Some(Command::PrintConfig(args)) => command::configuration::print(&args),
        Some(Command::Components) => command::configuration::components(),
        Some(Command::Completions { shell }) => command::completions(shell),
        Some(Command::Manual { folder }) => command::write_manual(&folder),
    }
}
