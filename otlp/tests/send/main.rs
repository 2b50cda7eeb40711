//! Each event given to an exporter is counted once, whatever the receiver does.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod disk;
mod download;
mod grpc;
mod http;
#[allow(dead_code, reason = "shared with the end-to-end tests, which use other parts")]
mod http_receiver;
mod poison;
#[allow(dead_code, reason = "shared with the end-to-end tests, which use other parts")]
mod receiver;
mod tls;

use std::time::Duration;

use receiver::{Answer, Receiver};
use sidewinder_config::{Retry, TlsClient};
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::{SampleAttributes, SampleIdentity};
use sidewinder_otlp::send::{Counts, Exporter, ExporterOptions, ExporterStats, GrpcOptions, State};
use sidewinder_otlp::{Report, ReportBuilder, ReportOptions};
use sidewinder_profile::{Dictionary, FrameType, Line, LinkIndex, Location, Value, key};
use tokio::net::TcpListener;

const START: u64 = 1_700_000_000_000_000_000;

/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// One profile per resource, with two samples and `events` events in total.
fn report(resources: u64, events: u64) -> Report {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    for resource in 0..resources {
        let resource = dictionary.add_attributes([(key::SERVICE_NAME, Value::Str(&format!("s{resource}")))]);
        for event in 0..events {
            let name = ["even", "odd"][event as usize % 2];
            let function = dictionary.add_function_named(name);
            let leaf = dictionary.add_location(&Location {
                address: 16 + event % 2,
                frame_type: FrameType::Native,
                lines: &[Line::new(function)],
                ..Location::default()
            });
            let identity = SampleIdentity {
                resource,
                profile_type: builder.kind(Kind::Cpu { samples_per_second: 19 }),
                stack: dictionary.add_stack(&[leaf]),
                attributes: SampleAttributes::default().add_to(&mut dictionary),
                link: LinkIndex::default(),
            };
            builder.event(&identity, START + event, 1);
        }
    }
    builder.finish(&mut dictionary, START..START + 1).unwrap()
}

/// Retries in quick succession, for a third of a second.
fn impatient() -> Retry {
    Retry {
        initial_interval: Duration::from_millis(10),
        max_interval: Duration::from_millis(20),
        max_elapsed_time: Some(Duration::from_millis(300)),
        ..Retry::default()
    }
}

fn options() -> ExporterOptions {
    ExporterOptions { retry: impatient(), ..ExporterOptions::new("otlp_grpc/test") }
}

fn plaintext(endpoint: &str) -> GrpcOptions {
    let tls = TlsClient { insecure: true, ..TlsClient::default() };
    GrpcOptions { tls, timeout: Duration::from_millis(300), ..GrpcOptions::new(endpoint) }
}

fn start(options: ExporterOptions, grpc: &GrpcOptions) -> Exporter {
    Exporter::grpc(options, grpc).unwrap()
}

/// Waits until nothing is queued.
async fn settled(exporter: &Exporter) -> ExporterStats {
    let waiting = async {
        while exporter.stats().counts.queued.events > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("still queued");
    exporter.stats()
}

/// Checks that all of the report's events are in `state`.
#[track_caller]
fn assert_all(counts: &Counts, state: State, report: &Report) {
    assert_eq!(counts.get(state), report.tally(), "{counts:?}");
    assert_eq!(counts.total(), report.tally(), "{counts:?}");
}

/// The state of one report when a receiver replies like this.
async fn outcome(answers: Vec<Answer>) -> (Counts, Report, Receiver, ExporterStats) {
    let receiver = Receiver::start(answers).await;
    let exporter = start(options(), &plaintext(&receiver.endpoint));
    let report = report(3, 5);
    exporter.enqueue(report.clone());
    assert_eq!(exporter.stats().counts.total(), report.tally());
    let stats = settled(&exporter).await;
    (stats.counts, report, receiver, stats)
}

/// A port without a listener.
async fn dead_port() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// Ends an exporter, which blocks, without blocking the receiver that it sends to.
async fn shut_down(exporter: Exporter, timeout: Duration) -> (Counts, Exporter) {
    tokio::task::spawn_blocking(move || (exporter.shutdown(timeout), exporter)).await.unwrap()
}
