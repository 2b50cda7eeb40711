//! How the command ends.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use crate::causes::ErrorChain;
use crate::sampling::SamplingError;

/// The codes that users build on; 0 is success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ExitCause {
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
    pub(crate) cause: ExitCause,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    next_step: Option<&'static str>,
}

impl Failure {
    pub(crate) fn new(cause: ExitCause, what: impl Into<String>) -> Self {
        Self { cause, what: what.into(), source: None, next_step: None }
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What to do now.
    pub(crate) const fn with_next_step(mut self, next_step: &'static str) -> Self {
        self.next_step = Some(next_step);
        self
    }

    /// The same failure under another exit code.
    pub(crate) fn with_cause(self, cause: ExitCause) -> Self {
        Self { cause, ..self }
    }

    /// A failure at something else than the profile itself.
    pub(crate) fn runtime(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ExitCause::Runtime, what).with_source(source)
    }

    /// The exit code.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.cause as u8)
    }
}

impl From<SamplingError> for Failure {
    fn from(error: SamplingError) -> Self {
        let (cause, next_step) = match &error {
            SamplingError::Load(load) => (ExitCause::Privilege, Some(load.next_step())),
            SamplingError::NoPod(_) => (ExitCause::Privilege, None),
            SamplingError::NoProcess(_) => (
                ExitCause::Runtime,
                Some(
                    "look it up with `pgrep -a NAME`, on this side of a container's border; or use --comm NAME",
                ),
            ),
            SamplingError::Rate { .. } => {
                (ExitCause::Usage, Some("ask for fewer samples a second, or raise the limit with sysctl"))
            }
            SamplingError::Scan(_) | SamplingError::Thread(_) => {
                (ExitCause::Runtime, Some("see what is allowed here with `sidewinder check`"))
            }
            SamplingError::Budget(_) => (ExitCause::Usage, Some("raise memory_limit_mib")),
        };
        let failure = Self::new(cause, "can't sample").with_source(error);
        Self { next_step, ..failure }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if let Some(source) = &self.source {
            write!(f, "{}", ErrorChain { message: &self.what, source: Some(&**source) })?;
        }
        self.next_step.map_or(Ok(()), |step| write!(f, "\n  next: {step}"))
    }
}
