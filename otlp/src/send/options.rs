//! What exporters have in common, whatever they speak.

use sidewinder_config::Retry;

use super::storage::StorageOptions;

/// What exporters have in common, whatever they speak.
#[derive(Clone, PartialEq, Debug)]
pub struct ExporterOptions {
    /// The name, as configured: `otlp_grpc/backup`. A queue on disk is found again by it.
    pub name: String,
    /// Bytes of memory for encoded reports that wait or are being sent; with `storage`, for those
    /// that wait to be written.
    pub queue_bytes: usize,
    /// Where reports wait instead of in memory.
    pub storage: Option<StorageOptions>,
    /// How many requests are under way at a time (`sending_queue::num_consumers`).
    pub consumers: usize,
    /// Larger requests are split, or not sent at all where that is not possible.
    pub max_request_bytes: usize,
    /// When to try again.
    pub retry: Retry,
}

impl ExporterOptions {
    /// The defaults, under that name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queue_bytes: 8 << 20,
            storage: None,
            consumers: 2,
            // What a Collector's gRPC server takes.
            max_request_bytes: 4 << 20,
            retry: Retry::default(),
        }
    }
}
