//! Every way to a real Collector: two versions, three transports, three compressions, plain, TLS and mutual TLS.

use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e::collector::{Collector, Setup, Version};
use sidewinder_e2e::ledger::{Row, Source};
use sidewinder_otlp::send::{Compression, Counts, RetryOptions, State};

use super::certificates::{Authority, EXPIRED, VALID, of_client, of_server};
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

#[test]
fn what_arrives_at_the_oldest_collector_is_what_was_sent() -> Result<()> {
    for security in [Security::Plain, Security::Tls, Security::MutualTls, Security::UnixSocket] {
        assert_arrives(Version::Oldest, security)?;
    }
    Ok(())
}

#[test]
fn what_arrives_at_the_newest_collector_is_what_was_sent() -> Result<()> {
    for security in [Security::Plain, Security::Tls, Security::MutualTls, Security::UnixSocket] {
        assert_arrives(Version::Newest, security)?;
    }
    Ok(())
}

#[test]
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
            let retry = RetryOptions { max_elapsed_time: Duration::from_millis(200), ..options().retry };
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

#[test]
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
