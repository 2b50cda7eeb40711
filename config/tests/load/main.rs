//! Loads texts as users write them, and checks the configurations or errors.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what goes wrong in a test fails it")]

mod components;
mod exporters;
mod output;
mod sources;
mod telemetry;

use std::collections::BTreeMap;
use std::time::Duration;

use sidewinder_config::*;
use sidewinder_kind::{Counter, CounterRate, SampledCounter};

type Variables = BTreeMap<String, String>;

/// A pipeline from a profiler to a file, which tests extend.
const MINIMAL: &str = "
receivers: {profiling: }
exporters: {file: {path: p.otlp}}
service: {pipelines: {profiles: {receivers: [profiling], exporters: [file]}}}
";

fn yaml(text: &str) -> ConfigSource {
    ConfigSource::Yaml(text.to_owned())
}

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Loads [`MINIMAL`] with `texts` merged into it.
fn load_over(texts: &[&str]) -> Result<LoadedConfig, ConfigErrors> {
    let sources: Vec<ConfigSource> = std::iter::once(&MINIMAL).chain(texts).map(|text| yaml(text)).collect();
    load(&sources, &[], &Variables::new())
}

fn errors(text: &str) -> Vec<String> {
    let errors = load_over(&[text]).unwrap_err();
    errors.as_slice().iter().map(ToString::to_string).collect()
}

fn error(text: &str) -> String {
    let errors = errors(text);
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.into_iter().next().unwrap()
}

fn warnings(loaded: &LoadedConfig) -> Vec<String> {
    loaded.warnings.iter().map(ToString::to_string).collect()
}

fn receiver(loaded: &LoadedConfig) -> &ProfilingReceiver {
    loaded.config.receivers.values().next().unwrap()
}

fn grpc(keys: &str) -> String {
    format!(
        "exporters: {{otlp_grpc: {{endpoint: 'collector:4317', {keys}}}}}\n\
         service: {{pipelines: {{profiles: {{exporters: [file, otlp_grpc]}}}}}}"
    )
}

fn grpc_exporter(keys: &str) -> OtlpGrpcExporter {
    let loaded = load_over(&[&grpc(keys)]).unwrap();
    match loaded.config.exporters.get(&"otlp_grpc".parse().unwrap()) {
        Some(ExporterConfig::OtlpGrpc(exporter)) => exporter.as_ref().clone(),
        other => panic!("otlp_grpc was configured, not {other:?}"),
    }
}
