//! `sidewinder run`: profile as configured, until told to stop.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sidewinder_bpf::Opener;

use super::{CommandResult, stop_flag};
use crate::cli::ConfigArgs;
use crate::exit::Failure;
use crate::privilege;
use crate::service::{self, Signals};

pub(crate) fn run(args: &ConfigArgs) -> CommandResult {
    raise_descriptor_limit();
    privilege::set_no_new_privileges();
    let opener = Opener::start().map_err(|error| Failure::runtime("can't start a thread", error))?;
    privilege::drop_all_but(privilege::NONE);
    let signals =
        Signals::install(stop_flag()?).map_err(|error| Failure::runtime("can't take signals", error))?;
    service::run(args, &signals, opener)
}

/// Raises the limit of descriptors as far as it may be: every binary that a process maps is held open. That it is low at
/// first is for programs that use `select`(2), which takes no number from 1,024 on.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Refused or not: what can't be opened is told where it is missed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
