//! Each fault is a row: events before, what the exporter says became of them, what the receiver has. The rows
//! balance, and none does with one outcome left out.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use sidewinder_config::{Compression, Retry, TlsClient};
use sidewinder_e2e_support::collector::{Collector, Setup, free_ports};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::requirement;
use sidewinder_otlp::send::{
    Exporter, ExporterOptions, GrpcOptions, Resolve, ResolveFuture, Resolver, StorageOptions,
};

use super::ledger::{Row, Source};
use super::proxy::{Conduct, Proxy};
use super::{EVENTS, PATIENCE, Protocol, Way, assert_balanced, feed, options, settle, wait_until};

const REPORTS: u64 = 20;
const BOTH: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

/// For how long a Collector is stopped: a minute where whole seconds are asked for, otherwise less.
fn stopped_for() -> Duration {
    let whole = std::env::var_os("SIDEWINDER_WHOLE_FAULTS").is_some();
    Duration::from_secs(if whole { 60 } else { 2 })
}

#[promise(Delivery)]
fn a_collector_that_is_killed_and_comes_back_has_everything() -> Result<()> {
    for protocol in BOTH {
        let mut collector = Collector::start()?;
        let exporter = Way::to(&collector, protocol).open(options())?;
        let mut source = Source::default();
        feed(&exporter, &mut source, REPORTS);
        collector.kill()?;
        feed(&exporter, &mut source, REPORTS);
        collector.restart()?;
        feed(&exporter, &mut source, REPORTS);
        settle(&exporter)?;
        let counts = exporter.shutdown(PATIENCE);
        let row =
            Row::new(&format!("killed and restarted, {protocol:?}"), &source, counts, &collector.stop()?);
        assert_balanced(&row);
        assert_eq!((row.counts.delivered.events, row.arrived), (row.before, row.before));
    }
    Ok(())
}

#[promise(Delivery, test_all)]
fn a_collector_that_is_stopped_for_a_while_has_everything() -> Result<()> {
    for protocol in BOTH {
        let collector = Collector::start()?;
        let exporter = Way::to(&collector, protocol).open(options())?;
        let mut source = Source::default();
        feed(&exporter, &mut source, REPORTS);
        collector.signal(Signal::SIGSTOP)?;
        feed(&exporter, &mut source, REPORTS);
        thread::sleep(stopped_for());
        collector.signal(Signal::SIGCONT)?;
        feed(&exporter, &mut source, REPORTS);
        settle(&exporter)?;
        let counts = exporter.shutdown(PATIENCE);
        let row = Row::new(
            &format!("stopped for {:?}, {protocol:?}", stopped_for()),
            &source,
            counts,
            &collector.stop()?,
        );
        assert_balanced(&row);
        assert_eq!((row.counts.delivered.events, row.arrived), (row.before, row.before));
    }
    Ok(())
}

#[promise(Delivery, test_all)]
fn a_connection_that_is_slow_broken_garbled_or_half_closed_costs_nothing() -> Result<()> {
    for protocol in BOTH {
        for (conduct, times) in [
            (Conduct::Late(Duration::from_millis(100)), usize::MAX),
            (Conduct::Cut, 2),
            (Conduct::Garbage, 2),
            (Conduct::HalfClosed, 2),
        ] {
            let collector = Collector::start()?;
            let [grpc_port, http_port] = collector.ports();
            let port = if protocol == Protocol::Grpc { grpc_port } else { http_port };
            let proxy = Proxy::before(port, conduct, times)?;
            let endpoint = match protocol {
                Protocol::Grpc => proxy.address(),
                Protocol::Http => format!("http://{}", proxy.address()),
            };
            let way = Way { timeout: Duration::from_secs(2), ..Way::plain(protocol, endpoint) };
            let exporter = way.open(options())?;
            let mut source = Source::default();
            feed(&exporter, &mut source, REPORTS);
            settle(&exporter)?;
            let counts = exporter.shutdown(PATIENCE);
            let row = Row::new(&format!("{conduct:?}, {protocol:?}"), &source, counts, &collector.stop()?);
            assert_balanced(&row);
            assert_eq!((row.counts.delivered.events, row.arrived), (row.before, row.before));
            ensure!(proxy.connections() > if times == usize::MAX { 0 } else { times }, "{proxy:?}");
        }
    }
    Ok(())
}

#[promise(Delivery, test_all)]
fn a_request_beyond_the_collectors_limit_is_cut_until_it_fits() -> Result<()> {
    for protocol in BOTH {
        let collector = Collector::set_up(Setup { max_request_mib: Some(1), ..Setup::default() })?;
        let mut way = Way::to(&collector, protocol);
        // gRPC's limit is on what comes out of compression, HTTP's also on what goes in.
        way.compression = Compression::None;
        way.timeout = PATIENCE;
        let exporter = way.open(options())?;
        let mut source = Source::default();
        let report = source.report(150_000);
        ensure!(report.as_bytes().len() > 1 << 20, "{} bytes", report.as_bytes().len());
        exporter.enqueue(report);
        settle(&exporter)?;
        let counts = exporter.shutdown(PATIENCE);
        let row = Row::new(&format!("limit of 1 MiB, {protocol:?}"), &source, counts, &collector.stop()?);
        assert_balanced(&row);
        assert_eq!((row.counts.delivered.events, row.arrived), (row.before, row.before));
    }
    Ok(())
}

