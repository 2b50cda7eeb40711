//! What a receiver says only in the text of a refusal.
//!
//! Everything else follows from types: the status of gRPC or HTTP, `RetryInfo` and `Retry-After`, and the partial success. Two
//! refusals have neither a status nor a detail of their own (`google.rpc.Status` with an empty `details`):
//!
//! - The request exceeds the receiver's limit. gRPC has no status for it: `RESOURCE_EXHAUSTED` is also an exhausted quota, and
//!   `OUT_OF_RANGE` can be retried. HTTP has 413, which Collectors don't send: reading the body fails there, with the same status as a
//!   malformed body. Without the text, a request would be dropped instead of split, or sent again as it is.
//! - The receiver reads another version of the signal. OTLP leaves its form open; Collectors send what any invalid request gets.
//!   Without the text, its events would count as `rejected`, and no log would say what to update.

use http::StatusCode;
use tonic::Code;

use crate::wire::DEVELOPMENT_VERSION_KEY;

/// Of `RESOURCE_EXHAUSTED`, in lower case.
const GRPC_SIZE_LIMITS: [&str; 3] = [
    // grpc-go 1.83 to 1.85 (`rpc_util.go`), which Collectors 0.159 to 0.165 are built with; gRPC's C++ core and grpc-js too.
    "received message larger than max",
    // grpc-go, decompressed: `message after decompression` or `received message after decompression`.
    "message after decompression larger than max",
    // grpc-java 1.x (`MessageDeframer`); decompressed: `Decompressed gRPC message exceeds maximum size`.
    "grpc message exceeds maximum size",
];

/// Of `OUT_OF_RANGE`: tonic 0.14 (`codec/decode.rs`), `Error, decoded message length too large: found N bytes, the limit is: N bytes`.
const TONIC_SIZE_LIMIT: &str = "message length too large";

/// Of status 400: Go's `http.MaxBytesReader` (Go 1.26, `net/http/request.go`), by which Collectors 0.159 to 0.165 limit a body before and
/// after decompression.
const HTTP_SIZE_LIMIT: &str = "request body too large";

/// Whether a refusal by gRPC is one of the size of the request.
pub(super) fn is_grpc_size_limit(code: Code, message: &str) -> bool {
    match code {
        Code::ResourceExhausted => {
            let message = message.to_ascii_lowercase();
            GRPC_SIZE_LIMITS.iter().any(|text| message.contains(text))
        }
        Code::OutOfRange => message.contains(TONIC_SIZE_LIMIT),
        _ => false,
    }
}

/// Whether a refusal by HTTP is one of the size of the request.
pub(super) fn is_http_size_limit(status: StatusCode, message: &str) -> bool {
    status == StatusCode::PAYLOAD_TOO_LARGE
        || (status == StatusCode::BAD_REQUEST && message.contains(HTTP_SIZE_LIMIT))
}

/// Whether the message of an invalid request is about the version of the signal: it names the header, which Collectors 0.163 to 0.165
/// do in lower case (`pdata/internal/otlp/profiles_version.go`): `invalid or unsupported otlp-profiles-development-version: supported
/// version is 1`.
pub(super) fn is_about_version(message: &str) -> bool {
    message.to_ascii_lowercase().contains(DEVELOPMENT_VERSION_KEY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_limit_of_each_library_is_recognized_with_its_status_only() {
        for (code, other, message) in [
            (
                Code::ResourceExhausted,
                Code::OutOfRange,
                "grpc: received message larger than max (4194305 vs. 4194304)",
            ),
            (
                Code::ResourceExhausted,
                Code::OutOfRange,
                "grpc: received message after decompression larger than max 4194304",
            ),
            (
                Code::ResourceExhausted,
                Code::OutOfRange,
                "SERVER: Received message larger than max (4194305 vs. 4194304)",
            ),
            (
                Code::ResourceExhausted,
                Code::OutOfRange,
                "Decompressed gRPC message exceeds maximum size 4194304",
            ),
            (
                Code::OutOfRange,
                Code::ResourceExhausted,
                "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
            ),
        ] {
            assert!(is_grpc_size_limit(code, message), "{code:?}: {message}");
            assert!(!is_grpc_size_limit(other, message), "{other:?}: {message}");
        }
    }

    /// The receiver couldn't send its own message.
    #[test]
    fn a_response_that_is_too_large_is_no_limit_of_requests() {
        let message = "grpc: trying to send message larger than max (5 vs. 4)";
        assert!(!is_grpc_size_limit(Code::ResourceExhausted, message));
    }

    #[test]
    fn a_malformed_body_is_no_size_limit() {
        assert!(is_http_size_limit(StatusCode::PAYLOAD_TOO_LARGE, ""));
        assert!(is_http_size_limit(StatusCode::BAD_REQUEST, "http: request body too large"));
        assert!(!is_http_size_limit(StatusCode::BAD_REQUEST, "proto: illegal wireType 7"));
    }
}
