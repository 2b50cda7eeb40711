//! Maps an HTTP response to the outcome of a request (OTLP 1.11, "OTLP/HTTP Response").

use std::error::Error;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use http::response::Parts;
use prost::Message;

use crate::send::outcome::{SendOutcome, sanitized, with_error_chain};
use crate::send::refusal_text::{is_about_version, is_http_size_limit};
use crate::wire::{DEVELOPMENT_VERSION, ExportProfilesServiceResponse};

/// `body` is the response's body, or the error that reading it caused.
pub(super) fn from_response(head: &Parts, body: Result<Bytes, Box<dyn Error + Send + Sync>>) -> SendOutcome {
    let status = head.status;
    let body = match (body, status.is_success()) {
        (Ok(body), _) => body,
        (Err(error), true) => {
            let reason = with_error_chain("the answer cannot be read", error.as_ref());
            return SendOutcome::MalformedResponse { reason };
        }
        // The status is sufficient.
        (Err(_), false) => Bytes::new(),
    };
    if status.is_success() {
        return match ExportProfilesServiceResponse::decode(body) {
            Ok(response) => SendOutcome::from_response(response),
            Err(error) => {
                SendOutcome::MalformedResponse { reason: with_error_chain("the answer is none", &error) }
            }
        };
    }
    from_error_status(status, head, &body)
}

fn from_error_status(status: StatusCode, head: &Parts, body: &[u8]) -> SendOutcome {
    let message = message(body);
    let reason = format!("HTTP {}: {message}", status.as_u16());
    let retry = |may_have_arrived| SendOutcome::Retry {
        may_have_arrived,
        answered: true,
        delay: retry_after(head),
        reason: reason.clone(),
    };
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => retry(false),
        // From a proxy without a valid upstream response: the receiver may have the request.
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => retry(true),
        status if is_http_size_limit(status, &message) => SendOutcome::TooLarge { reason },
        StatusCode::BAD_REQUEST if is_about_version(&message) => {
            SendOutcome::Incompatible { reason: format!("we send {DEVELOPMENT_VERSION}; it says: {reason}") }
        }
        _ => SendOutcome::Rejected { reason },
    }
}

/// The receiver's reason for a refusal: a `google.rpc.Status`, or text from a proxy.
fn message(body: &[u8]) -> String {
    let status = tonic_types::Status::decode(body).ok().filter(|status| !status.message.is_empty());
    sanitized(&status.map_or_else(|| String::from_utf8_lossy(body).into_owned(), |status| status.message))
}

/// `Retry-After`: a number of seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(head: &Parts) -> Option<Duration> {
    let text = head.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            // A date in the past means no wait.
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(text: &str) -> Option<Duration> {
        retry_after(&http::Response::builder().header(RETRY_AFTER, text).body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_wait_is_asked_for_in_seconds_or_by_a_date() {
        assert_eq!(delay("120"), Some(Duration::from_secs(120)));
        assert_eq!(delay("Fri, 31 Dec 1999 23:59:59 GMT"), Some(Duration::ZERO));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        let wait = delay(&soon).unwrap().as_secs();
        assert!((50..=60).contains(&wait), "{wait}");
        for nonsense in ["", "-1", "1.5", "soon", "99999999999999999999999"] {
            assert_eq!(delay(nonsense), None, "{nonsense}");
        }
    }
}
