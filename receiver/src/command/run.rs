//! `sidewinder run`: profiles as configured, until a signal stops it.

use clap::CommandFactory as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::privilege;
use sidewinder_bpf::Opener;

use super::{CommandResult, stop_flag};
use crate::cli::{Cli, ConfigArgs};
use crate::service::{self, Signals};

/// The failure of a command line that neither names a command nor configures the service.
pub(crate) fn nothing_to_run() -> Failure {
    let help = Cli::command().render_help().to_string();
    Failure::new(ExitCause::Usage, "neither a command nor a configuration was given")
        .with_details([""].into_iter().chain(help.lines()))
        .with_next_step(
            "`sidewinder record -a` to profile this machine; `sidewinder --config FILE` to run the service",
        )
}

pub(crate) fn run(args: &ConfigArgs) -> CommandResult {
    raise_descriptor_limit();
    privilege::set_no_new_privileges();
    let opener = Opener::start().map_err(|error| Failure::runtime("can't start a thread", error))?;
    privilege::drop_all_but(privilege::NONE);
    let signals = Signals::install(stop_flag()?)
        .map_err(|error| Failure::runtime("can't install signal handlers", error))?;
    service::run(args, &signals, opener)
}

/// Raises the limit of open file descriptors to the hard limit: every binary that a process maps is held open. The soft
/// limit is low for the sake of programs that use `select`(2), which supports only descriptors below 1,024.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // A failure here is ignored: a file that can't be opened is reported where it is needed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
