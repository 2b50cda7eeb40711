//! Creates exporters from the configuration, and gives them reports.

use std::collections::BTreeMap;
use std::time::Duration;

use sidewinder_config::{
    ComponentId, Config, EndpointTarget, ExporterConfig, Extension, HttpEndpoint, OtlpGrpcExporter,
    OtlpHttpExporter, Retry, SendingQueue, Sizer, TlsClient,
};
use sidewinder_otlp::Report;
use sidewinder_otlp::send::{
    Counts, Exporter, ExporterCredentials, ExporterError, ExporterOptions, ExporterStats, GrpcOptions,
    HttpOptions, StorageOptions,
};
use tracing::{info, warn};

use sidewinder_base::exit::{ExitCause, Failure};

/// One configured exporter.
#[derive(Debug)]
pub struct Destination {
    name: String,
    labels: Vec<(&'static str, String)>,
    exporter: Exporter,
}

impl Destination {
    /// Opens an exporter whose queue may use `memory_bytes`. Nothing is sent yet.
    pub fn open(id: &ComponentId, config: &Config, memory_bytes: usize) -> Result<Self, Failure> {
        let name = id.to_string();
        let Some(exporter) = config.exporters.get(id) else {
            return Err(Failure::new(ExitCause::Usage, format!("there is no exporter {name}")));
        };
        let context = ExporterContext { name: &name, extensions: &config.extensions, memory_bytes };
        match context.open_exporter(exporter) {
            Ok(opened) => Ok(Self { name, labels: labels(exporter), exporter: opened }),
            Err(error) => {
                Err(Failure::new(ExitCause::Usage, format!("can't set up exporter {name}"))
                    .with_source(error))
            }
        }
    }

    /// The exporter's ID.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it sends to, as labels of metrics.
    pub fn labels(&self) -> &[(&'static str, String)] {
        &self.labels
    }

    /// The states of all events so far, and the state of the queue.
    pub fn stats(&self) -> ExporterStats {
        self.exporter.stats()
    }

    /// Enqueues a report. Never waits for an endpoint.
    pub fn send(&self, report: &Report) {
        self.exporter.enqueue(report.clone());
    }

    /// Closes the exporter, which sends what is queued, for at most `timeout`. Does not wait for that.
    pub fn close(&self, timeout: Duration) {
        self.exporter.close(timeout);
    }

    /// Waits until a closed exporter has ended, and logs the final states of its events.
    pub fn finish(&self) {
        let counts = self.exporter.shutdown(Duration::ZERO);
        self.log_counts(&counts);
    }

    fn log_counts(&self, counts: &Counts) {
        info!(
            exporter = self.name,
            events = counts.total().events,
            delivered = counts.delivered.events,
            queued = counts.queued.events,
            dropped = counts.dropped().events,
            "exporter ended: {counts}"
        );
    }
}

/// The labels with which a Collector describes the endpoint of an exporter of this type.
fn labels(config: &ExporterConfig) -> Vec<(&'static str, String)> {
    let host_and_port = |target: &EndpointTarget| match target {
        EndpointTarget::Tcp { host, port } => {
            vec![("server_address", host.clone()), ("server_port", port.to_string())]
        }
        EndpointTarget::Unix(_) => Vec::new(),
    };
    match config {
        // If the endpoint is a URL, the label has all of it.
        ExporterConfig::OtlpGrpc(config) if config.endpoint.as_str().contains("://") => {
            vec![("server_address", config.endpoint.to_string())]
        }
        ExporterConfig::OtlpGrpc(config) => host_and_port(config.endpoint.target()),
        ExporterConfig::OtlpHttp(config) => {
            let url = config.url();
            let Ok(url) = url.parse::<HttpEndpoint>() else { return Vec::new() };
            let mut labels = host_and_port(url.target());
            if !url.has_port() {
                labels.retain(|(key, _)| *key != "server_port");
            }
            labels.push(("url_path", url.path().to_owned()));
            labels
        }
        ExporterConfig::File(_) | ExporterConfig::Debug(_) => Vec::new(),
    }
}

/// What an exporter needs besides its own configuration.
struct ExporterContext<'a> {
    name: &'a str,
    extensions: &'a BTreeMap<ComponentId, Extension>,
    memory_bytes: usize,
}

impl ExporterContext<'_> {
    fn open_exporter(&self, config: &ExporterConfig) -> Result<Exporter, ExporterError> {
        match config {
            ExporterConfig::OtlpGrpc(config) => {
                let options = self.options(config.retry_on_failure, &config.sending_queue);
                Exporter::grpc(options, &self.grpc(config))
            }
            ExporterConfig::OtlpHttp(config) => {
                let options = self.options(config.retry_on_failure, &config.sending_queue);
                Exporter::http(options, &self.http(config))
            }
            ExporterConfig::File(config) => Exporter::file(self.default_options(), &config.path),
            ExporterConfig::Debug(config) => Exporter::debug(self.default_options(), config.verbosity),
        }
    }

