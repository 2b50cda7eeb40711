//! The receiving end of OTLP for profiles: requests of one connection in, messages out, and the answers that the protocol has for
//! each. Who calls this owns connections and threads.
//!
//! ```text
//! grpc    opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export, gzip or zstd
//! http    POST /v1development/profiles, binary Protobuf, gzip or zstd
//! ```

mod grpc;
mod http;

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, Request, Response};
use tokio::sync::Semaphore;
use tonic::body::Body;

use crate::wire::{
    DEVELOPMENT_VERSION, DEVELOPMENT_VERSION_KEY, ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};

/// The longest message, uncompressed, in bytes: a Collector's default for gRPC.
pub const MAX_RECEIVED_BYTES: usize = 4 << 20;
/// How many requests are read and handled at a time: with the size of messages, the limit of memory for them.
const REQUESTS_MAX: usize = 4;
/// The longest time that a request takes, waiting included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// How much of a valid message was taken.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Taken {
    /// Profiles that were not taken.
    pub rejected_profiles: u64,
    /// Why.
    pub reason: String,
}

/// Takes an encoded `ExportProfilesServiceRequest`; the error says why it is invalid.
pub type Sink = dyn Fn(&[u8]) -> Result<Taken, String> + Send + Sync;

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Refused {
    /// It never becomes valid.
    Invalid(String),
    /// It may be sent again.
    Busy,
}

/// Answers the requests of any number of connections.
#[derive(Clone)]
pub struct ProfilesService {
    sink: Arc<Sink>,
    permits: Arc<Semaphore>,
}

impl ProfilesService {
    /// A service that gives what it receives to `sink`.
    #[must_use]
    pub fn new(sink: Arc<Sink>) -> Self {
        Self { sink, permits: Arc::new(Semaphore::new(REQUESTS_MAX)) }
    }

    /// Answers a request, of gRPC or of HTTP, which its content type tells.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let content_type = request.headers().get(::http::header::CONTENT_TYPE);
        let is_grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        let answer = async {
            let _permit = self.permits.acquire().await;
            if is_grpc {
                grpc::answer(self.clone(), request).await
            } else {
                http::answer(self, request).await
            }
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, answer).await {
            Ok(answer) => answer,
            Err(_) if is_grpc => grpc::refusal(Refused::Busy),
            Err(_) => http::refusal(Refused::Busy),
        }
    }

    /// Gives a message to the sink.
    fn take(&self, headers: &HeaderMap, message: &[u8]) -> Result<ExportProfilesServiceResponse, Refused> {
        for version in headers.get_all(DEVELOPMENT_VERSION_KEY) {
            if version != DEVELOPMENT_VERSION {
                let reason =
                    format!("{DEVELOPMENT_VERSION_KEY} is {version:?}, but this reads {DEVELOPMENT_VERSION}");
                return Err(Refused::Invalid(reason));
            }
        }
        let taken = (self.sink)(message).map_err(Refused::Invalid)?;
        let rejected_profiles = i64::try_from(taken.rejected_profiles).unwrap_or(i64::MAX);
        let partial_success = (rejected_profiles > 0)
            .then_some(ExportProfilesPartialSuccess { rejected_profiles, error_message: taken.reason });
        Ok(ExportProfilesServiceResponse { partial_success })
    }
}

impl std::fmt::Debug for ProfilesService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfilesService").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
