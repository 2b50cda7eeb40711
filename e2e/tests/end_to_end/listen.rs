//! `view --listen` shows what arrives, from a profiler and through a Collector.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_support::collector::{self, Collector};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{Gated, LADDER};
use sidewinder_e2e_support::{http, requirement};
use sidewinder_render::decode_document;

/// Events until the test has seen enough, and how long it waits for them.
const ENOUGH: u64 = 50;
const TIMEOUT: Duration = Duration::from_secs(60);

/// The data of the page: how many events there are, and the names in it.
fn page_data(port: u16, path: &str) -> Result<Option<(u64, Vec<String>)>> {
    let answer = http::get(port, &format!("{path}/data/0"))?;
    if answer.status != 200 {
        return Ok(None);
    }
    let data = decode_document(&answer.body)?;
    let counts = data["samples"]["count"].as_array().context("no counts")?;
    let names = data["strings"].as_array().context("no names")?;
    let names = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(Some((counts.iter().filter_map(Value::as_u64).sum(), names)))
}

#[promise(LivePage)]
fn a_collector_sends_on_to_the_page_what_a_profiler_sent_to_it() -> Result<()> {
    let test = "a_collector_sends_on_to_the_page_what_a_profiler_sent_to_it";
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let [otlp, metrics] = collector::free_ports()?;
    let mut command = sidewinder::command()?;
    command.args(["view", &format!("--listen=127.0.0.1:{otlp}")]);
    let page = Running::start(command)?;
    let deadline = Instant::now() + TIMEOUT;
    let url = loop {
        let log = page.log();
        let url = log.lines().find_map(|line| line.strip_prefix("http://127.0.0.1:"));
        if let Some(url) = url.filter(|_| log.contains("Receiving")) {
            break url.trim_end_matches('/').to_owned();
        }
        ensure!(Instant::now() < deadline, "no address: {log}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let (port, path) = url.split_once('/').context("no path")?;
    let (port, path) = (port.parse()?, format!("/{path}"));

    // A message that is none, by HTTP.
    let headers = [("Content-Type", "application/x-protobuf")];
    let refused = http::request(otlp, "POST", "/v1development/profiles", &headers, b"none")?;
    ensure!(refused.status == 400 && refused.text().contains("not a ProfilesData message"), "{refused:?}");

    let collector = Collector::start_with_metrics(metrics, &format!("127.0.0.1:{otlp}"))?;
    let mut workload = Gated::start(LADDER.command(&[120, 10])?)?;
    let daemon = Daemon::start(&Settings::of_process(workload.pid()), &collector.grpc_endpoint())?;
    workload.open()?;
    let names = loop {
        if let Some((events, names)) = page_data(port, &path)?.filter(|(events, _)| *events >= ENOUGH) {
            eprintln!("{events} events");
            break names;
        }
        ensure!(Instant::now() < deadline, "{:?}: {}", page_data(port, &path)?, page.log());
        std::thread::sleep(Duration::from_millis(200));
    };
    for name in ["main", "climb", "ladder"] {
        ensure!(names.iter().any(|known| known == name), "no {name} in {names:?}");
    }
    daemon.stop()?;
    collector.stop()?;
    let ended = page.stop()?;
    ensure!(ended.status.success() && ended.log.contains("1 messages were invalid"), "{}", ended.log);
    Ok(())
}
