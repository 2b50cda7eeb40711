//! Exit codes, and the failures that lead to them.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use sidewinder_text::ExternalText;

use crate::causes::Causes;

/// The documented exit codes; 0 is success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ExitCause {
    /// Something failed at run time.
    Runtime = 1,
    /// The command line or the configuration is not valid.
    Usage = 2,
    /// A privilege or a kernel feature is missing.
    Privilege = 3,
    /// `record -- COMMAND`: Sidewinder failed, not the command.
    RecordFailed = 125,
    /// `record -- COMMAND`: the command can't be executed.
    NotExecutable = 126,
    /// `record -- COMMAND`: there is no such command.
    NotFound = 127,
}

/// Why Sidewinder ends without success: what failed, why, and the next step.
#[derive(Debug)]
pub struct Failure {
    /// What it makes of the exit code.
    pub cause: ExitCause,
    message: String,
    /// Lines that follow the message.
    details: Vec<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
    next_step: Option<&'static str>,
}

impl Failure {
    /// A failure with this message, which may contain text from outside.
    pub fn new(cause: ExitCause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into(), details: Vec::new(), source: None, next_step: None }
    }

    /// Adds the error behind it, whose causes follow the message.
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds a line for each of these after the message.
    pub fn with_details(mut self, details: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        self.details.extend(details.into_iter().map(|detail| detail.to_string()));
        self
    }

    /// Adds the next step for the user.
    pub const fn with_next_step(mut self, next_step: &'static str) -> Self {
        self.next_step = Some(next_step);
        self
    }

    /// The same failure with another exit code.
    pub fn with_cause(self, cause: ExitCause) -> Self {
        Self { cause, ..self }
    }

    /// A failure at run time.
    pub fn runtime(message: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ExitCause::Runtime, message).with_source(source)
    }

    /// The exit code.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.cause as u8)
    }
}

/// What is left of a [`Failure`] for those that show it later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureReport {
    /// What failed and why, in several lines. Text from outside is escaped.
    pub what: String,
    /// What the user can do now.
    pub next_step: Option<&'static str>,
}

/// In several lines, the next step in the last.
impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.next_step.map_or(Ok(()), |step| write!(f, "\n  next: {step}"))
    }
}

impl Failure {
    /// What is shown of it later.
    pub fn report(&self) -> FailureReport {
        FailureReport { what: self.what("\n"), next_step: self.next_step }
    }

    /// What failed and why: everything but the next step. Any of it may contain text from outside.
    fn what(&self, detail_start: &str) -> String {
        let mut what = ExternalText::new(&self.message).to_string();
        if let Some(source) = &self.source {
            what += &ExternalText::from(Causes(Some(&**source)).to_string()).to_string();
        }
        for detail in &self.details {
            what += detail_start;
            what += &ExternalText::new(detail).to_string();
        }
        what
    }
}

impl fmt::Display for Failure {
    /// In several lines; in the alternate form (`{:#}`) in one, for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return self.report().fmt(f);
        }
        f.write_str(&self.what("; "))?;
        self.next_step.map_or(Ok(()), |step| write!(f, "; next: {step}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_adds_no_line_and_no_escape_sequence() {
        let failure =
            Failure::runtime("can't read /tmp/\u{1b}[2Ja\nok", std::io::Error::other("\u{9b}1m\nok"))
                .with_details(["one\u{7}", "two"])
                .with_next_step("try again");
        assert_eq!(
            failure.to_string(),
            "can't read /tmp/\\u{1b}[2Ja\\u{a}ok: \\u{9b}1m\\u{a}ok\none\\u{7}\ntwo\n  next: try again"
        );
        let line = format!("{failure:#}");
        assert!(line.ends_with("one\\u{7}; two; next: try again") && !line.contains('\n'), "{line}");
    }
}
