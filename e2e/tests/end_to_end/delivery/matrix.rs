//! Every way to a real Collector: three transports, three compressions, plain, TLS and mutual TLS; to the newest one also what
//! it says of another version of the signal.

use std::future;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use sidewinder_config::{Compression, Retry};
use sidewinder_e2e_support::collector::{Collector, Setup, Version};
use sidewinder_e2e_support::promise::promise;
use sidewinder_otlp::send::{Counts, State};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::Service as _;

use super::certificates::{Authority, EXPIRED, VALID, of_client, of_server};
use super::grpc_receiver::{Answer, Receiver};
use super::ledger::{Row, Source};
use super::proxy::{Conduct, Proxy};
use super::scripted::runtime;
use super::{PATIENCE, Protocol, Way, options, settle, wait_until};

const REPORTS: u64 = 3;
const EVENTS: u64 = 200;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Security {
    Plain,
    Tls,
    MutualTls,
    /// Plain, and gRPC over a Unix socket.
    UnixSocket,
}

/// Everything that one Collector is sent: what it has written is what was made, event for event.
fn assert_arrives(version: Version, security: Security) -> Result<()> {
    let authority = Authority::new()?;
    let (server, client) = (tempfile::tempdir()?, tempfile::tempdir()?);
    authority.place(server.path(), "127.0.0.1", VALID)?;
    authority.place(client.path(), "sidewinder", VALID)?;
    let shows_itself = security == Security::MutualTls;
    let is_protected = matches!(security, Security::Tls | Security::MutualTls);
    let client_ca = shows_itself.then(|| server.path().join("ca.pem"));
    let collector = Collector::set_up(Setup {
        version,
        unix_socket: security == Security::UnixSocket,
        tls: is_protected.then(|| of_server(server.path(), client_ca)),
        ..Setup::default()
    })?;
    let mut source = Source::default();
    let mut counts = Counts::default();
    for protocol in [Protocol::Grpc, Protocol::Http] {
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let mut way = Way { compression, timeout: PATIENCE, ..Way::to(&collector, protocol) };
            if is_protected {
                way.tls = of_client(client.path(), shows_itself);
            }
            let exporter = way.open(options())?;
            for _ in 0..REPORTS {
                exporter.enqueue(source.report(EVENTS));
            }
            let own = exporter.shutdown(PATIENCE);
            assert_eq!(
                own.delivered.events,
                REPORTS * EVENTS,
                "{security:?} {way:?}: {:?}",
                exporter.stats()
            );
            counts.delivered += own.delivered;
        }
    }
    let row = Row::new(&format!("{} {security:?}", version.as_str()), &source, counts, &collector.stop()?);
    eprintln!("{}\n{row}", Row::HEAD);
    assert!(row.balances() && !row.without(State::Delivered).balances(), "{row:?}");
    assert_eq!((row.arrived, row.duplicates), (row.before, 0));
    Ok(())
}

#[promise(Delivery)]
fn what_arrives_at_a_collector_is_what_was_sent() -> Result<()> {
    for security in [Security::Plain, Security::Tls, Security::MutualTls, Security::UnixSocket] {
        assert_arrives(Version::of_run(), security)?;
    }
    Ok(())
}

#[promise(Delivery, test_all)]
fn what_arrives_at_the_newest_collector_is_what_was_sent() -> Result<()> {
    for security in [Security::Plain, Security::MutualTls] {
        assert_arrives(Version::Newest, security)?;
    }
    Ok(())
}

