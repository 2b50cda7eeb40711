//! A sidecar within the memory that the chart gives it.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_pod::{Image, Pod, PodSpec, Sidecar, SidecarSpec};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::workload;

use super::{APP_USER, AS_THE_SAME_USER, NOWHERE, app, configuration, security};

/// The chart's limit.
const LIMIT_BYTES: u64 = 64 << 20;
const PROCESSES: &str = "50";
/// Kept, as nobody takes them.
const EVENTS: u64 = 5_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Nobody takes what is sampled, so that all of it is kept for as long as there is room. What the limit counts is all that
/// the kernel holds for the container: eBPF maps, and files that were read.
#[promise(PodMemory, test_all)]
fn beside_fifty_busy_processes_a_container_of_64_mib_is_never_killed() -> Result<()> {
    if !sidewinder_e2e_pod::are_possible("a container of 64 MiB")? {
        return Ok(());
    }
    let pod = Pod::start(PodSpec::default())?;
    let _app = pod.run(&app(workload::CROWD, &["busy", PROCESSES, "120"], None)?)?;
    let spec = SidecarSpec {
        configuration: configuration(997, "ignore", NOWHERE),
        security: security(APP_USER, &AS_THE_SAME_USER),
        memory_limit_bytes: Some(LIMIT_BYTES),
        collector: None,
    };
    let mut sidecar = Sidecar::start(&pod, &Image::new()?, &spec)?;
    sidecar.wait_until_profiling()?;
    let deadline = Instant::now() + PATIENCE;
    let mut events = 0;
    while events < EVENTS {
        ensure!(sidecar.container_mut().ended()?.is_none(), "it has ended: {}", sidecar.container().log());
        ensure!(Instant::now() < deadline, "only {events} events: {}", sidecar.container().log());
        thread::sleep(Duration::from_millis(500));
        let status = sidecar.status()?.context("it does not answer")?;
        events = status.pointer("/receivers/profiling/events").and_then(Value::as_u64).unwrap_or_default();
    }
    let memory = sidecar.container().memory().context("it has no limit")?;
    let (peak, kills) = (memory.peak_bytes()?, memory.kills()?);
    eprintln!("{events} events, {} KiB at most", peak >> 10);
    assert_eq!(kills, 0);
    ensure!(peak > LIMIT_BYTES / 16, "the limit does not count what it is for: {peak} bytes at most");
    Ok(())
}
