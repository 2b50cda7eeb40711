//! The receiving end of OTLP for profiles: requests of one connection in, messages out, and the answers that the protocol has for
//! each. The caller owns connections and threads, and bounds the number of requests at a time: with the size of messages, the limit
//! of memory for them.
//!
//! ```text
//! grpc    opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export, gzip or zstd
//! http    POST /v1development/profiles, binary Protobuf, gzip or zstd
//! ```

mod grpc;
mod http;
mod service;

use std::time::Duration;

use ::http::{Request, Response};
use tonic::body::Body;

pub use self::service::{MAX_RECEIVED_BYTES, ProfilesService, Refusal, Sink, Taken};

/// The longest time that a request takes, waiting included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

impl ProfilesService {
    /// Answers a request, of gRPC or of HTTP, which its content type tells.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let late = Self::refuse(&request, Refusal::Busy);
        let answer = async {
            match is_grpc(&request) {
                true => grpc::answer(self.clone(), request).await,
                false => http::answer(self, request).await,
            }
        };
        tokio::time::timeout(REQUEST_TIMEOUT, answer).await.unwrap_or(late)
    }

    /// The response that refuses a request.
    #[must_use]
    pub fn refuse<B>(request: &Request<B>, why: Refusal) -> Response<Body> {
        if is_grpc(request) { grpc::refusal(why) } else { http::refusal(why) }
    }
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(::http::header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

#[cfg(test)]
mod tests;
