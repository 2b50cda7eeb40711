//! The two forms of what ships, in which programs are profiled.

use std::env;

use anyhow::{Result, bail};

/// See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The service, with the chart's default memory in a cgroup with the chart's limit, and a Collector.
    Service,
    /// The command `record`.
    Record,
}

/// What names the form of a run of the tests.
const VARIABLE: &str = "SIDEWINDER_FORM";

impl Form {
    /// The form of this run of the tests: `SIDEWINDER_FORM`, which is the service where it is not set.
    ///
    /// # Errors
    /// When it names no form.
    pub fn of_this_run() -> Result<Self> {
        match env::var(VARIABLE).as_deref() {
            Err(env::VarError::NotPresent) | Ok("service") => Ok(Self::Service),
            Ok("record") => Ok(Self::Record),
            other => bail!("{VARIABLE} is service or record, and not {other:?}"),
        }
    }
}
