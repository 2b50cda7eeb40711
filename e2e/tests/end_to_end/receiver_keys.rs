//! Keys of the receiver that OpenTelemetry's profiler has, too, and that no other test is about.

use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde_json::Value;
use sidewinder_e2e_support::collector::Collector;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::{requirement, sidewinder, workload};
use sidewinder_otlp::decode::DecodedEvent;

const MIN_AGE_NS: u64 = 3_000_000_000;
/// Of 2 s of one CPU at 997 Hz and more; fewer on a busy machine.
const EVENTS_MIN: usize = 60;

/// Two threads for 5 s, on two CPUs.
#[promise(Configuration)]
fn young_processes_and_other_cpus_are_omitted_and_chosen_variables_are_sent() -> Result<()> {
    if !requirement::ebpf("keys of OpenTelemetry's profiler")? {
        return Ok(());
    }
    let collector = Collector::start()?;
    // A shell that waits, and whose child is as young as it can be.
    let program = workload::THREADS.command(&["5", "2"])?;
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "read -r line; \"$@\"; exit", "sh"])
        .arg(program.get_program())
        .args(program.get_args());
    shell.env("REGION", "eu").env("SECRET", "x").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut shell = shell.spawn()?;
    let settings = Settings {
        more: vec![
            "filter_min_process_age: 3s".to_owned(),
            "include_env_vars: REGION, ABSENT".to_owned(),
            "pin_cpu_ids: '1'".to_owned(),
            "bpf_verifier_log_level: 2".to_owned(),
        ],
        ..Settings::of_process(shell.id())
    };
    let daemon = Daemon::start(&settings, &collector.grpc_endpoint())?;
    let started_at = SystemTime::now();
    drop(shell.stdin.take());
    shell.wait()?;
    let pid = daemon.running().pid().to_string();
    let status: Value = serde_json::from_str(&sidewinder::run(&["status", "--json", "--pid", &pid])?.log)?;
    let young = status["receivers"]["profiling"]["interrupts"]["young_process"].as_u64();
    let log = daemon.stop()?.log;
    let received = collector.stop()?;

    assert!(young.is_some_and(|young| young > 0), "{status}");
    assert!(log.contains("insns (limit"), "no statistics of the verifier: {log}");
    assert!(received.events().all(|event| event.sample.cpu() == Some(1)));
    // The shell may be older, and gone before it is read.
    let is_of_program = |event: &DecodedEvent<'_>| {
        let path = event.profile.resource.get("process.executable.path");
        path.and_then(|path| path.as_str()) == program.get_program().to_str()
    };
    let of_program: Vec<_> = received.events().filter(is_of_program).collect();
    assert!(of_program.len() >= EVENTS_MIN, "{} events", of_program.len());
    let started_ns = u64::try_from(started_at.duration_since(UNIX_EPOCH)?.as_nanos())?;
    let first_ns = of_program.iter().map(|event| event.time_unix_ns).min().context("no event")?;
    assert!(first_ns - started_ns >= MIN_AGE_NS, "an event {} ns after the start", first_ns - started_ns);
    for event in of_program {
        let resource = &event.profile.resource;
        let variable = |name: &str| resource.get(format!("process.environment_variable.{name}").as_str());
        assert_eq!(variable("REGION").and_then(|value| value.as_str()), Some("eu"));
        assert!(variable("SECRET").is_none() && variable("ABSENT").is_none());
    }
    Ok(())
}
