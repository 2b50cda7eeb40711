//! Frames whose name is words of the profiler instead of a function of the target.

use std::fmt;
use std::sync::Arc;

/// What a frame stands for whose name is words of the profiler.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Marker {
    /// The missing frames at the root of a stack. Not code.
    Truncated(Arc<Truncation>),
    /// The lock that a thread waits for, by its ID. Not code.
    Lock(Arc<str>),
    /// Code without a known name, or frames that are missing in the middle of a stack: only the words are known.
    Words,
}

impl Marker {
    /// A truncation by the loss of frames about which only these words are known.
    #[must_use]
    pub fn truncated(words: &str) -> Self {
        let words: Arc<str> = words.into();
        Self::Truncated(Truncation { reason: Arc::clone(&words), summary: words, is_loss: true }.into())
    }

    /// The name of the frame in output for people; `None` if the words are known to the frame alone.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        match self {
            Self::Truncated(truncation) => Some(truncation.to_string()),
            Self::Lock(id) => Some(format!("[lock {id}]")),
            Self::Words => None,
        }
    }

    /// The name of the frame in OTLP, if it is not the frame's own.
    #[must_use]
    pub fn wire_name(&self) -> Option<String> {
        match self {
            Self::Truncated(truncation) => Some(truncation.wire_name()),
            Self::Lock(_) | Self::Words => None,
        }
    }
}

/// Why the frames at the root of a stack are missing. It is displayed in words: `[truncated: no unwind information]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Truncation {
    /// The identifier in OTLP (`sidewinder.stack.outcome`): `no_rule`.
    pub reason: Arc<str>,
    /// The same in words.
    pub summary: Arc<str>,
    /// Whether frames were lost, and not left out on purpose.
    pub is_loss: bool,
}

impl Truncation {
    /// The name of the frame in OTLP: `[truncated: no_rule]`.
    #[must_use]
    pub fn wire_name(&self) -> String {
        self.bracketed(&self.reason)
    }

    fn bracketed(&self, text: &str) -> String {
        if self.is_loss { format!("[truncated: {text}]") } else { format!("[{text}]") }
    }
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bracketed(&self.summary))
    }
}
