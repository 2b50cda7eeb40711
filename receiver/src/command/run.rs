//! `sidewinder run`: profile as configured, until told to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGHUP;

use super::{Ended, stop_flag};
use crate::cli::ConfigArgs;
use crate::exit::Failure;
use crate::service::{self, Signals};

pub(crate) fn run(args: &ConfigArgs) -> Ended {
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload))
        .map_err(|error| Failure::runtime("can't take signals", error))?;
    service::run(args, &Signals { stop: stop_flag()?, reload })
}
