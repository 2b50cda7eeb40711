//! Sidewinder's own telemetry, as configured by `service::telemetry` and extensions: log, metrics, pages.
//!
//! Input: [`ServiceStats`]. Runs on the telemetry runtime. Nothing listens and nothing is sent unless configured, and by
//! default listeners are on the loopback interface. Only the socket of `sidewinder status` is always open, to its own user and root.

//!
//! | Module                             | Contents                                                                        |
//! |------------------------------------|---------------------------------------------------------------------------------|
//! | [`stats`]                          | the counters and states of the service, which the others show                   |
//! | `metrics`, `instruments`, `otlp`   | metrics, for a scrape and by OTLP                                               |
//! | `logs`, [`log_fields`]             | logs, and the fields of their lines                                             |
//! | `pages`, `status`, `problems`      | the pages of health and status, and what they call a problem                    |
//! | [`status_socket`]                  | the socket that `sidewinder status` asks                                        |
#![forbid(unsafe_code)]

mod instruments;
pub mod log_fields;
mod logs;
mod metrics;
mod otlp;
mod pages;
mod problems;
mod process;
pub mod stats;
mod status;
pub mod status_socket;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_prometheus::ResourceSelector;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use prometheus::Registry;
use sidewinder_config::{
    Config, Extension, ListenAddress, MetricLevel, MetricReader, MetricTelemetry, Telemetry,
};
use sidewinder_server::Server;
use thiserror::Error;
use tokio::runtime::Handle;
use tracing::warn;

use crate::stats::{INTERVAL, ServiceStats};
use logs::{LogError, ReloadableLog};
use otlp::OtlpError;
use status_socket::StatusSocket;

/// Why telemetry can't be set up as configured.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The log can't be set up.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Metrics or logs can't be sent by OTLP.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    /// Metrics can't be collected for a scrape.
    #[error("can't set up metrics for Prometheus")]
    Prometheus(#[source] opentelemetry_sdk::error::OTelSdkError),
}

/// All running telemetry of the service.
#[derive(Debug)]
pub struct RunningTelemetry {
    runtime: Handle,
    stats: Arc<ServiceStats>,
    instance: String,
    setup: TelemetrySetup,
    log: ReloadableLog,
    metrics: Option<MetricsPipeline>,
    pages: BTreeMap<String, Server>,
    _status: Option<StatusSocket>,
}

/// The parts of the configuration that telemetry depends on.
#[derive(Clone, PartialEq, Debug)]
struct TelemetrySetup {
    telemetry: Telemetry,
    extensions: BTreeMap<String, Extension>,
}

impl TelemetrySetup {
    fn from_config(config: &Config) -> Self {
        let extensions = config.extensions.iter().map(|(id, extension)| (id.to_string(), extension.clone()));
        Self { telemetry: config.telemetry.clone(), extensions: extensions.collect() }
    }
}

/// The metrics, and the servers of their Prometheus pages.
#[derive(Debug)]
struct MetricsPipeline {
    provider: SdkMeterProvider,
    _servers: Vec<Server>,
}

impl RunningTelemetry {
    /// Starts the log, the metrics and the pages.
    ///
    /// # Errors
    /// If the configuration can't be applied: a log file can't be opened, or an address is invalid. A port that is in use
    /// and an endpoint that does not respond only cause warnings.
    pub fn start(
        config: &Config,
        stats: Arc<ServiceStats>,
        runtime: &Handle,
    ) -> Result<Self, TelemetryError> {
        let _context = runtime.enter();
        let setup = TelemetrySetup::from_config(config);
        let instance = instance_id();
        let resource = resource(&setup.telemetry, &instance);
        let log = ReloadableLog::start(&setup.telemetry.logs, &resource)?;
        let metrics = MetricsPipeline::start(&setup.telemetry.metrics, resource, &stats, runtime)?;
        let status = StatusSocket::open(Arc::clone(&stats), runtime)
            .inspect_err(|error| {
                warn!(error = error as &dyn std::error::Error, "`sidewinder status` will get no response");
            })
            .ok();
        runtime.spawn(take_snapshots(Arc::downgrade(&stats)));
        let pages = setup
            .extensions
            .iter()
            .filter_map(|(id, extension)| {
                Some((id.clone(), start_extension_page(id, extension, &stats, runtime)?))
            })
            .collect();
        Ok(Self { runtime: runtime.clone(), stats, instance, setup, log, metrics, pages, _status: status })
    }

