//! Bytes that leave for each event: a mixed corpus at 499 Hz, a report every two seconds, as the peer's figures were
//! taken (67.7 raw and 22.3 with gzip, without native names).

use std::fs;
use std::io::Read as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use flate2::Compression;
use flate2::read::GzEncoder;
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::{paths, workload};
use sidewinder_otlp::decode;

const DURATION: Duration = Duration::from_secs(20);
const PEER_RAW: f64 = 67.7;
const PEER_GZIP: f64 = 22.3;

/// Programs that run until they are ended.
fn corpus() -> Result<Vec<Load>> {
    let seconds = (DURATION.as_secs() + 60).to_string();
    let mut python = Command::new("/usr/bin/python3");
    python.arg(paths::e2e().join("workloads/recursive.py")).args([&seconds, "0", "1", &seconds]);
    let compiled =
        [workload::THREADS, workload::WORDS_FP, workload::READS, workload::DIV, workload::LADDER_GO];
    let compiled = compiled.into_iter().map(|program| program.command(&[&*seconds, "4"]));
    std::iter::once(Ok(python)).chain(compiled).map(|command| Load::start(command?)).collect()
}

/// Events, and the bytes of all messages that carry them, raw and compressed one by one.
struct Payload {
    events: usize,
    raw: usize,
    gzip: usize,
}

fn measure(symbols: &str) -> Result<Payload> {
    let folder = tempfile::tempdir()?;
    let (config, output) = (folder.path().join("sidewinder.yaml"), folder.path().join("out"));
    fs::write(
        &config,
        format!(
            "receivers: {{ profiling: {{ samples_per_second: 499, reporter_interval: 2s, symbolize: {{ mode: {symbols}, \
             kernel: {} }} }} }}\nexporters: {{ file: {{ path: {} }} }}\nservice: {{ pipelines: {{ profiles: {{ \
             receivers: [profiling], exporters: [file] }} }} }}\n",
            symbols == "local",
            output.display()
        ),
    )?;
    let mut command = sidewinder::command()?;
    command.arg("--config").arg(&config);
    let running = Running::start_sampling(command)?;
    thread::sleep(DURATION);
    running.stop()?;
    let written = fs::read(&output)?;
    let messages = decode::file_messages(&written).collect::<Result<Vec<_>, _>>()?;
    let mut payload =
        Payload { events: Received::from_requests(&messages)?.events().count(), raw: 0, gzip: 0 };
    for message in &messages {
        payload.raw += message.len();
        let mut compressed = Vec::new();
        GzEncoder::new(*message, Compression::default()).read_to_end(&mut compressed)?;
        payload.gzip += compressed.len();
    }
    Ok(payload)
}

fn main() -> Result<()> {
    let _corpus = corpus()?;
    thread::sleep(Duration::from_secs(2));
    println!("                events   raw B/event  (x peer)  gzip B/event  (x peer)");
    for (name, symbols) in [("without names", "none"), ("with names", "local")] {
        let Payload { events, raw, gzip } = measure(symbols)?;
        let (raw, gzip) = (raw as f64 / events as f64, gzip as f64 / events as f64);
        println!(
            "{name:14} {events:7} {raw:13.1} {:9.2} {gzip:13.1} {:9.2}",
            raw / PEER_RAW,
            gzip / PEER_GZIP
        );
    }
    Ok(())
}
