//! The exporters, and how each event that they were given ended. Settings that users write, such
//! as [`sidewinder_config::Retry`], are the configuration's own types.
//!
//! ```text
//! exporter, deliver, queue, storage   one queue, one thread, attempts and their ends; on disk if asked for
//! grpc, http                          one request and its answer
//! connect, credentials                who is called, and as whom
//! verdict, retry, counts              what an answer means, when to try again, what is counted
//! options, error, notes               settings of all exporters, what is wrong with them, the last failure
//! file, debug                         reports in files and in the log
//! ```

mod connect;
mod counts;
mod credentials;
mod debug;
mod delivery;
mod error;
mod exporter;
pub mod file;
mod grpc;
mod http;
mod notes;
mod options;
mod outcome;
mod queue;
mod retry;
mod storage;

pub use connect::{Resolve, ResolveFuture, Resolver, TlsConfigError};
pub use counts::{Counts, State};
pub use credentials::{CredentialsError, ExporterCredentials, HeaderError};
pub use error::ConnectionError;
pub use exporter::{Exporter, ExporterError, ExporterStats};
pub use grpc::GrpcOptions;
pub use http::HttpOptions;
pub use notes::{Outage, PartialSuccess};
pub use options::ExporterOptions;
pub use retry::RetryError;
pub use storage::{StorageError, StorageOptions};

/// A longer answer is not read.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
