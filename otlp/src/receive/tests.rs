use std::io::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use ::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;

use super::*;
use crate::wire::{EXPORT_METHOD, ExportProfilesServiceResponse};

const PATH: &str = "/v1development/profiles";
const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const GRPC: [(&str, &str); 2] = [("content-type", "application/grpc"), ("te", "trailers")];

/// A service that refuses the message `bad`, takes a part of `partial`, and keeps the others.
fn service() -> (ProfilesService, Arc<Mutex<Vec<Vec<u8>>>>) {
    let kept = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let taken = Arc::clone(&kept);
    let sink = move |message: &[u8]| match message {
        b"bad" => Err("it is bad".to_owned()),
        b"partial" => Ok(Taken { rejected_profiles: 2, reason: "enough".to_owned() }),
        message => {
            taken.lock().unwrap().push(message.to_vec());
            Ok(Taken::default())
        }
    };
    (ProfilesService::new(Arc::new(sink)), kept)
}

fn request(path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Request<Body> {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::new(Full::from(body.into()))).unwrap()
}

/// A message of gRPC: whether it is compressed, its length, itself.
fn framed(is_compressed: bool, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[u8::from(is_compressed)][..], &length, message].concat()
}

fn gzip(message: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(message).unwrap();
    encoder.finish().unwrap()
}

async fn http_answer(service: &ProfilesService, request: Request<Body>) -> (StatusCode, Bytes) {
    let (head, body) = service.answer(request).await.into_parts();
    (head.status, body.collect().await.unwrap().to_bytes())
}

/// The status of gRPC, and the message.
async fn grpc_answer(service: &ProfilesService, request: Request<Body>) -> (String, Bytes) {
    let (head, body) = service.answer(request).await.into_parts();
    assert_eq!(head.status, StatusCode::OK, "gRPC has its own status");
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let status = head.headers.get("grpc-status").or(trailers.get("grpc-status")).unwrap();
    (status.to_str().unwrap().to_owned(), body.to_bytes())
}

#[tokio::test]
async fn messages_arrive_by_http_in_each_encoding() {
    let (service, kept) = service();
    let zstd = zstd::encode_all(&b"three"[..], 1).unwrap();
    for (encoding, body) in [("identity", b"one".to_vec()), ("gzip", gzip(b"two")), ("zstd", zstd)] {
        let request = request(PATH, &[PROTOBUF, ("content-encoding", encoding)], body);
        assert_eq!(http_answer(&service, request).await, (StatusCode::OK, Bytes::new()), "{encoding}");
    }
    assert_eq!(*kept.lock().unwrap(), [&b"one"[..], b"two", b"three"]);
    let (status, body) = http_answer(&service, request(PATH, &[PROTOBUF], "partial")).await;
    let partial = ExportProfilesServiceResponse::decode(body).unwrap().partial_success.unwrap();
    assert_eq!((status, partial.rejected_profiles, &*partial.error_message), (StatusCode::OK, 2, "enough"));
}

