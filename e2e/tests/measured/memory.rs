//! What memory everything together takes, while nothing that was made can be delivered.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::{self, Gated};
use sidewinder_e2e_support::{collector, observe, paths, programs, requirement, sidewinder};

const LIMIT_MIB: u64 = 48;
/// Minutes, scaled down: at 4999 Hz as much is queued as in 50 minutes at the 20 Hz of the default.
const DEAD_FOR: Duration = Duration::from_secs(12);

#[promise(PodMemory, test_all)]
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
        most = most.max(number("/memory_rss_bytes") + number("/receivers/profiling/maps_bytes"));
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

/// What a recording of one small program may hold resident, its eBPF maps, code and names included, on two CPUs.
const RECORDING_MIB: u64 = 24;
/// For each further CPU: the ring for its samples, mapped twice in a row, and its ring for mappings and the like.
const RECORDING_KIB_PER_FURTHER_CPU: u64 = 528;
const RECORDED: Duration = Duration::from_secs(4);

#[promise(Small)]
fn a_recording_of_one_small_program_takes_little_memory() -> Result<()> {
    if !requirement::ebpf("memory of a recording")? {
        return Ok(());
    }
    let load = Load::start(workload::WORDS_DEBUG.command(&["40"])?)?;
    let folder = tempfile::tempdir()?;
    let mut record = sidewinder::command()?;
    record.args(["record", "-q", "-F", "997", "-p", &load.pid().to_string(), "-d", "60s", "-o"]);
    record.arg(folder.path().join("out.html"));
    let record = sidewinder::Running::start_sampling(record)?;
    thread::sleep(RECORDED);
    let resident_bytes = observe::resident_bytes(record.pid())?;
    let further_cpus = thread::available_parallelism()?.get().saturating_sub(2) as u64;
    let most_bytes = (RECORDING_MIB << 20) + ((further_cpus * RECORDING_KIB_PER_FURTHER_CPU) << 10);
    eprintln!("{} KiB resident, {} KiB at most", resident_bytes >> 10, most_bytes >> 10);
    ensure!(resident_bytes <= most_bytes, "{resident_bytes} bytes are resident, {most_bytes} at most");
    Ok(())
}

/// A whole node has more programs than one process: less than this has no room for what they need at the least.
const NODE_LIMIT_MIB: u64 = 64;
/// A node on which things are built: compilers of tens of MiB of code each come and go.
const NODE_FOR: Duration = Duration::from_secs(15);
const PROGRAMS: u8 = 24;

/// Ends a child and what it started, which are a process group.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Compiles again and again, and runs programs of which each has tables and names of its own.
fn busy_node(folder: &Path) -> Result<Group> {
    let pythons = programs::copies_of_python(folder, PROGRAMS)?.join(" ");
    let recursive = paths::e2e().join("workloads/recursive.py");
    let source = paths::e2e().join("workloads/words.cc");
    let rust = folder.join("main.rs");
    fs::write(&rust, "fn main() { println!(\"{:?}\", std::env::args().collect::<Vec<_>>()); }")?;
    let (output, rustc) = (folder.join("output"), std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
    let script = format!(
        "(while :; do c++ -O1 -c {source} -o {output}.o; {rustc} -O {rust} -o {output} 2>/dev/null || :; done) &
        while :; do for python in {pythons}; do $python {recursive} 0.3 0 1 0.3; done; done",
        source = source.display(),
        output = output.display(),
        rust = rust.display(),
        recursive = recursive.display(),
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    Ok(Group(command.spawn().context("cannot run sh")?))
}

#[promise(Node, test_all)]
fn a_node_full_of_large_programs_is_profiled_within_the_limit_and_each_has_a_table() -> Result<()> {
    if !requirement::ebpf("memory on a busy node")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let [dead] = collector::free_ports()?;
    let settings = Settings {
        samples_per_second: 499,
        pid: None,
        more: vec![format!("memory_limit_mib: {NODE_LIMIT_MIB}"), "monitor_interval: 200ms".to_owned()],
        ..Settings::default()
    };
    let daemon = Daemon::start(&settings, &format!("127.0.0.1:{dead}"))?;
    let _node = busy_node(folder.path())?;
    let pid = daemon.running().pid();
    let deadline = Instant::now() + NODE_FOR;
    let (mut most, mut status) = (0, Value::Null);
    while Instant::now() < deadline {
        thread::sleep(Duration::from_millis(250));
        // Maps that are mapped are in both: they are there once.
        let of_maps = observe::map_bytes(pid).saturating_sub(observe::resident_map_bytes(pid)?);
        most = most.max(observe::resident_bytes(pid)? + of_maps);
        let said = sidewinder::run(&["status", "--json", "--pid", &pid.to_string()])?;
        status = serde_json::from_str(&said.log).with_context(|| said.log.clone())?;
    }
    daemon.stop()?;
    let receiver = &status["receivers"]["profiling"];
    let number = |key: &str| receiver[key].as_u64().unwrap_or_default();
    eprintln!("{} KiB at most; {receiver}", most >> 10);
    ensure!(number("events") > 300, "little was profiled: {receiver}");
    ensure!(most <= NODE_LIMIT_MIB << 20, "{most} bytes: {receiver}");
    ensure!(number("tables_cut") == 0, "a file has no table: {receiver}");
    Ok(())
}
