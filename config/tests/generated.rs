//! Compares the generated files with the table of keys, and the schema with the reader.
//!
//! `SIDEWINDER_WRITE=1 cargo test -p sidewinder-config --test generated` regenerates them.
#![expect(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use sidewinder_config::{ConfigSource, json_schema, load, reference, reference_markdown};

fn at(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn is_up_to_date(name: &str, text: &str) {
    if std::env::var_os("SIDEWINDER_WRITE").is_some() {
        std::fs::write(at(name), text).unwrap();
    }
    let kept = std::fs::read_to_string(at(name)).unwrap_or_default();
    assert!(kept == text, "config/{name} is not what the table says: see the head of this test");
}

#[test]
fn the_page_of_all_keys_matches_the_table() {
    is_up_to_date("REFERENCE.md", &reference_markdown());
}

#[test]
fn the_schema_matches_the_table() {
    is_up_to_date("schema.json", &json_schema());
}

#[test]
fn the_annotated_example_names_every_key_that_acts() {
    let example = std::fs::read_to_string(at("../sidewinder.yaml")).unwrap();
    let mut missing = Vec::new();
    let keys = reference();
    for key in keys.iter().filter(|key| key.limitation.is_none()) {
        let name = key.path.rsplit("::").next().unwrap_or_default().trim_end_matches("[]");
        let is_alias = key.description.starts_with("Deprecated name");
        let below = format!("{}::", key.path);
        let mut keys_below = keys.iter().filter(|key| key.path.starts_with(&below)).peekable();
        // A section in which no key has an effect, and connectors, of which there are none.
        let is_empty_section = keys_below.peek().is_some() && keys_below.all(|key| key.limitation.is_some());
        let mut words = example.split(|c: char| !c.is_alphanumeric() && c != '_');
        if ["*", "connectors"].contains(&name)
            || is_alias
            || is_empty_section
            || words.any(|word| word == name)
        {
            continue;
        }
        missing.push(key.path);
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// Whether the schema accepts a configuration.
fn schema_takes(yaml: &str) -> bool {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let instance: Value = serde_yaml::from_str(yaml).unwrap();
    jsonschema::validator_for(&schema).unwrap().is_valid(&instance)
}

fn reader_takes(yaml: &str) -> bool {
    load(&[ConfigSource::Yaml(yaml.to_owned())], &[], &BTreeMap::new()).is_ok()
}

/// Merges keys of a receiver, an exporter and the service into a valid configuration.
fn with(receiver: &str, exporter: &str, service: &str) -> String {
    format!(
        "{{receivers: {{profiling: {{{receiver}}}}}, exporters: {{otlp_grpc/a: {{endpoint: 'c:4317', {exporter}}}}}, \
         service: {{pipelines: {{profiles: {{receivers: [profiling], exporters: [otlp_grpc/a]}}}}, {service}}}}}"
    )
}

#[test]
fn what_the_reader_takes_the_schema_takes() {
    let example = std::fs::read_to_string(at("../sidewinder.yaml")).unwrap();
    for yaml in [
        &example,
        &with("", "", ""),
        &with(
            "samples_per_second: '${env:RATE:-97}', reporter_interval: 1m30s, error_mode: PROPAGATE",
            "",
            "",
        ),
        &with("events: [{name: page-faults, period: 64}, {name: CPU-cycles, frequency: 97}]", "", ""),
        &with(
            "probes: [{type: uprobe, target: /bin/a, symbol: 'a::b', value: arg0}], probe_links: ['usdt:/bin/a:b:c']",
            "",
            "",
        ),
        &with("frame_cache_size: 5, probes: [], unwind: {overrides: [{name: a, mode: tables}]}", "", ""),
        &with("", "headers: {a: b}, tls: {min_version: '1.3'}, retry_on_failure: {max_elapsed_time: 0}", ""),
        &with("", "headers: [{name: a, value: b}], keepalive: null, balancer_name: round_robin", ""),
        &with(
            "",
            "",
            "telemetry: {resource: {attributes: [{name: c, value: d}], a: b, service.name: null}, metrics: {level: Detailed}}",
        ),
    ] {
        assert!(reader_takes(yaml), "{yaml}");
        assert!(schema_takes(yaml), "{yaml}");
    }
}

#[test]
fn what_the_schema_refuses_the_reader_refuses() {
    for yaml in [
        with("sample_per_second: 97", "", ""),
        with("samples_per_second: 0", "", ""),
        with("samples_per_second: many", "", ""),
        with("reporter_interval: 5", "", ""),
        with("error_mode: stop", "", ""),
        with("unwind: {kernel: 1}", "", ""),
        with("unwind: {overrides: [{nam: a}]}", "", ""),
        with("events: [{name: faulty}]", "", ""),
        with("events: [{name: page-faults, period: 0}]", "", ""),
        with("events: [page-faults]", "", ""),
        with("probes: [{type: probe, target: /bin/a, symbol: b}]", "", ""),
        with("probes: [{type: uprobe, target: /bin/a, symbol: b, valeu: arg0}]", "", ""),
        with("", "compression: brotli", ""),
        with("", "tls: {ca_fil: /x}", ""),
        with("", "headers: {a: 1}", ""),
        with("", "", "telemetry: {logs: {level: loud}}"),
        with("", "", "extension: []"),
        with("", "", "").replace("otlp_grpc/a", "otlp_gprc/a"),
        with("", "", "").replace("profiles:", "profile:"),
    ] {
        assert!(!schema_takes(&yaml), "{yaml}");
        assert!(!reader_takes(&yaml), "{yaml}");
    }
}
