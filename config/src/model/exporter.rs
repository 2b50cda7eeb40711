//! Exporters: the destinations of profiles.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::{ComponentId, Endpoint, Fraction, HttpEndpoint, Multiplier, NumConsumers, Secret, TlsClient};

/// One exporter, by its type.
#[derive(Clone, PartialEq, Debug)]
pub enum ExporterConfig {
    /// `otlp_grpc`: OTLP over gRPC.
    OtlpGrpc(Box<OtlpGrpcExporter>),
    /// `otlp_http`: OTLP over HTTP.
    OtlpHttp(Box<OtlpHttpExporter>),
    /// `file`: one file of OTLP messages.
    File(FileExporter),
    /// `debug`: a summary of each request, in the log.
    Debug(DebugExporter),
}

/// OTLP over gRPC.
#[derive(Clone, PartialEq, Debug)]
pub struct OtlpGrpcExporter {
    /// The address of the receiver.
    pub endpoint: Endpoint,
    /// Metadata of each request: names in lower case, valid as gRPC metadata, none reserved by gRPC.
    pub headers: BTreeMap<String, Secret>,
    /// The compression of requests.
    pub compression: Compression,
    /// The timeout of one attempt; `None`: no timeout.
    pub timeout: Option<Duration>,
    /// How the server is verified.
    pub tls: TlsClient,
    /// The extension that adds credentials: a key of [`super::Config::extensions`] that runs.
    pub auth: Option<ComponentId>,
    /// When an idle connection is pinged; `None`: never.
    pub keepalive: Option<Keepalive>,
    /// The `:authority` of each request, instead of the endpoint's host and port.
    pub authority: Option<String>,
    /// Whether an attempt waits for a connection instead of failing at once if there is none.
    pub wait_for_ready: bool,
    /// Retries of requests that failed temporarily.
    pub retry_on_failure: Retry,
    /// The queue of waiting requests.
    pub sending_queue: SendingQueue,
}

impl OtlpGrpcExporter {
    /// An exporter to `endpoint` with defaults for all other keys.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            headers: BTreeMap::new(),
            compression: Compression::Gzip,
            timeout: Some(Duration::from_secs(5)),
            tls: TlsClient::default(),
            auth: None,
            keepalive: None,
            authority: None,
            wait_for_ready: false,
            retry_on_failure: Retry::default(),
            sending_queue: SendingQueue::default(),
        }
    }

    /// Whether the connection is encrypted.
    ///
    /// As in the Collector: only `tls::insecure` disables TLS, and not if an authority is given or the endpoint is
    /// `https://`; `http://` has no effect.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        !self.tls.insecure || self.tls.ca.is_some() || self.endpoint.requires_tls()
    }
}

/// `keepalive` of a gRPC connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// The time without traffic before the server is pinged; at least 10 s.
    pub time: Duration,
    /// The timeout of the response.
    pub timeout: Duration,
    /// Whether to ping also while there is no request.
    pub permit_without_stream: bool,
}

impl Default for Keepalive {
    fn default() -> Self {
        let ten_seconds = Duration::from_secs(10);
        Self { time: ten_seconds, timeout: ten_seconds, permit_without_stream: false }
    }
}

/// OTLP over HTTP.
#[derive(Clone, PartialEq, Debug)]
pub struct OtlpHttpExporter {
    /// The URL, to which the signal's path is appended; either this or `profiles_endpoint` is given.
    pub endpoint: Option<HttpEndpoint>,
    /// The complete URL; takes precedence over `endpoint`.
    pub profiles_endpoint: Option<HttpEndpoint>,
    /// Headers of each request: names in lower case.
    pub headers: BTreeMap<String, Secret>,
    /// The compression of requests.
    pub compression: Compression,
    /// The timeout of one attempt; `None`: no timeout.
    pub timeout: Option<Duration>,
    /// How the server of an `https://` endpoint is verified.
    pub tls: TlsClient,
    /// The extension that adds credentials: a key of [`super::Config::extensions`] that runs.
    pub auth: Option<ComponentId>,
    /// Retries of requests that failed temporarily.
    pub retry_on_failure: Retry,
    /// The queue of waiting requests.
    pub sending_queue: SendingQueue,
}

