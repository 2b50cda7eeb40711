//! Maps a gRPC response, or its absence, to the outcome of a request.

use std::error::Error;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::exchange::Exchange;
use crate::send::outcome::{SendOutcome, sanitized, with_error_chain};
use crate::send::refusal_text::{is_about_version, is_grpc_size_limit};
use crate::wire::DEVELOPMENT_VERSION;

/// Interprets the library's `status`, given the recorded exchange.
pub(super) fn from_error(status: &Status, exchange: &Exchange) -> SendOutcome {
    match exchange.status() {
        // The receiver says that it accepted the request, but its response isn't valid.
        Some(Code::Ok) => SendOutcome::MalformedResponse { reason: reason(status) },
        Some(_) => from_status(status),
        None => without_status(status, exchange.has_started()),
    }
}

/// The receiver refused the request.
fn from_status(status: &Status) -> SendOutcome {
    let retry = |may_have_arrived| SendOutcome::Retry {
        may_have_arrived,
        answered: true,
        delay: retry_info_delay(status),
        reason: reason(status),
    };
    match status.code() {
        code if is_grpc_size_limit(code, status.message()) => {
            SendOutcome::TooLarge { reason: reason(status) }
        }
        Code::Unavailable | Code::Aborted | Code::OutOfRange => retry(false),
        // By the definition of these codes, the request may have been processed.
        Code::DeadlineExceeded | Code::Cancelled | Code::DataLoss => retry(true),
        Code::ResourceExhausted if retry_info_delay(status).is_some() => retry(false),
        Code::InvalidArgument if is_about_version(status.message()) => {
            let reason = format!("we send {DEVELOPMENT_VERSION}; it says: {}", reason(status));
            SendOutcome::Incompatible { reason }
        }
        _ => SendOutcome::Rejected { reason: reason(status) },
    }
}

/// The receiver sent no status.
fn without_status(status: &Status, has_begun: bool) -> SendOutcome {
    let connection_failed = status.source().is_some();
    match status.code() {
        // The library maps an HTTP status, for example from a proxy, to `Unavailable`.
        code if connection_failed || !has_begun || code == Code::Unavailable => {
            SendOutcome::no_response(has_begun, reason(status))
        }
        // Likewise.
        Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented => {
            SendOutcome::Rejected { reason: reason(status) }
        }
        _ => SendOutcome::MalformedResponse { reason: reason(status) },
    }
}

fn retry_info_delay(status: &Status) -> Option<std::time::Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// The status with the receiver's message, or with the causes for which the library made it, outermost first.
fn reason(status: &Status) -> String {
    let code = format!("{:?}", status.code());
    match status.source() {
        // Its message only repeats one of the causes.
        Some(cause) => with_error_chain(&code, cause),
        None => sanitized(&format!("{code}: {}", status.message())),
    }
}
