//! The effective configuration as plain typed values.
//!
//! Nothing here depends on YAML. All values are valid: ranges are newtypes, alternatives are enums, and references between
//! components refer to existing components.

mod binary;
mod component;
mod endpoint;
mod event;
mod exporter;
mod extension;
mod invalid_probe;
mod number;
mod probe;
mod probe_value;
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
pub use event::{CounterEvent, InvalidEvent};
pub use exporter::{
    Compression, DebugExporter, ExporterConfig, FileExporter, FileFormat, Keepalive, OtlpGrpcExporter,
    OtlpHttpExporter, Retry, SendingQueue, Sizer, Verbosity,
};
pub use extension::{
    BasicAuth, BearerTokenAuth, Credential, Extension, ExtensionService, FileMode, FileStorage, HealthCheck,
    ResponseBody, Zpages,
};
pub use invalid_probe::InvalidProbe;
pub use number::{
    Fraction, MaxFrames, MemoryLimitMib, Multiplier, NumConsumers, OutOfRange, Percent, SamplesPerSecond,
    SavedTablesMib, SelectedPid, UiMemoryMib, VerifierLogLevel,
};
pub use probe::{ProbePlace, ProbePoint, ProbeSpec};
pub use probe_value::{ProbeInteger, ProbeValue, ProbeValueSource};
pub use processor::{
    AttributeAction, AttributeChange, AttributeOrigin, AttributeSource, AttributeValue, ResourceProcessor,
};
pub use receiver::{
    ErrorMode, Interpreter, Interpreters, ProfilingReceiver, Scope, ScopeMode, Selector, SymbolMode,
    Symbolize, TraceContext, Unwind, UnwindMode, UnwindOverride, UnwindTrust, VmInternals,
};
pub use secret::Secret;
pub use telemetry::{
    LogEncoding, LogLevel, LogOutput, LogSampling, LogTelemetry, MetricLevel, MetricReader, MetricTelemetry,
    OtlpProtocol, OtlpTelemetry, PeriodicReader, PrometheusReader, Telemetry, Temporality,
};
pub use tls::{ClientIdentity, Pem, TlsClient, TlsVersion};
pub use ui::Ui;

/// The user's complete configuration, validated, with defaults for missing keys.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// `receivers`: the profilers, by ID (`profiling`, `profiling/name`).
    pub receivers: BTreeMap<ComponentId, ProfilingReceiver>,
    /// `processors`: components that modify profiles, by ID.
    pub processors: BTreeMap<ComponentId, ResourceProcessor>,
    /// `exporters`: the destinations of profiles, by ID.
    pub exporters: BTreeMap<ComponentId, ExporterConfig>,
    /// `extensions` that `service::extensions` names, by ID. Exporters refer only to these.
    pub extensions: BTreeMap<ComponentId, Extension>,
    /// `service::pipelines`: which receivers feed which exporters; at least one.
    pub pipelines: BTreeMap<ComponentId, Pipeline>,
    /// `service::telemetry`: Sidewinder's own logs and metrics.
    pub telemetry: Telemetry,
    /// `service::ui`: the live page.
    pub ui: Ui,
}

impl Config {
    /// The exporters that a pipeline uses.
    pub fn used_exporters(&self) -> impl Iterator<Item = (&ComponentId, &ExporterConfig)> {
        let is_used =
            |id: &ComponentId| self.pipelines.values().any(|pipeline| pipeline.exporters.contains(id));
        self.exporters.iter().filter(move |(id, _)| is_used(id))
    }
}

impl Default for Config {
    /// One profiler that writes to the file `profile.otlp`: the configuration if none is given.
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

/// One pipeline: the profiles of every receiver pass through the processors to every exporter.
///
/// There is at least one receiver and one exporter, IDs are unique, and each ID is a key of [`Config::receivers`],
/// [`Config::processors`] or [`Config::exporters`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pipeline {
    /// IDs of the receivers, in the order given.
    pub receivers: Vec<ComponentId>,
    /// IDs of the processors, in order of execution.
    pub processors: Vec<ComponentId>,
    /// IDs of the exporters, in the order given.
    pub exporters: Vec<ComponentId>,
}

impl Pipeline {
    /// The IDs of all components of the pipeline.
    pub fn ids(&self) -> impl Iterator<Item = &ComponentId> {
        self.receivers.iter().chain(&self.processors).chain(&self.exporters)
    }
}
