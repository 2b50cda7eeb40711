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
/// The longest time that a request takes, waiting included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a request is refused as misdirected, and what to do.
const MISDIRECTED: &str = "this host name is not one of Sidewinder's, or a web page sends this: \
    send to localhost, to an IP address of this machine, or to the host given to --listen";

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
pub enum Refusal {
    /// It never becomes valid.
    Invalid(String),
    /// It is for another host, or a web page has made a browser send it.
    Misdirected,
    /// It may be sent again.
    Busy,
}

/// Answers the requests of any number of connections.
#[derive(Clone)]
pub struct ProfilesService {
    sink: Arc<Sink>,
    /// Handed to one message at a time: the sink may take long, and other requests arrive meanwhile.
    turn: Arc<Semaphore>,
}

impl ProfilesService {
    /// A service that gives what it receives to `sink`.
    #[must_use]
    pub fn new(sink: Arc<Sink>) -> Self {
        Self { sink, turn: Arc::new(Semaphore::new(1)) }
    }

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

    /// Gives a message to the sink once it is its turn.
    async fn take(
        &self,
        headers: &HeaderMap,
        message: &[u8],
    ) -> Result<ExportProfilesServiceResponse, Refusal> {
        for version in headers.get_all(DEVELOPMENT_VERSION_KEY) {
            if version != DEVELOPMENT_VERSION {
                let reason =
                    format!("{DEVELOPMENT_VERSION_KEY} is {version:?}, but this reads {DEVELOPMENT_VERSION}");
                return Err(Refusal::Invalid(reason));
            }
        }
        let _turn = self.turn.acquire().await;
        let taken = (self.sink)(message).map_err(Refusal::Invalid)?;
        let rejected_profiles = i64::try_from(taken.rejected_profiles).unwrap_or(i64::MAX);
        let partial_success = (rejected_profiles > 0)
            .then_some(ExportProfilesPartialSuccess { rejected_profiles, error_message: taken.reason });
        Ok(ExportProfilesServiceResponse { partial_success })
    }
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(::http::header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

impl std::fmt::Debug for ProfilesService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfilesService").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
