//! The exporters, and what became of each event that they were given.

mod counts;
mod exporter;
pub mod file;
mod grpc;
mod queue;
mod retry;

pub use counts::{Counts, State};
pub use exporter::{Exporter, ExporterOptions, ExporterStats, PartialSuccess};
pub use grpc::{Compression, GrpcError, GrpcOptions, Pem, TlsOptions};
pub use retry::{RetryError, RetryOptions};
