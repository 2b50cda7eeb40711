//! Sidewinder's own logs and metrics: `service::telemetry`, in the Collector's structure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::Secret;

/// `service::telemetry`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Telemetry {
    /// The log.
    pub logs: LogTelemetry,
    /// The metrics.
    pub metrics: MetricTelemetry,
    /// Attributes of its own resource; `None` removes a default attribute.
    pub resource: BTreeMap<String, Option<String>>,
}

/// `service::telemetry::logs`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogTelemetry {
    /// The minimum level.
    pub level: LogLevel,
    /// The format of a line.
    pub encoding: LogEncoding,
    /// The outputs of lines, at least one.
    pub output_paths: Vec<LogOutput>,
    /// The sampling of repeated lines; `None`: all are written.
    pub sampling: Option<LogSampling>,
    /// Where records are sent in addition.
    pub processors: Vec<OtlpTelemetry>,
}

/// For lines from one source location: in each tick the first few are written, then one of every `thereafter`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSampling {
    /// The length of a tick; more than zero.
    pub tick: Duration,
    /// The number of lines that are written at first in each tick.
    pub initial: u64,
    /// After these, each line whose number is a multiple of this is written; 0: none.
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

/// The minimum level of a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Information for users.
    Info,
    /// Conditions that a user should investigate.
    Warn,
    /// Failures.
    Error,
}

/// The format of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogEncoding {
    /// Text, for humans.
    Console,
    /// One JSON object per line.
    Json,
}

/// An output of log lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogOutput {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// This file; lines are appended.
    File(PathBuf),
}

/// `service::telemetry::metrics`.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricTelemetry {
    /// The level of detail.
    pub level: MetricLevel,
    /// The readers of metrics; none by default, so that no port is opened unless configured.
    pub readers: Vec<MetricReader>,
}

impl Default for MetricTelemetry {
    fn default() -> Self {
        Self { level: MetricLevel::Normal, readers: Vec::new() }
    }
}

/// The level of detail of metrics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MetricLevel {
    /// Nothing.
    None,
    /// Metrics that show whether it works.
    Basic,
    /// Metrics that show how well it works.
    Normal,
    /// Everything.
    Detailed,
}

/// A reader of metrics.
#[derive(Clone, PartialEq, Debug)]
pub enum MetricReader {
    /// They are pushed periodically.
    Periodic(PeriodicReader),
    /// They are scraped by Prometheus.
    Prometheus(PrometheusReader),
}

/// Metrics that are pushed periodically.
#[derive(Clone, PartialEq, Debug)]
pub struct PeriodicReader {
    /// The interval; more than zero.
    pub interval: Duration,
    /// The timeout of collecting them; more than zero.
    pub timeout: Duration,
    /// The destination.
    pub exporter: OtlpTelemetry,
}

/// Metrics or log records by OTLP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtlpTelemetry {
    /// The protocol.
    pub protocol: OtlpProtocol,
    /// The destination, a URL or `host:port`.
    pub endpoint: String,
    /// Whether to connect without TLS if the endpoint has no scheme.
    pub insecure: bool,
    /// Headers of each request.
    pub headers: BTreeMap<String, Secret>,
    /// The timeout of one attempt; more than zero.
    pub timeout: Duration,
    /// The aggregation temporality.
    pub temporality_preference: Temporality,
}

/// The OTLP protocol of telemetry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtlpProtocol {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP: not supported in this version.
    HttpProtobuf,
}

/// The aggregation temporality: whether a sum starts at the program's start or at the last report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Temporality {
    /// Since the program's start.
    #[default]
    Cumulative,
    /// Since the last report.
    Delta,
    /// Since the last report for monotonic sums, since the start for others.
    LowMemory,
}

/// Metrics scraped by Prometheus.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrometheusReader {
    /// The host to listen on.
    pub host: String,
    /// The port to listen on.
    pub port: u16,
    /// Whether scope labels are omitted.
    pub without_scope_info: bool,
    /// Whether unit suffixes of names are omitted.
    pub without_units: bool,
    /// Whether the suffix `_total` of counters is omitted.
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
