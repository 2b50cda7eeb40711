//! How the command ends.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use crate::causes::Causes;
use crate::sampling::SamplingError;

/// The codes that users build on; 0 is success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Cause {
    /// Something went wrong on the way.
    Runtime = 1,
    /// The command line or the configuration.
    Usage = 2,
    /// A privilege or the kernel.
    Privilege = 3,
    /// `record -- COMMAND`: we failed, not the command.
    RecordFailed = 125,
    /// `record -- COMMAND`: the command can't be executed.
    NotExecutable = 126,
    /// `record -- COMMAND`: there is no such command.
    NotFound = 127,
}

/// Why the command ends without success: what failed, why, and what to do now.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    next_step: Option<&'static str>,
}

impl Failure {
    pub(crate) fn new(cause: Cause, what: impl Into<String>) -> Self {
        Self { cause, what: what.into(), source: None, next_step: None }
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What to do now.
    pub(crate) const fn then(mut self, next_step: &'static str) -> Self {
        self.next_step = Some(next_step);
        self
    }

    /// The same failure under another exit code.
    pub(crate) fn with_cause(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// A failure at something else than the profile itself.
    pub(crate) fn runtime(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(Cause::Runtime, what).because(source)
    }

    /// The exit code.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.cause as u8)
    }
}

impl From<SamplingError> for Failure {
    fn from(error: SamplingError) -> Self {
        let (cause, next_step) = match &error {
            SamplingError::Load(load) => (Cause::Privilege, Some(load.next_step())),
            SamplingError::NoPod(_) => (Cause::Privilege, None),
            SamplingError::NoProcess(_) => (
                Cause::Runtime,
                Some(
                    "look it up with `pgrep -a NAME`, on this side of a container's border; or use --comm NAME",
                ),
            ),
            SamplingError::Rate { .. } => {
                (Cause::Usage, Some("ask for fewer samples a second, or raise the limit with sysctl"))
            }
            SamplingError::Scan(_) | SamplingError::Thread(_) => {
                (Cause::Runtime, Some("see what is allowed here with `sidewinder check`"))
            }
            SamplingError::Budget(_) => (Cause::Usage, Some("raise memory_limit_mib")),
        };
        let failure = Self::new(cause, "can't sample").because(error);
        Self { next_step, ..failure }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if let Some(source) = &self.source {
            write!(f, "{}", Causes { said: &self.what, of: Some(&**source) })?;
        }
        self.next_step.map_or(Ok(()), |step| write!(f, "\n  next: {step}"))
    }
}
