//! One dead exporter holds none of the others back.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::promise::promise;
use sidewinder_otlp::send::Exporter;

use super::ledger::Source;
use super::{PATIENCE, Protocol, Way, options, wait_until};

const REPORTS: usize = 30;
/// By how much the delay of live exporters may grow.
const GROWTH_MAX: Duration = Duration::from_millis(100);

/// The median time from the hand-over of a report to its delivery by all of `live`, which get it after `dead`.
fn median_delay(live: &[Exporter], dead: &[Exporter], source: &mut Source) -> Result<Duration> {
    let mut delays = Vec::new();
    for _ in 0..REPORTS {
        let report = source.report(2_000);
        let queued_before: Vec<_> =
            live.iter().map(|exporter| exporter.stats().counts.delivered.events).collect();
        let begun = Instant::now();
        for exporter in dead.iter().chain(live) {
            exporter.enqueue(report.clone());
        }
        wait_until("delivered", || {
            let mut both = live.iter().zip(&queued_before);
            both.all(|(exporter, before)| exporter.stats().counts.delivered.events >= before + 2_000)
        })?;
        delays.push(begun.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    delays.sort();
    Ok(delays[REPORTS / 2])
}

#[promise(Delivery, test_all)]
fn of_three_exporters_a_dead_one_holds_the_others_back_by_less_than_100_ms() -> Result<()> {
    let collector = Collector::start()?;
    let live = [
        Way::to(&collector, Protocol::Grpc).open(options())?,
        Way::to(&collector, Protocol::Http).open(options())?,
    ];
    let mut source = Source::default();
    let before = median_delay(&live, &[], &mut source)?;
    // Takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let dead = [Way::plain(Protocol::Grpc, silent.local_addr()?.to_string()).open(options())?];
    let after = median_delay(&live, &dead, &mut source)?;
    eprintln!("median delay of {REPORTS} reports: {before:?} without the dead exporter, {after:?} with it");
    assert!(after < before + GROWTH_MAX, "{before:?} before, {after:?} after");
    let begun = Instant::now();
    let all = live.iter().chain(&dead);
    all.clone().for_each(|exporter| exporter.close(Duration::from_secs(1)));
    let counts: Vec<_> = all.map(|exporter| exporter.shutdown(PATIENCE)).collect();
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(counts[0].delivered.events, source.events());
    assert_eq!(counts[2].delivered.events, 0);
    collector.stop()?;
    Ok(())
}