/// What a Collector answers an empty request over gRPC that names that profiles development version.
async fn ask_as_version(port: u16, version: &str) -> Result<Status> {
    let mut channel = Channel::from_shared(format!("http://127.0.0.1:{port}"))?.connect().await?;
    future::poll_fn(|context| channel.poll_ready(context)).await?;
    let path = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
    let request = http::Request::post(format!("http://127.0.0.1:{port}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("otlp-profiles-development-version", version)
        .body(Body::new(Full::new(Bytes::from_static(&[0; 5]))))?;
    let response = channel.call(request).await?;
    // A refusal is all in the head.
    Status::from_header_map(response.headers()).context("the Collector took it")
}

/// What the exporter makes of one report that `open` sends: the state of its events, and the reason that is logged.
fn refusal(way: &Way) -> Result<(Counts, String)> {
    let exporter = way.open(options())?;
    exporter.enqueue(Source::default().report(EVENTS));
    settle(&exporter)?;
    let stats = exporter.stats();
    Ok((stats.counts, stats.last_failure.unwrap_or_default()))
}

/// Both versions are in the reason: the Collector's own answer, and what was sent.
fn assert_incompatible((counts, reason): &(Counts, String)) {
    assert_eq!(counts.incompatible.events, EVENTS, "{counts:?}: {reason}");
    assert!(reason.contains("we send 1") && reason.contains("supported version is 1"), "{reason}");
}

#[promise(Backends)]
fn a_collector_that_refuses_a_request_for_its_version_is_understood() -> Result<()> {
    let collector = Collector::set_up(Setup { version: Version::Newest, ..Setup::default() })?;
    let [grpc_port, http_port] = collector.ports();

    let other = Proxy::before(http_port, Conduct::OtherVersion, usize::MAX)?;
    let way = Way::plain(Protocol::Http, format!("http://{}", other.address()));
    assert_incompatible(&refusal(&way)?);

    // Headers of HTTP/2 are not rewritten that easily: what this Collector answers over gRPC is answered by a server of ours.
    let runtime = runtime()?;
    let status = runtime.block_on(ask_as_version(grpc_port, "9"))?;
    let message: &'static str = Box::leak(status.message().to_owned().into_boxed_str());
    let answers = vec![Answer::Refuse(status.code(), message)];
    let receiver = runtime.block_on(Receiver::start(answers));
    assert_incompatible(&refusal(&Way::plain(Protocol::Grpc, receiver.endpoint.clone()))?);

    assert_eq!(collector.stop()?.profiles, []);
    Ok(())
}

#[promise(Delivery)]
fn a_certificate_that_will_not_do_is_told_and_nothing_is_sent() -> Result<()> {
    let (authority, other) = (Authority::new()?, Authority::new()?);
    let (trusted, distrusted) = (tempfile::tempdir()?, tempfile::tempdir()?);
    authority.place(trusted.path(), "sidewinder", VALID)?;
    other.place(distrusted.path(), "sidewinder", VALID)?;
    for (name, valid, client, says) in [
        ("127.0.0.1", VALID, &distrusted, "UnknownIssuer"),
        ("127.0.0.1", EXPIRED, &trusted, "expired"),
        ("collector.example", VALID, &trusted, "not valid for name"),
    ] {
        let server = tempfile::tempdir()?;
        authority.place(server.path(), name, valid)?;
        let tls = Some(of_server(server.path(), None));
        let collector = Collector::set_up(Setup { tls, ..Setup::default() })?;
        for protocol in [Protocol::Grpc, Protocol::Http] {
            let way = Way { tls: of_client(client.path(), false), ..Way::to(&collector, protocol) };
            let retry = Retry { max_elapsed_time: Some(Duration::from_millis(200)), ..options().retry };
            let options = sidewinder_otlp::send::ExporterOptions { retry, ..options() };
            let exporter = way.open(options)?;
            let mut source = Source::default();
            exporter.enqueue(source.report(10));
            settle(&exporter)?;
            let stats = exporter.stats();
            assert_eq!(stats.counts.dropped_retries_exhausted.events, 10, "{stats:?}");
            let failure = stats.last_failure.unwrap_or_default();
            assert!(failure.contains("certificate") && failure.contains(says), "{protocol:?}: {failure}");
        }
        assert_eq!(collector.stop()?.profiles, []);
    }
    Ok(())
}

#[promise(Delivery)]
fn certificates_that_are_replaced_on_both_sides_are_used_for_the_next_connection() -> Result<()> {
    let (server, client) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let place = |authority: &Authority| -> Result<()> {
        authority.place(server.path(), "127.0.0.1", VALID)?;
        authority.place(client.path(), "sidewinder", VALID)
    };
    place(&Authority::new()?)?;
    let tls = Some(of_server(server.path(), Some(server.path().join("ca.pem"))));
    let mut collector = Collector::set_up(Setup { tls, ..Setup::default() })?;
    let mut source = Source::default();
    let mut exporters = Vec::new();
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let tls = of_client(client.path(), true);
        exporters.push(Way { tls, timeout: PATIENCE, ..Way::to(&collector, protocol) }.open(options())?);
    }
    let send = |source: &mut Source| -> Result<()> {
        for exporter in &exporters {
            exporter.enqueue(source.report(EVENTS));
            settle(exporter)?;
        }
        Ok(())
    };
    send(&mut source)?;
    collector.kill()?;
    place(&Authority::new()?)?;
    collector.restart()?;
    send(&mut source)?;
    let delivered = exporters.iter().map(|exporter| exporter.stats().counts.delivered);
    let counts =
        Counts { delivered: delivered.fold(Default::default(), |sum, own| sum + own), ..Counts::default() };
    wait_until("all is delivered", || counts.delivered.events == 4 * EVENTS)?;
    let row = Row::new("certificates replaced", &source, counts, &collector.stop()?);
    assert!(row.balances() && row.arrived == row.before, "{row:?}");
    Ok(())
}
