//! Exporters of Sidewinder's own metrics and logs: OTLP over gRPC, configured by `service::telemetry` only.
//!
//! The SDK's exporters also read the environment variables `OTEL_EXPORTER_OTLP_*`, which in Sidewinder configure profiles.
//! To override them, the exporters use a channel that is made here, and each request's metadata is replaced after the
//! exporter has set its own.

use std::time::Duration;

use opentelemetry_otlp::{Compression, LogExporter, MetricExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::metrics::Temporality;
use sidewinder_config::{OtlpTelemetry, Temporality as TemporalityConfig};
use thiserror::Error;
use tonic::Request;
use tonic::metadata::{MetadataKey, MetadataMap};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

/// Why an exporter of telemetry can't be set up.
#[derive(Debug, Error)]
pub enum OtlpError {
    #[error(
        "{endpoint} is not an address for OTLP over gRPC: give host:port, http://host:port or https://host:port"
    )]
    Endpoint { endpoint: String, source: tonic::transport::Error },
    #[error("the header {0:?} can't be sent over gRPC")]
    Header(String),
    #[error("can't set up the exporter of telemetry to {endpoint}")]
    Exporter { endpoint: String, source: opentelemetry_otlp::ExporterBuildError },
}

/// An exporter of metrics.
pub(super) fn metric_exporter(config: &OtlpTelemetry) -> Result<MetricExporter, OtlpError> {
    let metadata = metadata(config)?;
    MetricExporter::builder()
        .with_tonic()
        .with_channel(channel(config)?)
        .with_timeout(config.timeout)
        .with_compression(Compression::Gzip)
        .with_interceptor(move |request| replace_metadata(&metadata, request))
        .with_temporality(match config.temporality_preference {
            TemporalityConfig::Cumulative => Temporality::Cumulative,
            TemporalityConfig::Delta => Temporality::Delta,
            TemporalityConfig::LowMemory => Temporality::LowMemory,
        })
        .build()
        .map_err(|source| OtlpError::Exporter { endpoint: config.endpoint.clone(), source })
}

/// An exporter of log records.
pub(super) fn log_exporter(config: &OtlpTelemetry) -> Result<LogExporter, OtlpError> {
    let metadata = metadata(config)?;
    LogExporter::builder()
        .with_tonic()
        .with_channel(channel(config)?)
        .with_timeout(config.timeout)
        .with_compression(Compression::Gzip)
        .with_interceptor(move |request| replace_metadata(&metadata, request))
        .build()
        .map_err(|source| OtlpError::Exporter { endpoint: config.endpoint.clone(), source })
}

/// A channel that connects when something is sent, and reconnects when the connection breaks.
fn channel(config: &OtlpTelemetry) -> Result<Channel, OtlpError> {
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    let address = config.endpoint.as_str();
    let url = match address.contains("://") {
        true => address.to_owned(),
        false if config.insecure => format!("http://{address}"),
        false => format!("https://{address}"),
    };
    let failed = |source| OtlpError::Endpoint { endpoint: address.to_owned(), source };
    let is_encrypted = url.starts_with("https://");
    let mut endpoint = Endpoint::from_shared(url).map_err(failed)?.connect_timeout(CONNECT_TIMEOUT);
    if is_encrypted {
        endpoint = endpoint.tls_config(ClientTlsConfig::new().with_native_roots()).map_err(failed)?;
    }
    Ok(endpoint.connect_lazy())
}

fn metadata(config: &OtlpTelemetry) -> Result<MetadataMap, OtlpError> {
    let mut metadata = MetadataMap::new();
    for (name, value) in &config.headers {
        let refused = || OtlpError::Header(name.clone());
        let key = MetadataKey::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        metadata.insert(key, value.reveal().parse().map_err(|_| refused())?);
    }
    Ok(metadata)
}

/// The request with exactly this metadata.
fn replace_metadata(metadata: &MetadataMap, mut request: Request<()>) -> Result<Request<()>, tonic::Status> {
    *request.metadata_mut() = metadata.clone();
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_exactly_the_configured_metadata() {
        let mut original = Request::new(());
        original.metadata_mut().insert("authorization", "from the environment".parse().unwrap());
        let headers = [("x-org".to_owned(), sidewinder_config::Secret::new("mine".to_owned()))];
        let config = OtlpTelemetry { headers: headers.into(), ..OtlpTelemetry::default() };
        let request = replace_metadata(&metadata(&config).unwrap(), original).unwrap();
        assert_eq!(request.metadata().len(), 1);
        assert_eq!(request.metadata().get("x-org").unwrap(), "mine");
    }
}