#[tokio::test]
async fn http_says_what_is_wrong_with_a_request() {
    let (service, kept) = service();
    let zeros = vec![0; MAX_RECEIVED_BYTES + 1];
    let version = ("otlp-profiles-development-version", "2");
    for (path, headers, body, expected) in [
        ("/v1/traces", &[PROTOBUF][..], b"x".to_vec(), 404),
        (PATH, &[("content-type", "application/json")], b"{}".to_vec(), 415),
        (PATH, &[], b"x".to_vec(), 415),
        (PATH, &[PROTOBUF, ("content-encoding", "br")], b"x".to_vec(), 415),
        (PATH, &[PROTOBUF, ("content-encoding", "gzip")], b"x".to_vec(), 400),
        (PATH, &[PROTOBUF, ("content-encoding", "gzip")], gzip(&zeros), 413),
        (PATH, &[PROTOBUF, ("content-encoding", "zstd")], zstd::encode_all(&*zeros, 1).unwrap(), 413),
        (PATH, &[PROTOBUF], zeros.clone(), 413),
        (PATH, &[PROTOBUF], b"bad".to_vec(), 400),
        (PATH, &[PROTOBUF, version], b"x".to_vec(), 400),
    ] {
        let (status, body) = http_answer(&service, request(path, headers, body)).await;
        assert_eq!(status.as_u16(), expected, "{path} {headers:?}");
        let message = tonic_types::pb::Status::decode(body).unwrap().message;
        assert!(!message.is_empty());
        assert!(!headers.contains(&version) || message.contains(version.0), "{message}");
    }
    let (mut parts, body) = request(PATH, &[PROTOBUF], "").into_parts();
    parts.method = ::http::Method::GET;
    assert_eq!(http_answer(&service, Request::from_parts(parts, body)).await.0.as_u16(), 405);
    assert!(kept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn messages_arrive_by_grpc_and_get_its_codes() {
    let (service, kept) = service();
    let compressed = |encoding| [GRPC[0], GRPC[1], ("grpc-encoding", encoding)];
    let zstd = zstd::encode_all(&b"three"[..], 1).unwrap();
    for (headers, body) in [
        (&GRPC[..], framed(false, b"one")),
        (&compressed("gzip"), framed(true, &gzip(b"two"))),
        (&compressed("zstd"), framed(true, &zstd)),
    ] {
        let (status, answer) = grpc_answer(&service, request(EXPORT_METHOD, headers, body)).await;
        assert_eq!((&*status, &*answer), ("0", &framed(false, b"")[..]), "{headers:?}");
    }
    assert_eq!(*kept.lock().unwrap(), [&b"one"[..], b"two", b"three"]);

    let (_, answer) = grpc_answer(&service, request(EXPORT_METHOD, &GRPC, framed(false, b"partial"))).await;
    let partial = ExportProfilesServiceResponse::decode(&answer[5..]).unwrap().partial_success.unwrap();
    assert_eq!((partial.rejected_profiles, &*partial.error_message), (2, "enough"));

    let zeros = vec![0; MAX_RECEIVED_BYTES + 1];
    let [invalid_argument, unimplemented] = ["3", "12"];
    let traces = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let version = [GRPC[0], GRPC[1], ("otlp-profiles-development-version", "2")];
    for (path, headers, body, expected) in [
        (EXPORT_METHOD, &GRPC[..], framed(false, b"bad"), invalid_argument),
        (EXPORT_METHOD, &version, framed(false, b"x"), invalid_argument),
        (traces, &GRPC, framed(false, b"x"), unimplemented),
        // tonic's codes for what is too long, before and after it is decompressed.
        (EXPORT_METHOD, &GRPC, framed(false, &zeros), "11"),
        (EXPORT_METHOD, &compressed("gzip"), framed(true, &gzip(&zeros)), "8"),
        (EXPORT_METHOD, &compressed("br"), framed(true, b"x"), unimplemented),
    ] {
        let (status, _) = grpc_answer(&service, request(path, headers, body)).await;
        assert_eq!(status, expected, "{path} {headers:?}");
    }
    assert_eq!(kept.lock().unwrap().len(), 3);
}

/// A body that never ends.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_never_end_hold_up_nobody() {
    let (service, kept) = service();
    let endless: Vec<_> = (0..100)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move {
                let request = request(PATH, &[PROTOBUF], "").map(|_| Body::new(Endless));
                service.answer(request).await.status()
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let (began, answer) =
        (tokio::time::Instant::now(), http_answer(&service, request(PATH, &[PROTOBUF], "later")));
    assert_eq!((answer.await.0, began.elapsed()), (StatusCode::OK, Duration::ZERO));
    for task in endless {
        assert_eq!(task.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!((&**kept.lock().unwrap(), began.elapsed()), (&[b"later".to_vec()][..], REQUEST_TIMEOUT));
}
