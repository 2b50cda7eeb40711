//! What memory everything together takes, while nothing that was made can be delivered.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e::session::{Daemon, Settings};
use sidewinder_e2e::workload::{self, Gated};
use sidewinder_e2e::{collector, requirement, sidewinder};

const LIMIT_MIB: u64 = 48;
/// Minutes, scaled down: at 4999 Hz as much is queued as in over an hour at the 20 Hz of the default.
const DEAD_FOR: Duration = Duration::from_secs(20);

#[test]
fn with_everything_on_and_a_dead_collector_memory_stays_within_its_limit() -> Result<()> {
    if !requirement::ebpf("memory with a dead Collector")? {
        return Ok(());
    }
    let [dead, metrics, health, zpages] = collector::free_ports()?;
    let mut workload = Gated::start(workload::THREADS.command(&["40", "2"])?)?;
    let reader =
        format!("{{ pull: {{ exporter: {{ prometheus: {{ host: 127.0.0.1, port: {metrics} }} }} }} }}");
    let settings = Settings {
        samples_per_second: 4999,
        more: vec![format!("memory_limit_mib: {LIMIT_MIB}"), "monitor_interval: 200ms".to_owned()],
        service: vec![
            "extensions: [health_check, zpages]".to_owned(),
            format!("telemetry: {{ metrics: {{ level: detailed, readers: [{reader}] }} }}"),
        ],
        top: vec![format!(
            "extensions: {{ health_check: {{ endpoint: 127.0.0.1:{health} }}, zpages: {{ endpoint: 127.0.0.1:{zpages} }} }}"
        )],
        ..Settings::of_process(workload.pid())
    };
    let daemon = Daemon::start(&settings, &format!("127.0.0.1:{dead}"))?;
    workload.open()?;
    let pid = daemon.running().pid().to_string();
    let deadline = Instant::now() + DEAD_FOR;
    let (mut most, mut queued, mut capacity) = (0, 0, 0);
    while Instant::now() < deadline {
        thread::sleep(Duration::from_millis(500));
        let said = sidewinder::run(&["status", "--json", "--pid", &pid])?;
        let status: Value = serde_json::from_str(&said.log).with_context(|| said.log.clone())?;
        let number = |path: &str| status.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        most = most.max(number("/memory_rss_bytes") + number("/receivers/profiling/map_bytes"));
        queued = queued.max(number("/exporters/otlp_grpc/queue_bytes"));
        capacity = number("/exporters/otlp_grpc/queue_capacity_bytes");
    }
    daemon.stop()?;
    eprintln!("{} KiB at most, {} KiB queued of {} KiB", most >> 10, queued >> 10, capacity >> 10);
    ensure!(queued > 128 << 10, "only {queued} bytes were queued: nothing was to be kept");
    // As if the queue had filled up, which it does in minutes that are not scaled down.
    let full = most + (capacity - queued.min(capacity));
    ensure!(full <= LIMIT_MIB << 20, "{most} bytes, {full} with a full queue");
    Ok(())
}
