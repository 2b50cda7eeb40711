//! How one attempt to send a request went.

use std::error::Error;
use std::time::Duration;

use super::notes::PartialSuccess;
use crate::wire::ExportProfilesServiceResponse;

/// Longer texts of a receiver are cut before they are shown.
const MAX_REASON_CHARS: usize = 512;

/// How one attempt to send a request went.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum SendOutcome {
    /// The receiver has it.
    Accepted,
    /// The receiver has it without some of its profiles, or has a warning.
    PartlyRejected(PartialSuccess),
    /// The receiver does not want it, now or later.
    Rejected { reason: String },
    /// The receiver does not want it at this size.
    TooLarge { reason: String },
    /// The file could not be written.
    WriteFailed { reason: String },
    /// The receiver speaks another version of the signal.
    Incompatible { reason: String },
    /// The receiver answered, but not in a way that could be understood.
    MalformedResponse { reason: String },
    /// Another attempt may have more success.
    Retry {
        /// Whether the receiver may have it nevertheless.
        may_have_arrived: bool,
        /// Whether somebody has asked for another attempt; if not, there was no answer.
        answered: bool,
        /// What the receiver asked for.
        delay: Option<Duration>,
        reason: String,
    },
}

impl SendOutcome {
    /// Why the receiver has not, or may not have, all of it.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Accepted | Self::PartlyRejected(_) => None,
            Self::Rejected { reason }
            | Self::TooLarge { reason }
            | Self::WriteFailed { reason }
            | Self::Incompatible { reason }
            | Self::MalformedResponse { reason }
            | Self::Retry { reason, .. } => Some(reason),
        }
    }

    /// No answer came.
    pub(super) fn no_response(may_have_arrived: bool, reason: impl Into<String>) -> Self {
        Self::Retry { may_have_arrived, answered: false, delay: None, reason: reason.into() }
    }

    /// The answer of a receiver that says to have the request.
    pub(super) fn from_response(response: ExportProfilesServiceResponse) -> Self {
        match response.partial_success {
            Some(partial) if partial.rejected_profiles != 0 || !partial.error_message.is_empty() => {
                Self::PartlyRejected(PartialSuccess {
                    rejected_profiles: partial.rejected_profiles,
                    message: sanitized(&partial.error_message),
                })
            }
            _ => Self::Accepted,
        }
    }
}

/// `text`, then what caused it, outermost first, each cause that is not in the text already.
pub(super) fn with_error_chain(text: &str, cause: Option<&(dyn Error + 'static)>) -> String {
    let mut whole = text.to_owned();
    let mut next = cause;
    while let Some(error) = next {
        let cause = error.to_string();
        if !whole.contains(&cause) {
            whole.push_str(if whole.is_empty() { "" } else { ": " });
            whole.push_str(&cause);
        }
        next = error.source();
    }
    sanitized(&whole)
}

/// Without control characters and not too long: it comes from somebody else.
pub(super) fn sanitized(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars().take(MAX_REASON_CHARS) {
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}
