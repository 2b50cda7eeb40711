//! The exporters, and how each event that they were given ended. Settings that users write, such as
//! [`sidewinder_config::Retry`], are types of the configuration crate.
//!
//! ```text
//! exporter, delivery, queue, storage  one queue and one thread; attempts and their outcomes; the queue on disk
//! grpc, http                          one request and its response
//! connect, credentials                connections, and authentication
//! outcome, retry, counts              the meaning of a response, retry delays, the counts of events
//! refusal_text                        what only the text of a response says
//! options, error, notes               settings of all exporters, errors in them, the last failure
//! file, debug                         exporters to a file and to the log
//! download                            a file from a server, by the same connections
//! ```

mod connect;
mod counts;
mod credentials;
mod debug;
mod delivery;
mod download;
mod error;
mod exporter;
pub mod file;
mod grpc;
mod http;
mod notes;
mod options;
mod outcome;
mod queue;
mod refusal_text;
mod retry;
mod storage;

pub use connect::{
    PemProblem, Proxies, ProxyError, Resolve, ResolveFuture, Resolver, TlsConfigError, check_tls,
};
pub use counts::{Counts, State};
pub use credentials::{CredentialsError, ExporterCredentials, HeaderError};
pub use download::{DownloadError, DownloadLimits, DownloadOptions, Downloader};
pub use error::ConnectionError;
pub use exporter::{Exporter, ExporterError, ExporterStats};
pub use grpc::GrpcOptions;
pub use http::HttpOptions;
pub use notes::{Outage, PartialSuccess};
pub use options::{ExporterOptions, REQUEST_BYTES_MAX};
pub use retry::RetryError;
pub use storage::{StorageError, StorageOptions};

/// The maximum length of a response that is read: counts, and a message for people. Each consumer of a queue may have one in memory, in
/// addition to the budgets of a receiver.
const MAX_RESPONSE_BYTES: usize = 256 << 10;
