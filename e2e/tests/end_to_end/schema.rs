//! What `config/schema.json` says is valid, by Python's `jsonschema`, and what Sidewinder's reader takes are the same.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_config::{ConfigSource, load};
use sidewinder_e2e_support::paths;
use sidewinder_e2e_support::promise::promise;

/// Prints of each instance of a list whether it is valid.
const JUDGE: &str = "
import json, sys
from jsonschema.validators import validator_for
with open(sys.argv[1]) as file:
    schema = json.load(file)
validator = validator_for(schema)
validator.check_schema(schema)
print(json.dumps([validator(schema).is_valid(instance) for instance in json.load(sys.stdin)]))
";

/// Whether the schema accepts each configuration.
fn schema_takes(configurations: &[String]) -> Result<Vec<bool>> {
    let instances: Vec<Value> =
        configurations.iter().map(|yaml| Ok(serde_yaml::from_str(yaml)?)).collect::<Result<_>>()?;
    let mut judge = Command::new("python3")
        .args(["-c", JUDGE])
        .arg(paths::repository().join("config/schema.json"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("python3 can't be started")?;
    judge.stdin.take().context("no pipe to python3")?.write_all(&serde_json::to_vec(&instances)?)?;
    let output = judge.wait_with_output()?;
    ensure!(
        output.status.success(),
        "python3 with jsonschema (Debian: python3-jsonschema): {}",
        output.status
    );
    let accepted: Vec<bool> = serde_json::from_slice(&output.stdout)?;
    ensure!(accepted.len() == configurations.len(), "{} of {} judged", accepted.len(), configurations.len());
    Ok(accepted)
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

#[promise(Configuration)]
fn what_the_reader_takes_the_schema_takes() -> Result<()> {
    let configurations = [
        fs::read_to_string(paths::repository().join("sidewinder.yaml"))?,
        with("", "", ""),
        with(
            "samples_per_second: '${env:RATE:-97}', reporter_interval: 1m30s, error_mode: PROPAGATE",
            "",
            "",
        ),
        with("events: [{name: page-faults, period: 64}, {name: CPU-cycles, frequency: 97}]", "", ""),
        with(
            "probes: [{type: uprobe, target: /bin/a, symbol: 'a::b', value: arg0}], probe_links: ['usdt:/bin/a:b:c']",
            "",
            "",
        ),
        with("frame_cache_size: 5, probes: [], unwind: {overrides: [{name: a, mode: tables}]}", "", ""),
        with("", "headers: {a: b}, tls: {min_version: '1.3'}, retry_on_failure: {max_elapsed_time: 0}", ""),
        with("", "headers: [{name: a, value: b}], keepalive: null, balancer_name: round_robin", ""),
        with(
            "",
            "",
            "telemetry: {resource: {attributes: [{name: c, value: d}], a: b, service.name: null}, metrics: {level: Detailed}}",
        ),
    ];
    for (yaml, schema_takes_it) in configurations.iter().zip(schema_takes(&configurations)?) {
        assert!(reader_takes(yaml), "{yaml}");
        assert!(schema_takes_it, "{yaml}");
    }
    Ok(())
}

#[promise(Configuration)]
fn what_the_schema_refuses_the_reader_refuses() -> Result<()> {
    let configurations = [
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
    ];
    for (yaml, schema_takes_it) in configurations.iter().zip(schema_takes(&configurations)?) {
        assert!(!schema_takes_it, "{yaml}");
        assert!(!reader_takes(yaml), "{yaml}");
    }
    Ok(())
}
