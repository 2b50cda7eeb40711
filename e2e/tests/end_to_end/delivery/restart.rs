//! What is queued on disk outlives the profiler.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use sidewinder_e2e_support::collector::{self, Collector};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::Settings;
use sidewinder_e2e_support::sidewinder::Running;
use sidewinder_e2e_support::workload::{self, Gated};
use sidewinder_e2e_support::{log, requirement, sidewinder};

use super::wait_until;

/// The configuration with a queue in `folder`.
fn yaml(settings: &Settings, endpoint: &str, folder: &Path) -> String {
    settings
        .yaml(endpoint)
        .replace("exporters: [otlp_grpc]", "exporters: [otlp_grpc, debug]")
        .replace("exporters:\n  otlp_grpc:", "exporters:\n  debug:\n  otlp_grpc:")
        .replace(
            "    tls: { insecure: true }\n",
            "    tls: { insecure: true }\n    sending_queue: { storage: file_storage }\n    \
             retry_on_failure: { initial_interval: 100ms, max_interval: 1s, max_elapsed_time: 0 }\n",
        )
        .replace(
            "service:\n",
            &format!(
                "extensions:\n  file_storage: {{ directory: {} }}\nservice:\n  extensions: [file_storage]\n",
                folder.display()
            ),
        )
}

fn start(folder: &Path, yaml: &str) -> Result<Running> {
    let path = folder.join("sidewinder.yaml");
    fs::write(&path, yaml)?;
    let mut command = sidewinder::command()?;
    command.arg("--config").arg(path).arg(log::IN_JSON);
    Running::start_sampling(command)
}

/// How many events were handed to the exporters, by the one that tells of each report in the log.
fn handed_over(log: &str) -> u64 {
    let reports = log::entries(log).filter(|entry| entry.number("profiles").is_some());
    reports.filter_map(|entry| entry.number("events")).sum()
}

fn different_events(received: &Received) -> u64 {
    let events =
        received.events().map(|event| (event.time_unix_ns, event.sample.thread_id(), event.sample.cpu()));
    events.collect::<HashSet<_>>().len() as u64
}

#[promise(Delivery, test_all)]
fn what_was_written_before_a_kill_is_sent_after_it() -> Result<()> {
    if !requirement::ebpf("a profiler that is killed")? {
        return Ok(());
    }
    let (folder, queue) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let [grpc_port, http_port] = collector::free_ports()?;
    let mut workload = Gated::start(workload::THREADS.command(&["60", "1"])?)?;
    let pid = workload.pid();
    let yaml = yaml(&Settings::of_process(pid), &format!("127.0.0.1:{grpc_port}"), queue.path());
    let running = start(folder.path(), &yaml)?;
    workload.open()?;
    let bytes_on_disk = || -> Result<u64> {
        let files = fs::read_dir(queue.path().join("queue_otlp_grpc")).context("the queue on disk")?;
        files.map(|file| Ok(file?.metadata()?.len())).sum()
    };
    // Reports are made every second: the first three are on the disk by then, on a machine that is not busy.
    thread::sleep(Duration::from_millis(3_600));
    wait_until("a report on the disk", || bytes_on_disk().is_ok_and(|bytes| bytes > 0))?;
    signal::kill(Pid::from_raw(i32::try_from(running.pid())?), Signal::SIGKILL)?;
    let log_before = running.log();
    drop(running);
    let written = bytes_on_disk()?;
    assert!(written > 0, "nothing is on the disk");

    let collector = Collector::start_on(grpc_port, http_port)?;
    let again = start(folder.path(), &yaml)?;
    thread::sleep(Duration::from_millis(2_500));
    let ended = again.stop()?;
    assert!(ended.status.success(), "{}", ended.log);
    let received = collector.stop()?;
    let (before, after) = (handed_over(&log_before), handed_over(&ended.log));
    eprintln!(
        "{before} events before the kill, {after} after it, {} arrived, {} duplicate profiles; {written} bytes were \
         on the disk",
        different_events(&received),
        received.duplicates
    );
    assert!(before > 0 && after > 0, "{log_before}\n{}", ended.log);
    assert_eq!(different_events(&received), before + after, "{log_before}\n{}", ended.log);
    assert_eq!(fs::read_dir(queue.path().join("queue_otlp_grpc"))?.count(), 1, "only the lock is left");
    Ok(())
}
