//! What Sidewinder says about itself, beside what a Collector says of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use sidewinder_e2e_charts::promql;
use sidewinder_e2e_support::collector::{self, Collector};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::{self, Gated};
use sidewinder_e2e_support::{http, requirement, sidewinder};

const PATIENCE: Duration = Duration::from_secs(30);

/// The body of a page of this machine.
pub(crate) fn page(port: u16, path: &str) -> Result<String> {
    let answer = http::get(port, path)?;
    ensure!(answer.status == 200, "{path}: {answer:?}");
    Ok(answer.text())
}

/// What a scrape says of one metric: its type and the sets of label keys of its points.
type Metrics = BTreeMap<String, (String, BTreeSet<Vec<String>>)>;

fn scrape(port: u16) -> Result<Metrics> {
    let text = page(port, "/metrics")?;
    let mut metrics = Metrics::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            metrics.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, labels)) = line.split_once('{')
            && let Some((_, keys)) = metrics.get_mut(name)
        {
            let pairs = labels.split('}').next().unwrap_or_default().split("\",");
            keys.insert(pairs.filter_map(|pair| Some(pair.split_once('=')?.0.to_owned())).collect());
        }
    }
    Ok(metrics)
}

/// Waits until `look` finds something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(Some(found)) = look() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("{what}: not within {PATIENCE:?}; the last look: {:?}", look().err());
        }
        thread::sleep(Duration::from_millis(100));
    }
}

pub(crate) fn telemetry(port: u16) -> String {
    format!(
        "telemetry: {{ metrics: {{ readers: [{{ pull: {{ exporter: {{ prometheus: {{ host: 127.0.0.1, port: {port} }} }} }} }}] }} }}"
    )
}

#[promise(Stability)]
fn metrics_with_a_collectors_name_have_its_types_and_labels() -> Result<()> {
    if !requirement::ebpf("metrics with a Collector's name")? {
        return Ok(());
    }
    let [theirs, ours] = collector::free_ports()?;
    let next = Collector::start()?;
    let collector = Collector::start_with_metrics(theirs, &next.grpc_endpoint())?;
    let workload = Gated::start(workload::THREADS.command(&["60", "1"])?)?;
    let settings = Settings { service: vec![telemetry(ours)], ..Settings::of_process(workload.pid()) };
    let mut workload = workload;
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    workload.open()?;
    let theirs = until("a scrape of the Collector that tells of successes and failures", || {
        let metrics = scrape(theirs)?;
        let has_all = ["send_failed", "enqueue_failed", "sent"]
            .iter()
            .all(|what| metrics.contains_key(&format!("otelcol_exporter_{what}_profile_samples")));
        let has_next = page(theirs, "/metrics")?.contains("sent_profile_samples{exporter=\"otlp_grpc/next\"");
        Ok((has_all && has_next).then_some(metrics))
    })?;
    let ours = scrape(ours)?;
    daemon.stop()?;
    let shared: Vec<&String> = ours.keys().filter(|name| name.starts_with("otelcol_")).collect();
    let mut alike = 0;
    for name in shared {
        let (Some(mine), Some(other)) = (ours.get(name), theirs.get(name)) else {
            bail!("a Collector has no {name}; it has {:?}", theirs.keys());
        };
        assert_eq!(mine.0, other.0, "the type of {name}");
        ensure!(mine.1.is_subset(&other.1), "the labels of {name}: {:?} here, {:?} there", mine.1, other.1);
        alike += 1;
    }
    ensure!(alike >= 10, "only {alike} metrics were compared: {:?}", ours.keys());
    Ok(())
}

/// The metrics that have points have the labels by which the charts' dashboard selects and groups them.
fn assert_has_labels_of_dashboard(scraped: &Metrics) -> Result<()> {
    let mut asked = 0;
    for expression in promql::of_dashboard(&promql::dashboard()?) {
        for metric in promql::metrics(&expression) {
            let Some((_, keys)) = scraped.get(metric).filter(|(_, keys)| !keys.is_empty()) else { continue };
            for label in promql::labels(&expression, metric) {
                let has_label = |keys: &Vec<String>| keys.iter().any(|key| key == label);
                ensure!(keys.iter().all(has_label), "{expression}: {metric} has no {label}, but {keys:?}");
                asked += 1;
            }
        }
    }
    ensure!(asked >= 15, "only {asked} labels were compared");
    Ok(())
}

