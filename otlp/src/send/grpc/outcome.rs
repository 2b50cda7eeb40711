//! What an answer, or its absence, means for a request.

use std::error::Error;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::exchange::Exchange;
use crate::send::credentials::{DEVELOPMENT_VERSION, DEVELOPMENT_VERSION_KEY};
use crate::send::outcome::{SendOutcome, with_error_chain};

/// How servers say that a message is beyond their limit: those of Go, Java and Rust. No status is
/// reserved for it.
const TOO_LARGE: [&str; 3] = ["larger than max", "exceeds maximum", "message length too large"];

/// The library's `status` in the light of what is known about the exchange.
pub(super) fn from_error(status: &Status, exchange: &Exchange) -> SendOutcome {
    match exchange.status() {
        // It says to have the request, in an answer that makes no sense.
        Some(Code::Ok) => SendOutcome::MalformedResponse { reason: reason(status) },
        Some(_) => from_status(status),
        None => without_status(status, exchange.has_started()),
    }
}

/// The receiver has refused.
fn from_status(status: &Status) -> SendOutcome {
    let retry = |may_have_arrived| SendOutcome::Retry {
        may_have_arrived,
        answered: true,
        delay: retry_info_delay(status),
        reason: reason(status),
    };
    match status.code() {
        Code::ResourceExhausted | Code::OutOfRange if is_too_large(status.message()) => {
            SendOutcome::TooLarge { reason: reason(status) }
        }
        Code::Unavailable | Code::Aborted | Code::OutOfRange => retry(false),
        // By their definitions, the request may have been carried out.
        Code::DeadlineExceeded | Code::Cancelled | Code::DataLoss => retry(true),
        Code::ResourceExhausted if retry_info_delay(status).is_some() => retry(false),
        Code::InvalidArgument if status.message().contains(DEVELOPMENT_VERSION_KEY) => {
            let reason = format!("we send {DEVELOPMENT_VERSION}; it says: {}", reason(status));
            SendOutcome::Incompatible { reason }
        }
        _ => SendOutcome::Rejected { reason: reason(status) },
    }
}

/// No status of a receiver came.
fn without_status(status: &Status, has_begun: bool) -> SendOutcome {
    let connection_failed = status.source().is_some();
    match status.code() {
        // `Unavailable` is an HTTP status instead of one of gRPC, as of a proxy in between.
        code if connection_failed || !has_begun || code == Code::Unavailable => {
            SendOutcome::no_response(has_begun, reason(status))
        }
        // So are these.
        Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented => {
            SendOutcome::Rejected { reason: reason(status) }
        }
        _ => SendOutcome::MalformedResponse { reason: reason(status) },
    }
}

fn retry_info_delay(status: &Status) -> Option<std::time::Duration> {
    status.get_details_retry_info()?.retry_delay
}

fn is_too_large(message: &str) -> bool {
    TOO_LARGE.iter().any(|text| message.contains(text))
}

/// The status and what caused it, outermost first.
fn reason(status: &Status) -> String {
    with_error_chain(&format!("{:?}: {}", status.code(), status.message()), status.source())
}
