//! Where reports go: the exporters as configured.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use sidewinder_config::{Exporter as ExporterConfig, OtlpGrpcExporter, Pem, Sizer, Verbosity};
use sidewinder_otlp::Report;
use sidewinder_otlp::send::file::FileExporter;
use sidewinder_otlp::send::{
    Compression, Counts, Exporter, ExporterOptions, GrpcOptions, RetryOptions, TlsOptions,
};
use tokio::runtime::{Handle, Runtime};
use tracing::{error, info};

use crate::command::run::lock;
use crate::exit::{Cause, Failure};

/// One exporter.
#[derive(Debug)]
pub(crate) struct Destination {
    name: String,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Grpc(Exporter),
    File(Mutex<FileExporter>),
    Log(Verbosity),
}

impl Destination {
    /// Opens an exporter. Nothing is sent yet.
    pub(crate) fn open(name: &str, config: &ExporterConfig, runtime: &Handle) -> Result<Self, Failure> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            Failure::new(Cause::Usage, format!("can't set up exporter {name}")).because(error)
        };
        let way = match config {
            ExporterConfig::OtlpGrpc(config) => {
                let exporter = Exporter::grpc(exporter_options(name, config), &grpc_options(config), runtime);
                Way::Grpc(exporter.map_err(|error| failed(error.into()))?)
            }
            ExporterConfig::OtlpHttp(_) => {
                return Err(failed("OTLP over HTTP is not in this version: use otlp_grpc".into()));
            }
            ExporterConfig::File(config) => {
                match fs::remove_file(&config.path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(failed(error.into()));
                    }
                    _ => {}
                }
                Way::File(Mutex::new(FileExporter::open(&config.path).map_err(|error| failed(error.into()))?))
            }
            ExporterConfig::Debug(config) => Way::Log(config.verbosity),
        };
        Ok(Self { name: name.to_owned(), way })
    }

    /// Hands a report over; never waits for a receiver.
    pub(crate) fn send(&self, report: &Report) {
        match &self.way {
            Way::Grpc(exporter) => exporter.enqueue(report.clone()),
            Way::File(file) => {
                if let Err(error) = lock(file).append(report) {
                    error!(
                        exporter = self.name,
                        error = &error as &dyn std::error::Error,
                        "a report is lost"
                    );
                }
            }
            Way::Log(verbosity) => {
                let tally = report.tally();
                info!(
                    exporter = self.name,
                    profiles = report.profiles(),
                    samples = tally.samples,
                    events = tally.events,
                    bytes = report.as_bytes().len(),
                    ?verbosity,
                    "profiles"
                );
            }
        }
    }

    /// Sends what is left, no longer than `timeout`, and says what became of all events.
    pub(crate) fn shutdown(&self, runtime: &Runtime, timeout: Duration) {
        let counts = match &self.way {
            Way::Grpc(exporter) => runtime.block_on(exporter.shutdown(timeout)),
            Way::File(file) => lock(file).counts(),
            Way::Log(_) => return,
        };
        self.say(&counts);
    }

    fn say(&self, counts: &Counts) {
        info!(
            exporter = self.name,
            events = counts.total().events,
            delivered = counts.delivered.events,
            dropped = counts.dropped().events,
            counts = ?counts,
            "exporter ended"
        );
    }
}

fn exporter_options(name: &str, config: &OtlpGrpcExporter) -> ExporterOptions {
    let retry = &config.retry_on_failure;
    let queue = &config.sending_queue;
    // Its log lines say where it sends to.
    let defaults = ExporterOptions::named(format!("{name} to {}", config.endpoint));
    ExporterOptions {
        queue_bytes: match queue.sizer {
            Sizer::Bytes => usize::try_from(queue.queue_size).unwrap_or(usize::MAX),
            // Counted in bytes all the same: memory is what must be bounded.
            Sizer::Items | Sizer::Requests => defaults.queue_bytes,
        },
        consumers: queue.num_consumers.get().try_into().unwrap_or(usize::MAX),
        retry: RetryOptions {
            enabled: retry.enabled,
            initial_interval: retry.initial_interval,
            multiplier: retry.multiplier.get(),
            randomization_factor: retry.randomization_factor.get(),
            max_interval: retry.max_interval,
            max_elapsed_time: retry.max_elapsed_time.unwrap_or(Duration::ZERO),
        },
        ..defaults
    }
}

fn grpc_options(config: &OtlpGrpcExporter) -> GrpcOptions {
    GrpcOptions {
        endpoint: config.endpoint.to_string(),
        tls: tls_options(config),
        compression: match config.compression {
            sidewinder_config::Compression::None => Compression::None,
            sidewinder_config::Compression::Gzip => Compression::Gzip,
            sidewinder_config::Compression::Zstd => Compression::Zstd,
        },
        headers: config.headers.iter().map(|(key, value)| (key.clone(), value.reveal().to_owned())).collect(),
        timeout: config.timeout.unwrap_or(Duration::ZERO),
    }
}

fn tls_options(config: &OtlpGrpcExporter) -> TlsOptions {
    let pem = |pem: &Pem| match pem {
        Pem::File(path) => sidewinder_otlp::send::Pem::File(path.clone()),
        Pem::Text(text) => sidewinder_otlp::send::Pem::Text(text.reveal().to_owned()),
    };
    let tls = &config.tls;
    TlsOptions {
        insecure: !config.uses_tls(),
        ca: tls.ca.as_ref().map(pem),
        include_system_ca_certs_pool: tls.include_system_ca_certs_pool,
        cert: tls.identity.as_ref().map(|identity| pem(&identity.certificate)),
        key: tls.identity.as_ref().map(|identity| pem(&identity.key)),
        server_name_override: tls.server_name_override.clone(),
    }
}
