//! Options that all exporters have, regardless of the protocol.

use sidewinder_config::Retry;

use super::storage::StorageOptions;

/// The limit of a Collector's gRPC server for a request.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Options that all exporters have, regardless of the protocol.
#[derive(Clone, PartialEq, Debug)]
pub struct ExporterOptions {
    /// The configured name: `otlp_grpc/backup`. It identifies the queue on disk.
    pub name: String,
    /// The limit, in bytes of memory, for encoded reports that are waiting or being sent; with `storage`, for those
    /// waiting to be written.
    pub queue_bytes: usize,
    /// Stores waiting reports on disk instead of in memory.
    pub storage: Option<StorageOptions>,
    /// The number of concurrent requests (`sending_queue::num_consumers`).
    pub consumers: usize,
    /// The maximum size of a request. Larger ones are split, or dropped if that isn't possible.
    pub max_request_bytes: usize,
    /// When to retry.
    pub retry: Retry,
}

impl ExporterOptions {
    /// The default options with this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queue_bytes: 8 << 20,
            storage: None,
            consumers: 2,
            max_request_bytes: REQUEST_BYTES_MAX,
            retry: Retry::default(),
        }
    }
}
