//! What `sidewinder check` finds out about a runtime in a process.

use sidewinder_text::ExternalText;

/// What was found out about a runtime in a process.
#[derive(Debug)]
pub struct Inspection {
    /// Its version, if the process says it better than its file.
    pub version: Option<String>,
    /// Whether its frames can be found.
    pub frames: Finding,
    /// Whether the names of its functions can be read.
    pub names: Finding,
    /// The next step, unless both can.
    pub next: Option<&'static str>,
}

impl Inspection {
    /// Neither frames nor names can be read, for one reason.
    pub fn limited(why: impl Into<ExternalText<'static>>, next: &'static str) -> Self {
        let finding = Finding::limited(why);
        Self { version: None, frames: finding.clone(), names: finding, next: Some(next) }
    }
}

/// Whether something can be read, and what was read or why it can't be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Whether it can.
    pub is_ok: bool,
    /// In words, which may contain content of the process.
    pub detail: ExternalText<'static>,
}

impl Finding {
    /// It can be read.
    pub fn ok(detail: impl Into<ExternalText<'static>>) -> Self {
        Self { is_ok: true, detail: detail.into() }
    }

    /// It can't be read.
    pub fn limited(detail: impl Into<ExternalText<'static>>) -> Self {
        Self { is_ok: false, detail: detail.into() }
    }
}

/// What is said of a build of a runtime that is not supported.
#[derive(Clone, Copy, Debug)]
pub struct Unsupported {
    /// What it is.
    pub why: &'static str,
    /// The next step.
    pub next: fn() -> String,
}