#[promise(Status)]
fn the_command_the_pages_and_the_metrics_tell_the_same() -> Result<()> {
    if !requirement::ebpf("the command, the pages and the metrics")? {
        return Ok(());
    }
    let [metrics, health, zpages] = collector::free_ports()?;
    let collector = Collector::start()?;
    let mut workload = Gated::start(workload::THREADS.command(&["60", "1"])?)?;
    let settings = Settings {
        more: vec!["monitor_interval: 100ms".to_owned()],
        service: vec!["extensions: [health_check, zpages]".to_owned(), telemetry(metrics)],
        top: vec![format!(
            "extensions: {{ health_check: {{ endpoint: 127.0.0.1:{health} }}, zpages: {{ endpoint: 127.0.0.1:{zpages} }} }}"
        )],
        ..Settings::of_process(workload.pid())
    };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    workload.open()?;
    let status = until("a status with delivered events", || {
        let pid = daemon.running().pid().to_string();
        let said = sidewinder::run(&["status", "--json", "--pid", &pid])?;
        ensure!(said.status.success(), "{}", said.log);
        let document: Value = serde_json::from_str(&said.log)?;
        let delivered = document.pointer("/exporters/otlp_grpc/events/delivered").and_then(Value::as_u64);
        Ok(delivered.filter(|delivered| *delivered > 0).map(|_| document))
    })?;
    assert_eq!(status.pointer("/receivers/profiling/activity"), Some(&Value::from("profiling")));
    let complete = status.pointer("/receivers/profiling/interrupts/complete").and_then(Value::as_u64);
    ensure!(complete > Some(0), "{status}");
    let shown = |port: u16, path: &str| until(path, || page(port, path).map(Some));
    ensure!(shown(health, "/")?.contains("Server available"));
    ensure!(shown(zpages, "/debug/pipelinez")?.contains("otlp_grpc"));
    let text = shown(metrics, "/metrics")?;
    for name in [
        "sidewinder_interrupts{outcome=\"complete\"",
        "sidewinder_events{exporter=\"otlp_grpc\",state=\"delivered\"}",
        "sidewinder_maps_bytes",
        "sidewinder_process_reads{",
        "sidewinder_unknown_records{",
        "sidewinder_name_lookups{",
        "sidewinder_frames{",
        "sidewinder_stack_depth_bucket",
        "otelcol_process_cpu_seconds",
    ] {
        ensure!(text.contains(name), "{name} is missing:\n{text}");
    }
    assert_has_labels_of_dashboard(&scrape(metrics)?)?;
    let pid = workload.pid().to_string();
    ensure!(!text.contains(&format!("\"{pid}\"")), "a process id is a label:\n{text}");
    daemon.stop()?;
    Ok(())
}

/// What is wrong is said in words, with what to do, and by the exit code.
#[promise(Status)]
fn the_status_says_what_is_wrong() -> Result<()> {
    if !requirement::ebpf("the status says what is wrong")? {
        return Ok(());
    }
    let [dead] = collector::free_ports()?;
    let mut workload = Gated::start(workload::THREADS.command(&["60", "1"])?)?;
    let daemon = Daemon::start(&Settings::of_process(workload.pid()), &format!("127.0.0.1:{dead}"))?;
    workload.open()?;
    let pid = daemon.running().pid().to_string();
    until("an outage in the status", || {
        Ok(daemon.status()?.pointer("/exporters/otlp_grpc/outage/attempts").map(drop))
    })?;
    let said = sidewinder::run(&["status", "--pid", &pid])?;
    assert_eq!(said.status.code(), Some(1), "{}", said.log);
    for part in [
        ": 1 problem\n",
        &format!("problem: exporter otlp_grpc: nothing could be sent to 127.0.0.1:{dead} for "),
        "Connection refused",
        "next: check that the receiver is running",
        "last failure: ",
    ] {
        ensure!(said.log.to_lowercase().contains(&part.to_lowercase()), "{part} is missing: {}", said.log);
    }
    let json = sidewinder::run(&["status", "--json", "--pid", &pid])?;
    let document: Value = serde_json::from_str(&json.log)?;
    assert_eq!(json.status.code(), Some(1));
    ensure!(document.pointer("/problems/0/next").is_some(), "{document}");
    ensure!(document.pointer("/receivers/profiling/counters/process_reads").is_some(), "{document}");
    ensure!(document.pointer("/exporters/otlp_grpc/outage/attempts").is_some(), "{document}");
    daemon.stop()?;
    Ok(())
}

/// What an environment made for another program says has no say in telemetry of our own.
#[promise(Configuration)]
fn foreign_variables_change_nothing() -> Result<()> {
    if !requirement::ebpf("foreign variables")? {
        return Ok(());
    }
    let [port, dead] = collector::free_ports()?;
    let collector = Collector::start()?;
    let mut workload = Gated::start(workload::THREADS.command(&["20", "1"])?)?;
    let settings = Settings { service: vec![telemetry(port)], ..Settings::of_process(workload.pid()) };
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{dead}")),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b".to_owned()),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "nonsense".to_owned()),
        ("OTEL_SERVICE_NAME", "another-program".to_owned()),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.version=another-program".to_owned()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1".to_owned()),
        ("OTEL_SDK_DISABLED", "true".to_owned()),
    ];
    let daemon = Daemon::start_in(&settings, &collector.grpc_endpoint(), &variables)?;
    workload.open()?;
    let has_accepted =
        |line: &str| line.starts_with("otelcol_receiver_accepted_profile_samples{") && !line.ends_with(" 0");
    let text = until("a scrape that tells of samples", || {
        Ok(Some(page(port, "/metrics")?).filter(|text| text.lines().any(has_accepted)))
    })?;
    daemon.stop()?;
    ensure!(text.contains("service_name=\"sidewinder\"") && !text.contains("another-program"), "{text}");
    ensure!(collector.stop()?.events_of(workload.pid()).count() > 0, "nothing arrived where it was to");
    Ok(())
}