    fn default_options(&self) -> ExporterOptions {
        ExporterOptions { queue_bytes: self.memory_bytes, ..ExporterOptions::new(self.name) }
    }

    fn options(&self, retry: Retry, queue: &SendingQueue) -> ExporterOptions {
        let defaults = self.default_options();
        let queue_bytes = match queue.sizer {
            Sizer::Bytes => queue.queue_size,
            // The queue is bounded by bytes in any case: it is memory that must be limited.
            Sizer::Items | Sizer::Requests => SendingQueue::DEFAULT_SIZE_BYTES,
        };
        let storage = queue.storage.as_ref().and_then(|id| self.extensions.get(id));
        let storage = storage.and_then(|extension| match extension {
            Extension::FileStorage(storage) => Some(StorageOptions {
                directory: storage.directory.clone(),
                create_with_mode: storage.create_directory.then(|| storage.directory_permissions.bits()),
                max_bytes: storage.max_size.map_or(queue_bytes, |max_size| max_size.min(queue_bytes)),
                fsync: storage.fsync,
            }),
            _ => None,
        });
        let configured_bytes = usize::try_from(queue_bytes).unwrap_or(usize::MAX);
        if storage.is_none() && is_reduced(queue, self.memory_bytes) {
            warn!(
                exporter = self.name,
                queue_size = configured_bytes,
                memory_bytes = self.memory_bytes,
                "the queue is smaller than configured: raise memory_limit_mib, or keep it on disk"
            );
        }
        ExporterOptions {
            queue_bytes: configured_bytes.min(self.memory_bytes),
            storage,
            consumers: queue.num_consumers.get().try_into().unwrap_or(usize::MAX),
            retry,
            ..defaults
        }
    }

    fn grpc(&self, config: &OtlpGrpcExporter) -> GrpcOptions {
        GrpcOptions {
            tls: TlsClient { insecure: !config.uses_tls(), ..config.tls.clone() },
            compression: config.compression,
            headers: headers(&config.headers),
            credentials: self.credentials(config.auth.as_ref()),
            timeout: config.timeout.unwrap_or(Duration::ZERO),
            authority: config.authority.clone(),
            wait_for_ready: config.wait_for_ready,
            keepalive: config.keepalive,
            ..GrpcOptions::new(config.endpoint.to_string())
        }
    }

    fn http(&self, config: &OtlpHttpExporter) -> HttpOptions {
        HttpOptions {
            tls: config.tls.clone(),
            compression: config.compression,
            headers: headers(&config.headers),
            credentials: self.credentials(config.auth.as_ref()),
            timeout: config.timeout.unwrap_or(Duration::ZERO),
            ..HttpOptions::new(config.url())
        }
    }

    fn credentials(&self, authenticator: Option<&ComponentId>) -> Option<ExporterCredentials> {
        match self.extensions.get(authenticator?)? {
            Extension::BearerTokenAuth(bearer) => Some(ExporterCredentials::Bearer(bearer.clone())),
            Extension::BasicAuth(basic) => Some(ExporterCredentials::Basic(basic.clone())),
            _ => None,
        }
    }
}

/// Whether a queue in memory gets less than its `sending_queue` asks for. The default asks for nothing: it is as much as memory
/// allows, up to [`SendingQueue::DEFAULT_SIZE_BYTES`].
fn is_reduced(queue: &SendingQueue, memory_bytes: usize) -> bool {
    let memory_bytes = u64::try_from(memory_bytes).unwrap_or(u64::MAX);
    queue.sizer == Sizer::Bytes
        && queue.queue_size != SendingQueue::DEFAULT_SIZE_BYTES
        && queue.queue_size > memory_bytes
}

fn headers(config: &BTreeMap<String, sidewinder_config::Secret>) -> Vec<(String, String)> {
    config.iter().map(|(key, value)| (key.clone(), value.reveal().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_queue_size_that_was_configured_can_be_too_large() {
        let of = |queue_size, sizer| SendingQueue { queue_size, sizer, ..SendingQueue::default() };
        let memory_bytes = 1 << 20;
        assert!(!is_reduced(&SendingQueue::default(), memory_bytes));
        assert!(!is_reduced(&of(1000, Sizer::Requests), memory_bytes), "a number of requests");
        assert!(!is_reduced(&of(1 << 20, Sizer::Bytes), memory_bytes));
        assert!(is_reduced(&of(2 << 20, Sizer::Bytes), memory_bytes));
    }
}