    /// Applies another configuration. Unchanged parts keep running.
    ///
    /// # Errors
    /// Like [`Self::start`]; the previous configuration then stays in use.
    pub fn reconfigure(&mut self, config: &Config) -> Result<(), TelemetryError> {
        let runtime = self.runtime.clone();
        let _context = runtime.enter();
        let setup = TelemetrySetup::from_config(config);
        let (now, before) = (&setup.telemetry, &self.setup.telemetry);
        let resource = resource(now, &self.instance);
        let is_other_resource = now.resource != before.resource;
        if now.logs != before.logs || is_other_resource {
            self.log.reconfigure(&now.logs, &resource)?;
        }
        if now.metrics != before.metrics || is_other_resource {
            // The ports must be free before they are listened on again.
            let before = before.clone();
            shutdown_metrics(self.metrics.take());
            match MetricsPipeline::start(&now.metrics, resource, &self.stats, &runtime) {
                Ok(metrics) => self.metrics = metrics,
                Err(error) => {
                    self.log.reconfigure(&before.logs, &self::resource(&before, &self.instance))?;
                    let resource = self::resource(&before, &self.instance);
                    self.metrics = MetricsPipeline::start(&before.metrics, resource, &self.stats, &runtime)?;
                    return Err(error);
                }
            }
        }
        self.pages.retain(|id, _| setup.extensions.get(id) == self.setup.extensions.get(id));
        for (id, extension) in &setup.extensions {
            if !self.pages.contains_key(id) {
                self.pages.extend(
                    start_extension_page(id, extension, &self.stats, &runtime).map(|page| (id.clone(), page)),
                );
            }
        }
        self.setup = setup;
        Ok(())
    }

    /// Sends what is pending, in bounded time, and stops.
    pub fn shutdown(mut self) {
        shutdown_metrics(self.metrics.take());
        self.log.flush_and_stop();
    }
}

impl MetricsPipeline {
    fn start(
        config: &MetricTelemetry,
        resource: Resource,
        stats: &Arc<ServiceStats>,
        runtime: &Handle,
    ) -> Result<Option<Self>, TelemetryError> {
        stats.measure_stack_depths(None);
        if config.level == MetricLevel::None || config.readers.is_empty() {
            return Ok(None);
        }
        let mut builder = SdkMeterProvider::builder().with_resource(resource);
        let mut registries = Vec::new();
        for reader in &config.readers {
            builder = match reader {
                MetricReader::Periodic(reader) => {
                    let exporter = otlp::metric_exporter(&reader.exporter)?;
                    builder
                        .with_reader(PeriodicReader::builder(exporter).with_interval(reader.interval).build())
                }
                MetricReader::Prometheus(reader) => {
                    let registry = Registry::new();
                    let mut exporter = opentelemetry_prometheus::exporter()
                        .with_registry(registry.clone())
                        .with_resource_selector(ResourceSelector::None)
                        .scope_info_enabled(!reader.without_scope_info);
                    if reader.without_units {
                        exporter = exporter.without_units();
                    }
                    if reader.without_type_suffix {
                        exporter = exporter.without_counter_suffixes();
                    }
                    registries
                        .push((ListenAddress { host: reader.host.clone(), port: reader.port }, registry));
                    builder.with_reader(exporter.build().map_err(TelemetryError::Prometheus)?)
                }
            };
        }
        let provider = builder.build();
        let depths = instruments::register(&provider.meter("sidewinder"), config.level, stats);
        stats.measure_stack_depths(depths);
        let servers = registries
            .into_iter()
            .map(|(address, registry)| {
                Server::start("metrics".to_owned(), address, pages::metrics_handler(registry), runtime)
            })
            .collect();
        Ok(Some(Self { provider, _servers: servers }))
    }
}

/// Takes a snapshot of the counters every [`INTERVAL`], until the statistics are dropped. `status` compares the counters
/// with them.
async fn take_snapshots(stats: Weak<ServiceStats>) {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        let Some(stats) = stats.upgrade() else { return };
        stats.take_snapshot();
    }
}

/// Sends the last metrics and stops.
fn shutdown_metrics(metrics: Option<MetricsPipeline>) {
    const TIMEOUT: Duration = Duration::from_secs(1);
    if let Some(metrics) = metrics {
        // A failure can't be reported: the log may have ended.
        let _ = metrics.provider.shutdown_with_timeout(TIMEOUT);
    }
}

/// Starts the page of an extension, if it has one.
fn start_extension_page(
    id: &str,
    extension: &Extension,
    stats: &Arc<ServiceStats>,
    runtime: &Handle,
) -> Option<Server> {
    let (address, handler) = match extension {
        Extension::HealthCheck(config) => {
            (&config.endpoint, pages::health_handler(config, Arc::clone(stats)))
        }
        Extension::Zpages(config) => (&config.endpoint, pages::zpages_handler(Arc::clone(stats))),
        Extension::FileStorage(_) | Extension::BearerTokenAuth(_) | Extension::BasicAuth(_) => return None,
    };
    Some(Server::start(id.to_owned(), address.clone(), handler, runtime))
}

/// The resource of Sidewinder's telemetry: the attributes that a Collector has, with the user's additions, changes and
/// removals.
fn resource(config: &Telemetry, instance: &str) -> Resource {
    let mut attributes: BTreeMap<&str, &str> = BTreeMap::from([
        ("service.name", "sidewinder"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", instance),
    ]);
    for (key, value) in &config.resource {
        match value {
            Some(value) => drop(attributes.insert(key, value)),
            None => drop(attributes.remove(key.as_str())),
        }
    }
    let attributes =
        attributes.into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned()));
    // Starts empty, so that environment variables add nothing.
    Resource::builder_empty().with_attributes(attributes).build()
}

/// A random instance ID, as in a Collector; empty if the kernel provides none.
fn instance_id() -> String {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    uuid.trim().to_owned()
}
