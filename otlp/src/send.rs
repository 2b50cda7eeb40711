//! The exporters, and how each event that they were given ended. Settings that users write, such
//! as [`sidewinder_config::Retry`], are the configuration's own types.
//!
//! ```text
//! exporter, deliver, queue, storage   one queue, one thread, attempts and their ends; on disk if asked for
//! grpc, http                          one request and its answer
//! connect, credentials                who is called, and as whom
//! verdict, retry, counts              what an answer means, when to try again, what is counted
//! file, debug                         reports in files and in the log
//! ```

mod connect;
mod counts;
mod credentials;
mod debug;
mod deliver;
mod exporter;
pub mod file;
mod grpc;
mod http;
mod queue;
mod retry;
mod storage;
mod verdict;

pub use connect::{Resolve, Resolver, Resolving, TlsError};
pub use counts::{Counts, State};
pub use credentials::{Credentials, CredentialsError, HeaderError};
pub use exporter::{Exporter, ExporterError, ExporterOptions, ExporterStats, Outage, PartialSuccess};
pub use grpc::GrpcOptions;
pub use http::HttpOptions;
pub use retry::RetryError;
pub use storage::{StorageError, StorageOptions};

/// Settings of a connection with which nothing could ever be sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The endpoint has none of the known forms.
    #[error("endpoint {endpoint:?} {problem}")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Certificates or keys that cannot be read or do not make sense.
    #[error("cannot set up TLS for {endpoint:?}")]
    Tls {
        /// As given.
        endpoint: String,
        /// Why.
        source: TlsError,
    },
    /// A header that cannot be sent.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Credentials that cannot be sent.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The file that is written to.
    #[error(transparent)]
    File(#[from] file::FileError),
    /// Credentials over gRPC without TLS, which gRPC refuses as well.
    #[error("credentials are only sent over TLS: remove tls::insecure, or auth")]
    CredentialsInPlaintext,
}

/// A longer answer is not read.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
