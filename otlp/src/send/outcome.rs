//! The outcome of one attempt to send a request.

use std::error::Error;
use std::time::Duration;

use sidewinder_text::escaped;

use super::notes::PartialSuccess;
use crate::wire::ExportProfilesServiceResponse;

/// The maximum length of a receiver's text that is shown.
const MAX_REASON_CHARS: usize = 512;

/// The outcome of one attempt to send a request.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum SendOutcome {
    /// The receiver accepted it.
    Accepted,
    /// The receiver accepted it except for some of its profiles, or gave a warning.
    PartlyRejected(PartialSuccess),
    /// The receiver refused it; not retryable.
    Rejected { reason: String },
    /// The receiver refused it because of its size.
    TooLarge { reason: String },
    /// The file could not be written.
    WriteFailed { reason: String },
    /// The receiver uses another version of the signal.
    Incompatible { reason: String },
    /// The receiver sent an invalid response.
    MalformedResponse { reason: String },
    /// The attempt failed, but a retry may succeed.
    Retry {
        /// Whether the receiver may have it anyway.
        may_have_arrived: bool,
        /// Whether the receiver or a proxy asked for a retry; if not, there was no response.
        answered: bool,
        /// The delay that the receiver asked for.
        delay: Option<Duration>,
        reason: String,
    },
}

impl SendOutcome {
    /// Why the receiver doesn't, or may not, have all of it.
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

    /// There was no response.
    pub(super) fn no_response(may_have_arrived: bool, reason: impl Into<String>) -> Self {
        Self::Retry { may_have_arrived, answered: false, delay: None, reason: reason.into() }
    }

    /// The outcome if a receiver's response says that it accepted the request.
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

/// `text`, followed by an error and its causes, outermost first.
pub(super) fn with_error_chain(text: &str, error: &(dyn Error + 'static)) -> String {
    sanitized(&format!("{text}: {}", chain(error)))
}

/// An error and its causes, outermost first.
pub(super) fn error_chain(error: &(dyn Error + 'static)) -> String {
    sanitized(&chain(error))
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let errors = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    // The message of this one is its source's.
    let errors = errors.filter(|error| !error.is::<tonic::ConnectError>());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Text from outside as it is shown, and not too long.
pub(super) fn sanitized(text: &str) -> String {
    let end = text.char_indices().nth(MAX_REASON_CHARS).map_or(text.len(), |(end, _)| end);
    escaped(text.get(..end).unwrap_or(text)).into_owned()
}
