//! What both protocols share: the messages' way to their sink, and the reasons to refuse them.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::Semaphore;

use crate::wire::{
    DEVELOPMENT_VERSION, DEVELOPMENT_VERSION_KEY, ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};

/// The longest message, uncompressed, in bytes: a Collector's default for gRPC.
pub const MAX_RECEIVED_BYTES: usize = 4 << 20;

/// Why a request is refused as misdirected, and what to do.
pub(super) const MISDIRECTED: &str = "this host name is not one of Sidewinder's, or a web page sends this: \
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

    /// Gives a message to the sink once it is its turn.
    pub(super) async fn take(
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

impl std::fmt::Debug for ProfilesService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfilesService").finish_non_exhaustive()
    }
}
