//! OTLP over HTTP (OTLP 1.11, "OTLP/HTTP").

use std::io::Read;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use prost::Message as _;
use tonic::body::Body;

use super::service::{MAX_RECEIVED_BYTES, MISDIRECTED, ProfilesService, Refusal};

/// Where profiles are sent.
const PATH: &str = "/v1development/profiles";
/// The only content type that is taken. A page of another site can't send it without asking first (CORS), and is not answered then.
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

pub(super) async fn answer(service: &ProfilesService, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if head.uri.path() != PATH {
        return error(StatusCode::NOT_FOUND, "only profiles are received here, at /v1development/profiles");
    }
    if head.method != Method::POST {
        return error(StatusCode::METHOD_NOT_ALLOWED, "profiles are sent by POST");
    }
    if head.headers.get(CONTENT_TYPE) != Some(&PROTOBUF) {
        return error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "profiles are received as application/x-protobuf");
    }
    let Ok(body) = Limited::new(body, MAX_RECEIVED_BYTES).collect().await else {
        return error(StatusCode::PAYLOAD_TOO_LARGE, "the body can't be read, or is longer than 4 MiB");
    };
    let encoding = head.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    let message = match decompress(encoding, body.to_bytes()) {
        Ok(message) => message,
        Err((status, reason)) => return error(status, reason),
    };
    match service.take(&head.headers, &message).await {
        Ok(response) => answer_with(StatusCode::OK, response.encode_to_vec()),
        Err(why) => refusal(why),
    }
}

pub(super) fn refusal(why: Refusal) -> Response<Body> {
    match why {
        Refusal::Invalid(reason) => error(StatusCode::BAD_REQUEST, &reason),
        Refusal::Misdirected => error(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED),
        Refusal::Busy => error(StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time"),
    }
}

fn decompress(encoding: Option<&[u8]>, body: Bytes) -> Result<Bytes, (StatusCode, &'static str)> {
    let read = |from: &mut dyn Read| {
        let mut message = Vec::new();
        let limit = MAX_RECEIVED_BYTES as u64 + 1;
        match from.take(limit).read_to_end(&mut message) {
            Ok(length) if length <= MAX_RECEIVED_BYTES => Ok(Bytes::from(message)),
            Ok(_) => Err((StatusCode::PAYLOAD_TOO_LARGE, "the message is longer than 4 MiB")),
            Err(_) => Err((StatusCode::BAD_REQUEST, "the body can't be decompressed")),
        }
    };
    match encoding {
        None | Some(b"identity") => Ok(body),
        Some(b"gzip") => read(&mut flate2::read::MultiGzDecoder::new(&*body)),
        Some(b"zstd") => match zstd::stream::read::Decoder::new(&*body) {
            Ok(mut decoder) => read(&mut decoder),
            Err(_) => Err((StatusCode::BAD_REQUEST, "the body can't be decompressed")),
        },
        Some(_) => Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "bodies are compressed by gzip or zstd")),
    }
}

/// An answer with a `google.rpc.Status`, as OTLP has it.
fn error(status: StatusCode, message: &str) -> Response<Body> {
    let body = tonic_types::pb::Status { code: 0, message: message.to_owned(), details: Vec::new() };
    answer_with(status, body.encode_to_vec())
}

fn answer_with(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
    response
}
