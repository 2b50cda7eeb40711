//! Who the service is, and where its spans go.

use opentelemetry::KeyValue;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;

pub const NAME: &str = "example";
pub const VERSION: &str = "1.2.3";
pub const INSTANCE: &str = "one";

/// Makes spans, and sends them to where `OTEL_EXPORTER_OTLP_ENDPOINT` says, if it is set. Their resource has
/// `OTEL_RESOURCE_ATTRIBUTES` besides.
pub fn tracer_provider() -> Result<SdkTracerProvider, ExporterBuildError> {
    let attributes =
        [KeyValue::new("service.version", VERSION), KeyValue::new("service.instance.id", INSTANCE)];
    let resource = Resource::builder().with_service_name(NAME).with_attributes(attributes).build();
    let provider = SdkTracerProvider::builder().with_resource(resource);
    Ok(match std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT") {
        Some(_) => provider.with_batch_exporter(SpanExporter::builder().with_http().build()?).build(),
        None => provider.build(),
    })
}
