//! The effective configuration as plain typed values.
//!
//! Nothing here knows YAML. A value that exists has been checked: ranges are newtypes, alternatives
//! are enums, and references between components name components that exist.

mod binary;
mod component;
mod endpoint;
mod exporter;
mod extension;
mod number;
mod processor;
mod receiver;
mod secret;
mod telemetry;
mod tls;
mod ui;

use std::collections::BTreeMap;

pub use binary::{BinaryMatch, GnuBuildId};
pub use component::ComponentId;
pub use endpoint::{Endpoint, EndpointTarget, HttpEndpoint, ListenAddress};
pub use exporter::{
    Compression, DebugExporter, ExporterConfig, FileExporter, FileFormat, Keepalive, OtlpGrpcExporter,
    OtlpHttpExporter, Retry, SendingQueue, Sizer, Verbosity,
};
pub use extension::{
    BasicAuth, BearerTokenAuth, Credential, Extension, ExtensionService, FileMode, FileStorage, HealthCheck,
    ResponseBody, Zpages,
};
pub use number::{
    Fraction, MaxFrames, MemoryLimitMib, Multiplier, NumConsumers, OutOfRange, Percent, Pid,
    SamplesPerSecond, UiMemoryMib, VerifierLogLevel,
};
pub use processor::{
    AttributeAction, AttributeChange, AttributeOrigin, AttributeSource, AttributeValue, ResourceProcessor,
};
pub use receiver::{
    ErrorMode, ProfilingReceiver, Scope, ScopeMode, Selector, SymbolMode, Symbolize, TraceContext, Unwind,
    UnwindMode, UnwindOverride, UnwindTrust,
};
pub use secret::Secret;
pub use telemetry::{
    LogEncoding, LogLevel, LogOutput, LogSampling, LogTelemetry, MetricLevel, MetricReader, MetricTelemetry,
    OtlpProtocol, OtlpTelemetry, PeriodicReader, PrometheusReader, Telemetry, Temporality,
};
pub use tls::{ClientIdentity, Pem, TlsClient, TlsVersion};
pub use ui::Ui;

/// Everything the user decided, checked, with defaults filled in.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// `receivers`: the profilers, by id (`profiling`, `profiling/name`).
    pub receivers: BTreeMap<ComponentId, ProfilingReceiver>,
    /// `processors`: what changes profiles on their way, by id.
    pub processors: BTreeMap<ComponentId, ResourceProcessor>,
    /// `exporters`: where profiles go, by id.
    pub exporters: BTreeMap<ComponentId, ExporterConfig>,
    /// `extensions` that `service::extensions` names, by id. Exporters refer to these alone.
    pub extensions: BTreeMap<ComponentId, Extension>,
    /// `service::pipelines`: which receivers feed which exporters; at least one.
    pub pipelines: BTreeMap<ComponentId, Pipeline>,
    /// `service::telemetry`: what Sidewinder says about itself.
    pub telemetry: Telemetry,
    /// `service::ui`: the page that follows what is profiled.
    pub ui: Ui,
}

impl Default for Config {
    /// One profiler that writes to the file `profile.otlp`: what runs when nothing is configured.
    fn default() -> Self {
        let (receiver, exporter) = (ComponentId::new("profiling"), ComponentId::new("file"));
        let file = ExporterConfig::File(FileExporter::new("profile.otlp".into()));
        let pipeline = Pipeline {
            receivers: vec![receiver.clone()],
            processors: Vec::new(),
            exporters: vec![exporter.clone()],
        };
        Self {
            receivers: BTreeMap::from([(receiver, ProfilingReceiver::default())]),
            processors: BTreeMap::new(),
            exporters: BTreeMap::from([(exporter, file)]),
            extensions: BTreeMap::new(),
            pipelines: BTreeMap::from([(ComponentId::new("profiles"), pipeline)]),
            telemetry: Telemetry::default(),
            ui: Ui::default(),
        }
    }
}

/// One flow of profiles: every receiver's profiles go through the processors to every exporter.
///
/// There is at least one receiver and one exporter, no id is given twice, and each id is a key of
/// [`Config::receivers`], [`Config::processors`] or [`Config::exporters`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pipeline {
    /// Ids of the receivers, in the order given.
    pub receivers: Vec<ComponentId>,
    /// Ids of the processors, in the order in which they act.
    pub processors: Vec<ComponentId>,
    /// Ids of the exporters, in the order given.
    pub exporters: Vec<ComponentId>,
}

impl Pipeline {
    /// Every component of the pipeline.
    pub fn ids(&self) -> impl Iterator<Item = &ComponentId> {
        self.receivers.iter().chain(&self.processors).chain(&self.exporters)
    }
}