impl OtlpHttpExporter {
    /// The path that is appended to [`Self::endpoint`].
    pub const PROFILES_PATH: &'static str = "/v1development/profiles";

    /// An exporter to `endpoint` with defaults for all other keys.
    #[must_use]
    pub fn new(endpoint: Option<HttpEndpoint>) -> Self {
        Self {
            endpoint,
            profiles_endpoint: None,
            headers: BTreeMap::new(),
            compression: Compression::Gzip,
            timeout: Some(Duration::from_secs(30)),
            tls: TlsClient::default(),
            auth: None,
            retry_on_failure: Retry::default(),
            sending_queue: SendingQueue::default(),
        }
    }

    /// The URL of each request.
    #[must_use]
    pub fn url(&self) -> String {
        match (&self.profiles_endpoint, &self.endpoint) {
            (Some(whole), _) => whole.as_str().to_owned(),
            (None, Some(base)) => base.as_str().trim_end_matches('/').to_owned() + Self::PROFILES_PATH,
            (None, None) => String::new(),
        }
    }
}

/// The compression of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// None.
    None,
    /// gzip.
    #[default]
    Gzip,
    /// zstd.
    Zstd,
}

/// `retry_on_failure`: exponentially growing intervals between attempts.
///
/// If [`Retry::max_elapsed_time`] is given, neither interval exceeds it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Retry {
    /// Whether a request that failed temporarily is retried.
    pub enabled: bool,
    /// The first interval.
    pub initial_interval: Duration,
    /// The factor between successive intervals.
    pub multiplier: Multiplier,
    /// The fraction of an interval by which it is randomized, in both directions.
    pub randomization_factor: Fraction,
    /// The longest interval before randomization.
    pub max_interval: Duration,
    /// The time after which a request is dropped; `None`: never.
    pub max_elapsed_time: Option<Duration>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            enabled: true,
            initial_interval: Duration::from_secs(5),
            multiplier: Multiplier::default(),
            randomization_factor: Fraction::new(0.5).unwrap_or_default(),
            max_interval: Duration::from_secs(30),
            max_elapsed_time: Some(Duration::from_secs(300)),
        }
    }
}

/// `sending_queue`: requests that wait to be sent.
#[derive(Clone, PartialEq, Debug)]
pub struct SendingQueue {
    /// Whether there is a queue. Always true in this version.
    pub enabled: bool,
    /// The unit of `queue_size`. Always bytes in this version.
    pub sizer: Sizer,
    /// The capacity, in units of `sizer`; more than zero. Requests that do not fit are dropped and counted.
    pub queue_size: u64,
    /// Concurrent requests.
    pub num_consumers: NumConsumers,
    /// The extension that keeps the queue on disk: a key of [`super::Config::extensions`] that runs.
    pub storage: Option<ComponentId>,
}

impl SendingQueue {
    /// 8 MiB, the default capacity.
    pub const DEFAULT_SIZE_BYTES: u64 = 8 << 20;
}

impl Default for SendingQueue {
    fn default() -> Self {
        Self {
            enabled: true,
            sizer: Sizer::Bytes,
            queue_size: Self::DEFAULT_SIZE_BYTES,
            num_consumers: NumConsumers::default(),
            storage: None,
        }
    }
}

/// The unit of a queue's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizer {
    /// Bytes of encoded requests.
    Bytes,
    /// Samples.
    Items,
    /// Requests.
    Requests,
}

/// One file of OTLP messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileExporter {
    /// The path of the file, which is replaced at start.
    pub path: PathBuf,
    /// The format of the messages.
    pub format: FileFormat,
}

impl FileExporter {
    /// A file at `path` in the default format.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path, format: FileFormat::Proto }
    }
}

/// The format of messages in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// Protobuf.
    Proto,
}

/// A summary of each request, in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DebugExporter {
    /// The level of detail.
    pub verbosity: Verbosity,
}

/// The level of detail of the exporter `debug`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verbosity {
    /// One line per request, with the number of samples.
    #[default]
    Basic,
    /// One line per profile.
    Normal,
    /// Everything.
    Detailed,
}
