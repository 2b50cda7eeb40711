//! Which thread of the service may do what, once it samples.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Daemon, Settings};

const PERFMON: u32 = 38;
const BPF: u32 = 39;
const SYS_PTRACE: u32 = 19;
const SYSLOG: u32 = 34;
const CHECKPOINT_RESTORE: u32 = 40;
/// With it there is a bounding set to leave.
const SETPCAP: u32 = 8;
/// The table of `receiver/base/src/privilege.rs`: threads by name, and the capabilities that they have at the most. Whoever is not
/// here has none.
const THREADS: [(&str, &[u32]); 6] = [
    ("opener", &[BPF, PERFMON, SYS_PTRACE, SYSLOG, CHECKPOINT_RESTORE]),
    ("report", &[SYS_PTRACE, SYSLOG]),
    ("sample", &[SYS_PTRACE, CHECKPOINT_RESTORE]),
    ("reader", &[SYS_PTRACE]),
    ("tables", &[SYS_PTRACE]),
    ("large-tables", &[SYS_PTRACE]),
];
const PATIENCE: Duration = Duration::from_secs(30);

/// One thread, and what `/proc` says of it.
#[derive(Debug)]
struct Thread {
    name: String,
    status: String,
}

impl Thread {
    fn all(pid: u32) -> Result<Vec<Self>> {
        let mut threads = Vec::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            // Some end meanwhile.
            let Ok(status) = fs::read_to_string(entry?.path().join("status")) else { continue };
            let name = status.lines().next().and_then(|line| line.strip_prefix("Name:\t"));
            threads.push(Self { name: name.context("a thread without a name")?.to_owned(), status });
        }
        Ok(threads)
    }

    fn set(&self, name: &str) -> Result<u64> {
        let line = self.status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        Ok(u64::from_str_radix(line.with_context(|| format!("no {name}"))?.trim(), 16)?)
    }

    /// Says what is wrong with its capabilities, given whoever started the service.
    fn judge(&self, starter: &Self) -> Result<()> {
        let to_be_had = starter.set("CapPrm")?;
        let table = THREADS.iter().find(|(name, _)| *name == self.name).map_or(&[][..], |(_, may)| may);
        let expected = to_be_had & table.iter().fold(0, |set, capability| set | 1_u64 << capability);
        let bounding = if to_be_had & 1 << SETPCAP != 0 { 0 } else { starter.set("CapBnd")? };
        for (set, expected) in [
            ("CapPrm", expected),
            ("CapEff", expected),
            ("CapInh", 0),
            ("CapAmb", 0),
            ("CapBnd", bounding),
            ("NoNewPrivs", 1),
        ] {
            let found = self.set(set)?;
            ensure!(found == expected, "{}: {set} is {found:x}, not {expected:x}", self.name);
        }
        Ok(())
    }
}

#[promise(Privileges, test_all)]
fn each_thread_of_a_service_of_roots_has_the_capabilities_of_the_table() -> Result<()> {
    if !requirement::ebpf("capabilities of threads")? {
        return Ok(());
    }
    let own = Thread { name: String::new(), status: fs::read_to_string("/proc/self/status")? };
    let settings = Settings { samples_per_second: 97, ..Settings::default() };
    let daemon = Daemon::start(&settings, "127.0.0.1:9")?;
    // Threads give up what they have a moment after they have started.
    let deadline = Instant::now() + PATIENCE;
    let threads = loop {
        let threads = Thread::all(daemon.running().pid())?;
        let names: BTreeSet<_> = threads.iter().map(|thread| &*thread.name).collect();
        let is_complete = THREADS.iter().all(|(name, _)| names.contains(name));
        let judged = threads.iter().try_for_each(|thread| thread.judge(&own));
        if is_complete && judged.is_ok() {
            break threads;
        }
        if Instant::now() > deadline {
            judged?;
            ensure!(is_complete, "there are only {names:?}");
        }
        thread::sleep(Duration::from_millis(100));
    };
    eprintln!("{:?}", threads.iter().map(|thread| &*thread.name).collect::<Vec<_>>());
    daemon.stop()?;
    Ok(())
}
