//! Exporters: where profiles go.

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
    /// `debug`: a summary of each request in the log.
    Debug(DebugExporter),
}

/// OTLP over gRPC.
#[derive(Clone, PartialEq, Debug)]
pub struct OtlpGrpcExporter {
    /// Where to.
    pub endpoint: Endpoint,
    /// Metadata of each request: names in lower case, valid as gRPC metadata, none reserved by gRPC.
    pub headers: BTreeMap<String, Secret>,
    /// How requests are compressed.
    pub compression: Compression,
    /// How long one attempt may take; `None`: as long as it likes.
    pub timeout: Option<Duration>,
    /// How the server is checked.
    pub tls: TlsClient,
    /// The extension that adds credentials: a key of [`super::Config::extensions`] that runs.
    pub auth: Option<ComponentId>,
    /// When an idle connection is tried; `None`: never.
    pub keepalive: Option<Keepalive>,
    /// The `:authority` of each request instead of the endpoint's host and port.
    pub authority: Option<String>,
    /// Whether an attempt waits for a connection instead of failing at once where there is none.
    pub wait_for_ready: bool,
    /// What happens to a request that failed for now.
    pub retry_on_failure: Retry,
    /// Where requests wait.
    pub sending_queue: SendingQueue,
}

impl OtlpGrpcExporter {
    /// An exporter to `endpoint` with every other key at its default.
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
    /// As in the Collector: `tls::insecure` alone switches TLS off, and neither where an authority is
    /// given nor for an `https://` endpoint; `http://` switches nothing.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        !self.tls.insecure || self.tls.ca.is_some() || self.endpoint.requires_tls()
    }
}

/// `keepalive` of a gRPC connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// After how long without traffic the server is pinged; at least 10 s.
    pub time: Duration,
    /// How long the answer may take.
    pub timeout: Duration,
    /// Whether to ping also while no request is under way.
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
    /// Where to, as a URL to which the signal's path is added; given, or else `profiles_endpoint` is.
    pub endpoint: Option<HttpEndpoint>,
    /// Where to, as the whole URL; goes before `endpoint`.
    pub profiles_endpoint: Option<HttpEndpoint>,
    /// Headers of each request: names in lower case.
    pub headers: BTreeMap<String, Secret>,
    /// How requests are compressed.
    pub compression: Compression,
    /// How long one attempt may take; `None`: as long as it likes.
    pub timeout: Option<Duration>,
    /// How the server of an `https://` endpoint is checked.
    pub tls: TlsClient,
    /// The extension that adds credentials: a key of [`super::Config::extensions`] that runs.
    pub auth: Option<ComponentId>,
    /// What happens to a request that failed for now.
    pub retry_on_failure: Retry,
    /// Where requests wait.
    pub sending_queue: SendingQueue,
}

impl OtlpHttpExporter {
    /// What is added to [`Self::endpoint`].
    pub const PROFILES_PATH: &'static str = "/v1development/profiles";

    /// An exporter to `endpoint` with every other key at its default.
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

/// How requests are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// By gzip.
    #[default]
    Gzip,
    /// By zstd.
    Zstd,
}

/// `retry_on_failure`: waiting times between attempts grow from one to the next.
///
/// Where [`Retry::max_elapsed_time`] is given, neither interval exceeds it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Retry {
    /// Whether a request that failed for now is tried again at all.
    pub enabled: bool,
    /// The first waiting time.
    pub initial_interval: Duration,
    /// Each waiting time over the one before.
    pub multiplier: Multiplier,
    /// Share by which a waiting time is shifted at random, either way.
    pub randomization_factor: Fraction,
    /// The longest waiting time before that shift.
    pub max_interval: Duration,
    /// After how long a request is given up; `None`: never.
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

/// `sending_queue`: requests that wait for their turn.
#[derive(Clone, PartialEq, Debug)]
pub struct SendingQueue {
    /// Whether there is a queue. Always true in this version.
    pub enabled: bool,
    /// What `queue_size` counts. Always bytes in this version.
    pub sizer: Sizer,
    /// How much may wait, in units of `sizer`; more than zero. What comes after is dropped and counted.
    pub queue_size: u64,
    /// Requests under way at once.
    pub num_consumers: NumConsumers,
    /// The extension that keeps the queue on disk: a key of [`super::Config::extensions`] that runs.
    pub storage: Option<ComponentId>,
}

impl SendingQueue {
    /// 8 MiB, the size where none is given.
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

/// What a queue's size counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizer {
    /// Bytes of encoded requests.
    Bytes,
    /// Sample messages.
    Items,
    /// Requests.
    Requests,
}

/// One file of OTLP messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileExporter {
    /// The file; it is replaced at start.
    pub path: PathBuf,
    /// The form of the messages.
    pub format: FileFormat,
}

impl FileExporter {
    /// A file at `path` in the default form.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path, format: FileFormat::Proto }
    }
}

/// The form of messages in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// Protobuf.
    Proto,
}

/// A summary of each request in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DebugExporter {
    /// How much it says.
    pub verbosity: Verbosity,
}

/// How much the exporter `debug` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verbosity {
    /// One line a request: how many samples.
    #[default]
    Basic,
    /// One line a profile.
    Normal,
    /// Everything.
    Detailed,
}