/// Knows one name, whose address changes.
struct Names(Arc<Mutex<u16>>);

impl Resolve for Names {
    fn resolve(&self, _: &str, _: u16) -> ResolveFuture {
        let port = self.0.lock().map_or(0, |port| *port);
        Box::pin(async move { Ok(vec![([127, 0, 0, 1], port).into()]) })
    }
}

#[promise(Delivery)]
fn a_name_that_comes_to_mean_another_collector_is_followed() -> Result<()> {
    let (mut first, second) = (Collector::start()?, Collector::start()?);
    let port = Arc::new(Mutex::new(first.ports()[0]));
    let grpc = GrpcOptions {
        tls: TlsClient { insecure: true, ..TlsClient::default() },
        resolver: Resolver::new(Names(Arc::clone(&port))),
        ..GrpcOptions::new("collector.test:4317")
    };
    let exporter = Exporter::grpc(options(), &grpc)?;
    let mut source = Source::default();
    feed(&exporter, &mut source, REPORTS);
    settle(&exporter)?;
    first.kill()?;
    feed(&exporter, &mut source, REPORTS);
    if let Ok(mut port) = port.lock() {
        *port = second.ports()[0];
    }
    settle(&exporter)?;
    let counts = exporter.shutdown(PATIENCE);
    first.restart()?;
    let mut received = first.stop()?;
    received.profiles.extend(second.stop()?.profiles);
    let row = Row::new("another address", &source, counts, &received);
    assert_balanced(&row);
    assert_eq!((row.counts.delivered.events, row.arrived), (row.before, row.before));
    Ok(())
}

#[promise(Delivery)]
fn what_a_dead_receiver_costs_is_counted_by_its_reason() -> Result<()> {
    let [port] = free_ports()?;
    let way = Way::plain(Protocol::Grpc, format!("127.0.0.1:{port}"));
    let mut source = Source::default();
    let given_up = Retry { max_elapsed_time: Some(Duration::from_millis(300)), ..options().retry };
    let exporter = way.open(ExporterOptions { retry: given_up, ..options() })?;
    feed(&exporter, &mut source, REPORTS);
    settle(&exporter)?;
    let row = Row::new("nobody there, given up", &source, exporter.shutdown(PATIENCE), &Received::default());
    assert_balanced(&row);
    assert_eq!(row.counts.dropped_retries_exhausted.events, row.before);

    let mut source = Source::default();
    let exporter = way.open(ExporterOptions { queue_bytes: 30_000, ..options() })?;
    feed(&exporter, &mut source, REPORTS);
    let counts = exporter.shutdown(Duration::from_millis(100));
    let row = Row::new("nobody there, queue full, the end", &source, counts, &Received::default());
    assert_balanced(&row);
    assert!(row.counts.dropped_queue_full.events > 0 && row.counts.dropped_shutdown.events > 0, "{row:?}");
    Ok(())
}

/// A file system of a few pages.
struct TinyDisk<'a>(&'a Path);

impl<'a> TinyDisk<'a> {
    fn mount(at: &'a Path) -> Result<Option<Self>> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(at).output()?;
        if mounted.status.success() {
            return Ok(Some(Self(at)));
        }
        requirement::skip("a full disk", &String::from_utf8_lossy(&mounted.stderr))?;
        Ok(None)
    }
}

impl Drop for TinyDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[promise(Delivery, test_all)]
fn what_a_full_disk_does_not_take_is_counted_and_the_rest_is_sent_in_the_end() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(disk) = TinyDisk::mount(folder.path())? else { return Ok(()) };
    let [grpc_port, http_port] = free_ports()?;
    let storage = StorageOptions {
        directory: disk.0.to_owned(),
        create_with_mode: None,
        max_bytes: 1 << 30,
        fsync: false,
    };
    let options = ExporterOptions { storage: Some(storage), ..options() };
    let exporter = Way::plain(Protocol::Grpc, format!("127.0.0.1:{grpc_port}")).open(options)?;
    let mut source = Source::default();
    feed(&exporter, &mut source, 3 * REPORTS);
    wait_until("the disk is full", || exporter.stats().counts.dropped_write_failed.events > 0)?;
    let collector = Collector::start_on(grpc_port, http_port)?;
    settle(&exporter)?;
    feed(&exporter, &mut source, REPORTS);
    settle(&exporter)?;
    let counts = exporter.shutdown(PATIENCE);
    drop(exporter);
    let row = Row::new("disk full", &source, counts, &collector.stop()?);
    assert_balanced(&row);
    let lost = row.counts.dropped_write_failed.events;
    assert_eq!(row.counts.delivered.events, row.before - lost);
    assert!(row.counts.delivered.events >= (REPORTS + 1) * EVENTS, "{row:?}");
    Ok(())
}
