//! What Sidewinder says about itself: `service::telemetry` in the Collector's shape.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::Secret;

/// `service::telemetry`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Telemetry {
    /// Its log.
    pub logs: LogTelemetry,
    /// Its metrics.
    pub metrics: MetricTelemetry,
    /// Attributes of its own resource; `None` takes a default attribute away.
    pub resource: BTreeMap<String, Option<String>>,
}

/// `service::telemetry::logs`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogTelemetry {
    /// The least that is said.
    pub level: LogLevel,
    /// The form of a line.
    pub encoding: LogEncoding,
    /// Where lines go, at least one place.
    pub output_paths: Vec<LogOutput>,
    /// How lines that repeat are left out; `None`: none is.
    pub sampling: Option<LogSampling>,
    /// Where records are sent besides.
    pub processors: Vec<OtlpTelemetry>,
}

/// Of lines from one place in the source: in each tick the first few pass, then one in so many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSampling {
    /// How long a tick is; more than zero.
    pub tick: Duration,
    /// How many lines pass in each tick.
    pub initial: u64,
    /// After that, each line of which the number is a multiple of this passes; 0: none.
    pub thereafter: u64,
}

impl Default for LogSampling {
    fn default() -> Self {
        Self { tick: Duration::from_secs(10), initial: 10, thereafter: 100 }
    }
}

impl Default for LogTelemetry {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            encoding: LogEncoding::Console,
            output_paths: vec![LogOutput::Stderr],
            sampling: Some(LogSampling::default()),
            processors: Vec::new(),
        }
    }
}

/// The least that a log says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// What a user may want to know.
    Info,
    /// What a user should look into.
    Warn,
    /// What failed.
    Error,
}

/// The form of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogEncoding {
    /// Words, for people.
    Console,
    /// One JSON object a line.
    Json,
}

/// Where log lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogOutput {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The end of this file.
    File(PathBuf),
}

/// `service::telemetry::metrics`.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricTelemetry {
    /// How much is measured.
    pub level: MetricLevel,
    /// Who reads the metrics; nobody by default, so that no port is opened unasked.
    pub readers: Vec<MetricReader>,
}

impl Default for MetricTelemetry {
    fn default() -> Self {
        Self { level: MetricLevel::Normal, readers: Vec::new() }
    }
}

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MetricLevel {
    /// Nothing.
    None,
    /// What tells whether it works.
    Basic,
    /// What tells how well it works.
    Normal,
    /// Everything.
    Detailed,
}

/// Who reads the metrics.
#[derive(Clone, PartialEq, Debug)]
pub enum MetricReader {
    /// They are sent every so often.
    Periodic(PeriodicReader),
    /// They are fetched by Prometheus.
    Prometheus(PrometheusReader),
}

/// Metrics that are sent every so often.
#[derive(Clone, PartialEq, Debug)]
pub struct PeriodicReader {
    /// Time between two sendings; more than zero.
    pub interval: Duration,
    /// How long reading them may take; more than zero.
    pub timeout: Duration,
    /// Where they go.
    pub exporter: OtlpTelemetry,
}

/// Metrics or log records by OTLP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtlpTelemetry {
    /// How they travel.
    pub protocol: OtlpProtocol,
    /// Where to, a URL or `host:port`.
    pub endpoint: String,
    /// Whether to speak without TLS where the endpoint has no scheme.
    pub insecure: bool,
    /// Headers of each request.
    pub headers: BTreeMap<String, Secret>,
    /// How long one attempt may take; more than zero.
    pub timeout: Duration,
    /// Whether a sum is told since the start or since the last time.
    pub temporality_preference: Temporality,
}

/// How telemetry by OTLP travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtlpProtocol {
    /// Over gRPC.
    Grpc,
    /// Over HTTP as protobuf: not in this version.
    HttpProtobuf,
}

/// Whether a sum is told since the start or since the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Temporality {
    /// Since the start.
    #[default]
    Cumulative,
    /// Since the last time.
    Delta,
    /// Since the last time for what only grows, since the start for the rest.
    LowMemory,
}

/// Metrics fetched by Prometheus.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrometheusReader {
    /// The address that is listened on.
    pub host: String,
    /// The port that is listened on.
    pub port: u16,
    /// Whether points have no labels that name the scope.
    pub without_scope_info: bool,
    /// Whether names have no unit at their end.
    pub without_units: bool,
    /// Whether names of counters have no `_total` at their end.
    pub without_type_suffix: bool,
}

impl Default for PrometheusReader {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: 8888,
            without_scope_info: true,
            without_units: true,
            without_type_suffix: true,
        }
    }
}

impl Default for PeriodicReader {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(30),
            exporter: OtlpTelemetry::default(),
        }
    }
}

impl Default for OtlpTelemetry {
    /// OTLP over gRPC to this machine.
    fn default() -> Self {
        Self {
            protocol: OtlpProtocol::Grpc,
            endpoint: "localhost:4317".to_owned(),
            insecure: false,
            headers: BTreeMap::new(),
            timeout: Duration::from_secs(10),
            temporality_preference: Temporality::default(),
        }
    }
}
