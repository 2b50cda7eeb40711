//! What an answer, or its absence, means for a request.

use std::error::Error;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::super::exporter::Verdict;
use super::exchange::Exchange;
use super::{DEVELOPMENT_VERSION, DEVELOPMENT_VERSION_KEY};
use crate::wire::ExportProfilesServiceResponse;

/// Longer texts of a receiver are cut before they are shown.
const MAX_REASON_CHARS: usize = 512;

pub(super) fn of_response(response: ExportProfilesServiceResponse) -> Verdict {
    match response.partial_success {
        Some(partial) if partial.rejected_profiles != 0 || !partial.error_message.is_empty() => {
            Verdict::PartlyRejected {
                profiles: partial.rejected_profiles,
                message: readable(&partial.error_message),
            }
        }
        _ => Verdict::Accepted,
    }
}

/// The library's `status` in the light of what is known about the exchange.
pub(super) fn of_error(status: &Status, exchange: &Exchange) -> Verdict {
    match exchange.status() {
        // It says to have the request, in an answer that makes no sense.
        Some(Code::Ok) => Verdict::Garbled { reason: reason(status) },
        Some(_) => of_refusal(status),
        None => of_silence(status, exchange.has_begun()),
    }
}

/// The receiver has refused.
fn of_refusal(status: &Status) -> Verdict {
    let retry = |may_have_arrived| Verdict::Retry {
        may_have_arrived,
        delay: asked_delay(status),
        reason: reason(status),
    };
    match status.code() {
        Code::Unavailable | Code::Aborted | Code::OutOfRange => retry(false),
        // By their definitions, the request may have been carried out.
        Code::DeadlineExceeded | Code::Cancelled | Code::DataLoss => retry(true),
        Code::ResourceExhausted if asked_delay(status).is_some() => retry(false),
        Code::InvalidArgument if status.message().contains(DEVELOPMENT_VERSION_KEY) => {
            let reason = format!("we send {DEVELOPMENT_VERSION}; it says: {}", reason(status));
            Verdict::Incompatible { reason }
        }
        _ => Verdict::Rejected { reason: reason(status) },
    }
}

/// No status of a receiver came.
fn of_silence(status: &Status, has_begun: bool) -> Verdict {
    let connection_failed = status.source().is_some();
    match status.code() {
        // `Unavailable` is an HTTP status instead of one of gRPC, as of a proxy in between.
        code if connection_failed || !has_begun || code == Code::Unavailable => {
            Verdict::Retry { may_have_arrived: has_begun, delay: None, reason: reason(status) }
        }
        // So are these.
        Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented => {
            Verdict::Rejected { reason: reason(status) }
        }
        _ => Verdict::Garbled { reason: reason(status) },
    }
}

fn asked_delay(status: &Status) -> Option<std::time::Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// The status and what caused it, outermost first.
fn reason(status: &Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    for error in sources(status) {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    readable(&text)
}

fn sources(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let mut next = status.source();
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// Without control characters and not too long: it comes from somebody else.
fn readable(text: &str) -> String {
    text.chars().take(MAX_REASON_CHARS).flat_map(char::escape_debug).collect()
}
