//! What an exporter is given arrives, or ends in a state that says why not: with real Collectors and real faults.

mod certificates;
mod faults;
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the exporters' own tests, of which this uses a part"
)]
#[path = "../../../otlp/tests/send/receiver.rs"]
mod grpc_receiver;
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the exporters' own tests, of which this uses a part"
)]
#[path = "../../../otlp/tests/send/http_receiver.rs"]
mod http_receiver;
mod isolation;
mod ledger;
mod matrix;
mod proxy;
mod restart;
mod scripted;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sidewinder_config::{Compression, Retry, TlsClient};
use sidewinder_e2e_support::collector::Collector;
use sidewinder_otlp::send::{Exporter, ExporterOptions, GrpcOptions, HttpOptions};

use self::ledger::{Row, Source};

/// Events in a report.
const EVENTS: u64 = 50;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tries again in quick succession, without end.
fn options() -> ExporterOptions {
    let retry = Retry {
        initial_interval: Duration::from_millis(20),
        max_interval: Duration::from_millis(100),
        max_elapsed_time: None,
        ..Retry::default()
    };
    ExporterOptions { retry, ..ExporterOptions::new("otlp/test") }
}

/// gRPC or HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    Grpc,
    Http,
}

/// Where to send, and how.
#[derive(Clone, Debug)]
struct Way {
    protocol: Protocol,
    /// A gRPC endpoint or the URL before the path.
    endpoint: String,
    tls: TlsClient,
    compression: Compression,
    timeout: Duration,
}

impl Way {
    fn plain(protocol: Protocol, endpoint: String) -> Self {
        let tls = TlsClient { insecure: true, ..TlsClient::default() };
        Self { protocol, endpoint, tls, compression: Compression::Gzip, timeout: Duration::from_millis(500) }
    }

    fn to(collector: &Collector, protocol: Protocol) -> Self {
        let endpoint = match protocol {
            Protocol::Grpc => collector.grpc_endpoint(),
            Protocol::Http => collector.http_endpoint(),
        };
        Self::plain(protocol, endpoint)
    }

    fn open(&self, options: ExporterOptions) -> Result<Exporter> {
        let Self { tls, compression, timeout, .. } = self.clone();
        Ok(match self.protocol {
            Protocol::Grpc => Exporter::grpc(
                options,
                &GrpcOptions { tls, compression, timeout, ..GrpcOptions::new(self.endpoint.clone()) },
            )?,
            Protocol::Http => {
                let url = format!("{}/v1development/profiles", self.endpoint);
                Exporter::http(options, &HttpOptions { tls, compression, timeout, ..HttpOptions::new(url) })?
            }
        })
    }
}

/// Waits until something holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            bail!("{what}: not within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits until nothing is queued any more.
fn settle(exporter: &Exporter) -> Result<()> {
    wait_until("nothing is queued", || exporter.stats().counts.queued.events == 0)
}

#[track_caller]
fn assert_balanced(row: &Row) {
    eprintln!("{row}");
    assert!(row.balances(), "{row:?}");
    for state in row.states() {
        assert!(!row.without(state).balances(), "{} can be left out: {row:?}", state.as_str());
    }
}

/// A report every 20 ms, each at once.
fn feed(exporter: &Exporter, source: &mut Source, reports: u64) {
    for _ in 0..reports {
        exporter.enqueue(source.report(EVENTS));
        thread::sleep(Duration::from_millis(20));
    }
}
