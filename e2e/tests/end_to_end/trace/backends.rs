//! Spans and profiles of one service arrive as of one, through a Collector that runs by the configurations in
//! `otlp/TRACES.md`, word for word but for where things are.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_instrumented::service::Service;
use sidewinder_e2e_instrumented::spans::Stays;
use sidewinder_e2e_support::collector::{Collector, Documented, Setup, Version};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::received::span::{Attributes, Span};
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_otlp::decode::{AttributeValue, DecodedProfile};

use super::documentation;
use super::{events_once_known, judge, route_of};

const DOCUMENT: &str = "otlp/TRACES.md";
/// Where a service runs, as Kubernetes' downward API tells it.
const SURROUNDINGS: [(&str, &str); 5] = [
    ("container.id", "7ad7c8fbc1a7b5e9e0f8b1c64ab0f4fc3b1d2a90c5e1f0a8d7b6c5e4f3a2b1c0"),
    ("k8s.namespace.name", "shop"),
    ("k8s.pod.name", "shop-6d4cf56db6-x2v9p"),
    ("k8s.pod.uid", "2b1e9d7c-0a5f-4c1c-9a3e-6f1f3c0e8d11"),
    ("service.namespace", "shop"),
];
/// The attributes by which a backend tells that both signals are of one service.
const JOINING: [&str; 4] = ["service.", "k8s.", "container.", "deployment."];
/// How far the clocks of spans and of events may differ.
const TOLERANCE_NS: u64 = 100_000;

/// Both signals of the service as a backend gets them that is behind a Collector of a documented configuration.
fn through(heading: &str, version: Version) -> Result<(Stays, Received)> {
    let backend = Collector::start()?;
    let documented = Documented {
        text: documentation::yaml_below(DOCUMENT, heading)?,
        grpc: backend.grpc_endpoint(),
        http: backend.http_endpoint(),
    };
    let gateway = Collector::set_up(Setup { version, documented: Some(documented), ..Setup::default() })?;
    let surroundings = SURROUNDINGS.map(|(key, value)| format!("{key}={value}")).join(",");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", gateway.http_endpoint()),
        ("OTEL_RESOURCE_ATTRIBUTES", surroundings),
        // None is to be lost on the way.
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100000".to_owned()),
    ];
    let service = Service::start_in(16, 400, &variables)?;
    let settings = Settings {
        more: vec!["trace_context: { attributes: [http.route] }".to_owned()],
        ..Settings::of_process(service.pid())
    };
    let daemon = Daemon::start(&settings, &gateway.grpc_endpoint())?;
    service.ask(16, Duration::from_secs(5))?;
    let stays = service.finish()?;
    daemon.stop()?;
    // What it has not yet sent on it sends at its end.
    gateway.stop()?;
    Ok((stays, backend.stop()?))
}

fn joining(attributes: impl IntoIterator<Item = (String, String)>) -> Attributes {
    let joins = |(key, _): &(String, String)| JOINING.iter().any(|start| key.starts_with(start));
    attributes.into_iter().filter(joins).collect()
}

fn joining_of(profile: &DecodedProfile) -> Attributes {
    let text = |value: &AttributeValue| value.as_str().map(str::to_owned);
    joining(profile.resource.iter().filter_map(|(key, value)| Some((key.to_string(), text(value)?))))
}

/// Each span is there once; the resources of both signals have the same attributes, those of the service, of its surroundings
/// and of the Collector's processors; and each linked event lies within the span that it is linked to.
fn judge_signals(stays: &Stays, received: &Received, added: &[(&str, &str)]) -> Result<()> {
    let spans: HashMap<_, &Span> =
        received.spans.iter().map(|span| ((span.trace_id, span.span_id), span)).collect();
    ensure!(spans.len() == received.spans.len(), "a span came twice");
    ensure!(spans.len() == stays.spans(), "{} of {} spans", spans.len(), stays.spans());

    let events = events_once_known(received)?;
    judge(&events, Some(stays))?;
    let service = [("service.name", "example"), ("service.version", "1.2.3"), ("service.instance.id", "one")];
    let expected = SURROUNDINGS.iter().chain(&service).chain(added);
    let expected: Attributes =
        expected.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    for span in &received.spans {
        let resource = joining((*span.resource).clone());
        ensure!(resource == expected, "a span of {resource:?}");
    }
    let mut linked = 0_u64;
    for event in &events {
        let resource = joining_of(event.profile);
        ensure!(
            resource == expected,
            "{resource:?} at {} of {}..{}: {:?}, {:?}",
            event.time_unix_ns,
            events[0].time_unix_ns,
            events[events.len() - 1].time_unix_ns,
            event.profile.resource,
            event.sample
        );
        let Some(link) = event.sample.link else { continue };
        let span = spans.get(&(link.trace_id, link.span_id)).context("an event of a span that never came")?;
        let [start_ns, end_ns] = span.time_unix_ns;
        ensure!(
            (start_ns - TOLERANCE_NS..end_ns + TOLERANCE_NS).contains(&event.time_unix_ns),
            "an event at {} of {span:?}",
            event.time_unix_ns
        );
        ensure!(route_of(event) == span.attributes.get("http.route").map(String::as_str), "{span:?}");
        linked += 1;
    }
    eprintln!("{} spans, {linked} events linked to one of them", spans.len());
    Ok(())
}

#[promise(TraceExamples, test_all)]
fn grafana_joins_a_span_to_its_profile() -> Result<()> {
    if !requirement::ebpf("spans and profiles for Grafana")? {
        return Ok(());
    }
    let (stays, received) = through("### Grafana: Tempo and Pyroscope", Version::Oldest)?;
    judge_signals(&stays, &received, &[("k8s.cluster.name", "production")])?;
    for span in &received.spans {
        let id = hex::encode(span.span_id);
        ensure!(span.attributes.get("pyroscope.profile.id") == Some(&id), "{span:?}");
    }
    Ok(())
}

#[promise(TraceExamples, test_all)]
fn one_backend_takes_both_signals() -> Result<()> {
    if !requirement::ebpf("spans and profiles for one backend")? {
        return Ok(());
    }
    let (stays, received) = through("### One backend for all: Elastic and others", Version::Oldest)?;
    judge_signals(&stays, &received, &[("deployment.environment.name", "production")])
}
