//! The effective configuration as plain typed values.
//!
//! Nothing here knows YAML. A value that exists has been checked: ranges are newtypes, alternatives
//! are enums, and references between components name components that exist.

mod binary;
mod component;
mod endpoint;
mod exporter;
mod number;
mod receiver;
mod secret;
mod telemetry;
mod tls;

use std::collections::BTreeMap;

pub use binary::{BinaryMatch, BuildId};
pub use component::ComponentId;
pub use endpoint::{Endpoint, EndpointTarget};
pub use exporter::{
    Compression, DebugExporter, Exporter, FileExporter, FileFormat, OtlpGrpcExporter, Retry, SendingQueue,
    Sizer, Verbosity,
};
pub use number::{
    Fraction, MaxFrames, MemoryLimitMib, Multiplier, NumConsumers, OutOfRange, Percent, Pid,
    SamplesPerSecond, VerifierLogLevel,
};
pub use receiver::{
    ErrorMode, ProfilingReceiver, Scope, SymbolMode, Symbolize, TraceContext, Unwind, UnwindMode,
    UnwindOverride, UnwindTrust,
};
pub use secret::Secret;
pub use telemetry::{
    LogEncoding, LogLevel, LogOutput, LogTelemetry, MetricLevel, MetricReader, MetricTelemetry, OtlpMetrics,
    OtlpProtocol, PeriodicReader, PrometheusReader, Telemetry, Temporality,
};
pub use tls::{ClientIdentity, Pem, TlsClient};

/// Everything the user decided, checked, with defaults filled in.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// `receivers`: the profilers, by id (`profiling`, `profiling/name`).
    pub receivers: BTreeMap<ComponentId, ProfilingReceiver>,
    /// `exporters`: where profiles go, by id.
    pub exporters: BTreeMap<ComponentId, Exporter>,
    /// `service::pipelines`: which receivers feed which exporters; at least one.
    pub pipelines: BTreeMap<ComponentId, Pipeline>,
    /// `service::telemetry`: what Sidewinder says about itself.
    pub telemetry: Telemetry,
}

impl Default for Config {
    /// One profiler that writes to the file `profile.otlp`: what runs when nothing is configured.
    fn default() -> Self {
        let (receiver, exporter) = (ComponentId::of("profiling"), ComponentId::of("file"));
        let file = Exporter::File(FileExporter::new("profile.otlp".into()));
        let pipeline = Pipeline { receivers: vec![receiver.clone()], exporters: vec![exporter.clone()] };
        Self {
            receivers: BTreeMap::from([(receiver, ProfilingReceiver::default())]),
            exporters: BTreeMap::from([(exporter, file)]),
            pipelines: BTreeMap::from([(ComponentId::of("profiles"), pipeline)]),
            telemetry: Telemetry::default(),
        }
    }
}

/// One flow of profiles: every receiver's profiles go to every exporter.
///
/// Each list has at least one id, none twice, and each id is a key of [`Config::receivers`] or
/// [`Config::exporters`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pipeline {
    /// Ids of the receivers, in the order given.
    pub receivers: Vec<ComponentId>,
    /// Ids of the exporters, in the order given.
    pub exporters: Vec<ComponentId>,
}
